"""Rewrites of a pass one by one: which nodes each has changed, and a pass that is applied up to one."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

import fxlab
from fxlab import ChangeTrueDivToMulByInverse, FuseBatchNorm2dInConv2d, Session, TransformationError
from fxlab.transformations import RewritePass

DIVISIONS = "change-true-div-to-mul-by-inverse"


@pytest.fixture
def session() -> Session:
    traced = fx.symbolic_trace(lambda x: ((x / 2 + 1) / 4).relu() / 8)
    session = Session(traced, torch.randn(4), passes=[ChangeTrueDivToMulByInverse()])
    session.apply(DIVISIONS)
    return session


def excluded(session: Session) -> list[bool]:
    return [step.is_excluded for step in session.rewrites(DIVISIONS)]


def changed(session: Session) -> list[str]:
    return [
        str(name)
        for name in fxlab.rewriting.transformed_nodes(session.graph_module, original=session.original).index
    ]


def test_each_rewrite_has_its_lines_before_and_after(session: Session) -> None:
    first, second, _ = session.rewrites(DIVISIONS)
    assert first.before == {"truediv": "truediv = operator.truediv(x, 2)"}
    assert first.after == {"truediv": "truediv = operator.mul(x, 0.5)"}
    assert second.candidate == ("truediv_1",)


def test_modules_that_are_replaced_are_told_with_the_calls_of_them() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    session = Session(fx.symbolic_trace(model), passes=[FuseBatchNorm2dInConv2d()])
    session.apply("fuse-batch-norm2d-in-conv2d")
    (step,) = session.rewrites("fuse-batch-norm2d-in-conv2d")
    assert set(step.before.values()) == {"_0 = self.0(input_1)", "_1 = self.1(_0)"}
    assert step.after["_0"] == "_0 = self.0(input_1)"
    assert [line[:12] for line in step.modules] == ["- 0: Conv2d(", "- 1: BatchNo", "+ 0: Conv2d("]


def test_a_pass_is_applied_up_to_a_rewrite_and_on_again(session: Session) -> None:
    session.apply_up_to(DIVISIONS, 1)
    assert changed(session) == ["truediv"]
    assert excluded(session) == [False, True, True]
    session.apply_up_to(DIVISIONS, 2)
    assert changed(session) == ["truediv", "truediv_1"]
    session.undo()
    assert excluded(session) == [False, True, True]


def test_an_exclusion_before_the_last_rewrite_stays(session: Session) -> None:
    session.exclude(DIVISIONS, "truediv")
    session.apply_up_to(DIVISIONS, 2)
    assert excluded(session) == [True, False, True]
    session.apply_up_to(DIVISIONS, 3)
    assert excluded(session) == [True, False, False]


def test_wrong_numbers_and_passes_are_refused(session: Session) -> None:
    with pytest.raises(ValueError, match=r"expected 0 to 3 rewrites .*, got 4"):
        session.apply_up_to(DIVISIONS, 4)
    with pytest.raises(TypeError, match="count: expected an int, got True"):
        session.apply_up_to(DIVISIONS, True)
    session.revert(DIVISIONS)
    with pytest.raises(ValueError, match=f"{DIVISIONS} is off"):
        session.rewrites(DIVISIONS)


def test_bodies_are_rewritten_after_the_graph_that_calls_them() -> None:
    class Either(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x.sin() / 3, lambda x: x / 7, (x,)) / 2

    session = Session(torch.export.export(Either(), (torch.ones(3),)))
    session.apply(DIVISIONS)
    before = [step.candidate for step in session.rewrites(DIVISIONS)]
    session.apply_up_to(DIVISIONS, 1)
    assert [step.candidate for step in session.rewrites(DIVISIONS)] == before
    assert excluded(session) == [False, True, True]


class RaisesAtRelu(RewritePass[fx.Node]):
    def match(self, facts):
        yield from facts.graph_module.graph.nodes

    def rewrite(self, node, edit):
        if node.target == "relu":
            raise KeyError("no rule")
        return node


def raises_at_relu(graph_module):
    for node in graph_module.graph.nodes:
        if node.target == "relu":
            raise KeyError("no rule")


@pytest.mark.parametrize("pass_", [RaisesAtRelu(), fxlab.from_callable(raises_at_relu)])
def test_an_exception_names_the_node_at_hand(session: Session, pass_: fxlab.Transformation) -> None:
    with pytest.raises(TransformationError) as caught:
        session.apply(pass_)
    assert caught.value.node == "relu"
    assert caught.value.line is not None
    assert "raise KeyError" in caught.value.line.code
