"""Values by which a graph is coloured."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest
import torch
from torch import fx, nn

from fxlab import MergeLinears, compare_nodes, profile
from fxlab.overlays import SOURCES, Overlay, Subject, from_table, source


@pytest.fixture
def subject() -> Subject:
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.a(x), self.b(x)], -1).relu()

    original = fx.symbolic_trace(Model())
    merged = MergeLinears()(fx.symbolic_trace(original))
    return Subject(merged, original, (torch.randn(3, 4),))


def test_every_overlay_has_values_of_nodes(subject: Subject) -> None:
    names = {node.name for node in subject.graph_module.graph.nodes}
    for known in SOURCES:
        overlay = known.overlay(subject)
        assert set(overlay.values) <= names
        assert (overlay.name, overlay.title) == (known.name, known.title)
        assert known.name == "dtype" or overlay.values


def test_costs_and_errors_are_those_of_the_tables(subject: Subject) -> None:
    table = profile(subject.graph_module, subject.inputs)
    assert source("flops").overlay(subject).values == table["flops"].to_dict()
    assert source("parameters").overlay(subject).of(table.index) == table["parameters"].sum()
    errors = compare_nodes(subject.original, subject.graph_module, subject.inputs)
    assert source("output-error").overlay(subject).values == errors["accumulated"].to_dict()
    assert source("output-error").overlay(subject).of(errors.index) == errors["accumulated"].max()


def test_the_model_runs_once_for_all_costs(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    source("time").overlay(subject)
    monkeypatch.setattr(fx.Interpreter, "run", None)
    source("memory").overlay(subject)


def test_dtypes_are_words(subject: Subject) -> None:
    for node in subject.graph_module.graph.nodes:
        node.meta["val"] = torch.empty(2, dtype=torch.bfloat16 if node.name == "relu" else torch.float32)
    overlay = source("dtype").overlay(subject)
    assert overlay.of(["relu"]) == "bfloat16"
    assert overlay.of(["relu", "cat"]) == "mixed"


def test_what_must_run_needs_inputs(subject: Subject) -> None:
    with pytest.raises(ValueError, match="no inputs"):
        source("time").overlay(Subject(subject.graph_module, subject.original))


@pytest.mark.parametrize(
    ("combine", "values", "expected"),
    [
        ("sum", {"a": 1.0, "b": 2.0}, 3.0),
        ("max", {"a": 1.0, "b": 2.0}, 2.0),
        ("max", {"a": 1.0, "b": math.inf}, math.inf),
        ("sum", {"b": 2.0}, 2.0),
        ("sum", {}, None),
        ("sum", {"a": "x", "b": "x"}, "x"),
        ("max", {"a": "x", "b": "y"}, "mixed"),
    ],
)
def test_a_group_has_the_combined_value_of_its_nodes(
    combine: Any, values: dict[str, Any], expected: float | str | None
) -> None:
    assert Overlay("n", "N", values, combine).of(["a", "b", "c"]) == expected


def test_a_table_gives_an_overlay_for_each_column() -> None:
    frame = pd.DataFrame({"n": [1, None], "w": ["x", "y"], 3: [True, False]}, index=["a", "b"])
    number, word, flag = from_table(frame)
    assert (number.title, number.values) == ("n", {"a": 1.0})
    assert word.values == {"a": "x", "b": "y"}
    assert (flag.name, flag.values) == ("3", {"a": 1.0, "b": 0.0})
    (only,) = from_table(pd.Series([1.5], index=["a"]))
    assert only.title == "value"


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="got a list"):
        from_table([1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'mean'"):
        Overlay("n", "N", {}, "mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="There are: output-error"):
        source("nonsense")
