"""Code that makes a stack of transformations again."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import fx, nn

from fxlab import (
    ChangeTrueDivToMulByInverse,
    MergeLinears,
    Session,
    Transformation,
    compose,
    from_callable,
    from_pattern,
)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) * self.b(x) / 3.0


@dataclass(frozen=True)
class Scale(Transformation):
    """Multiplies by another constant."""

    factors: tuple[float, ...] = (1.0,)
    dtype: torch.dtype = torch.float32
    operation: Any = operator.mul
    note: str = ""

    def transform(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        return graph_module


class Plain(Transformation):
    """Keeps its argument under another name."""

    def __init__(self, note: str) -> None:
        self.kept = note.upper()

    def transform(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        return graph_module


def halve(graph_module: fx.GraphModule) -> None:
    for node in graph_module.graph.find_nodes(op="call_function", target=operator.truediv):
        node.args = (node.args[0], 6.0)


def made_again(session: Session) -> Session:
    names = {"model": session.original, "inputs": session.inputs}
    exec(compile(session.to_python(), "code", "exec"), names)
    again = names["session"]
    assert isinstance(again, Session)
    return again


@pytest.mark.parametrize(
    "passes",
    [
        [MergeLinears(), ChangeTrueDivToMulByInverse()],
        [compose(MergeLinears(), ChangeTrueDivToMulByInverse(), inplace=True)],
        [Scale((2.0,), torch.bfloat16, note="it's \"quoted\"\n'''")],
        [Scale(factors=(1.0, float(2**70)), operation=operator.add)],
        [from_callable(halve)],
        [Scale((2.0,)), Scale((3.0,)).named("scale-2"), MergeLinears().named("it's mine")],
        [MergeLinears().exclude("a", missing_ok=True).named("some")],
        [],
    ],
    ids=["two", "composed", "arguments", "function", "callable", "named", "limited and named", "none"],
)
def test_the_code_makes_the_same_stack(passes: list[Transformation]) -> None:
    session = Session(fx.symbolic_trace(Model()), (torch.ones(2, 4),), passes=passes)
    for p in passes:
        session.apply(p)
    again = made_again(session)
    assert [p.signature for p in again.applied] == [p.signature for p in session.applied]
    assert again.graph_module.code == session.graph_module.code


def test_what_is_left_out_is_written_too() -> None:
    passes = [MergeLinears(), ChangeTrueDivToMulByInverse()]
    session = Session(fx.symbolic_trace(Model()), (torch.ones(2, 4),), passes=passes)
    session.apply("change-true-div-to-mul-by-inverse")
    session.exclude("change-true-div-to-mul-by-inverse", "truediv")
    assert ".exclude('truediv'" in session.to_python()
    again = made_again(session)
    assert again.graph_module.code == session.graph_module.code == session.original.code


@pytest.mark.parametrize(
    "transformation",
    [
        Plain("x"),
        from_callable(lambda graph_module: None, name="a\nlambda'\""),
        Scale(operation=lambda a, b: a),
    ],
    ids=["plain", "lambda", "argument"],
)
def test_what_has_no_code_is_named_when_the_code_runs(transformation: Transformation) -> None:
    session = Session(fx.symbolic_trace(Model()), passes=[transformation])
    session.apply(transformation)
    with pytest.raises(NotImplementedError, match=r"missing_1: .*make"):
        made_again(session)


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_a_pattern_is_written_by_the_name_of_its_function() -> None:
    session = Session(fx.symbolic_trace(Model()), passes=[from_pattern(twice, twice, name="shift")])
    session.apply("shift")
    assert "from_pattern(twice, " in session.to_python().replace("test_session_code.", "")
