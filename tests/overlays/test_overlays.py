"""Values by which a graph is coloured."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import fx, nn

from fxlab import MergeLinears, Session, compare_nodes, draw, profile, report, symbolic_trace
from fxlab.drawing import View, build_hierarchy
from fxlab.drawing.hierarchy.hierarchy import Group
from fxlab.drawing.rendering.paint import values_of
from fxlab.overlays import SOURCES, Overlay, Subject, from_table, read_overlays, source


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
        if not known.is_made_of(subject.graph_module):
            continue
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
    assert Overlay("n", values, combine=combine).of(["a", "b", "c"]) == expected


def test_a_table_gives_an_overlay_for_each_column() -> None:
    frame = pd.DataFrame({"n": [1, None], "w": ["x", "y"], 3: [True, False]}, index=["a", "b"])
    number, word, flag = from_table(frame)
    assert (number.title, number.values) == ("n", {"a": 1.0})
    assert word.values == {"a": "x", "b": "y"}
    assert (flag.name, flag.values) == ("3", {"a": 1.0, "b": 0.0})
    (only,) = from_table(pd.Series([1.5], index=["a"]))
    assert only.title == "value"
    mixed = pd.DataFrame({"shape": [(1, 2), None], "n": [Fraction(1, 2), pd.NA]}, index=["a", "b"])
    assert [(one.name, one.values) for one in from_table(mixed)] == [("n", {"a": 0.5})]


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2))
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.fixture
def view() -> View:
    return View(build_hierarchy(symbolic_trace(Stack(), torch.ones(1, 4))))


def shown(view: View, overlay: Overlay) -> dict[str, object]:
    """Return the value of each box and cluster by its title."""
    found = values_of(view, overlay.on(view.hierarchy.leaves[0].node.graph.owning_module))
    items = [*view.clusters, *view.boxes]
    return {item.path if isinstance(item, Group) else item.name: found.get(item.id) for item in items}


def test_a_module_has_a_value_of_its_own_and_groups_around_it_those_of_modules(view: View) -> None:
    overlay = Overlay("time", {"blocks.0": 3.0, "blocks.1": 5.0, "blocks.1.0": 1.0, "head": 2.0})
    run = next(path for path in view.hierarchy.groups if "[" in path)
    assert shown(view, overlay) == {"x": None, run: 8.0, "head": 2.0, "output": None}
    opened = shown(view.open(run).open("blocks.1"), overlay)
    assert (opened["blocks.0"], opened["blocks.1"]) == (3.0, 5.0)
    assert [value for name, value in opened.items() if name.startswith("blocks_1")] == [1.0, None]


def test_a_category_holds_for_all_in_a_module(view: View) -> None:
    overlay = Overlay("partition", {"blocks": 0, "blocks.1.1": 1, "head": 1}, kind="category")
    run = next(path for path in view.hierarchy.groups if "[" in path)
    assert shown(view, overlay) == {"x": None, run: "mixed", "head": "1", "output": None}
    assert shown(view.open(run), overlay)["blocks.0"] == "0"


def test_texts_and_labels_are_written_on_boxes(view: View) -> None:
    gm = view.hierarchy.leaves[0].node.graph.owning_module
    drawn = draw(gm, overlay=Overlay("note", {"head": "spills <b>"}, kind="text"))
    assert "spills" in drawn.svg
    assert "<b>" not in drawn.svg
    assert "spills" not in draw(gm).svg
    labelled = draw(gm, overlay=Overlay("time", {"head": 2.0}, labels={"head": "npu 3"}))
    assert "npu 3" in labelled.svg


def test_files_are_overlays(view: View, tmp_path: Path) -> None:
    gm = view.hierarchy.leaves[0].node.graph.owning_module
    table, mapping = tmp_path / "device.csv", tmp_path / "device.json"
    table.write_text("node,ms,backend\nhead,0.5,npu\nblocks.0,,cpu\n")
    ms, backend = read_overlays(table)
    assert (ms.values, backend.values) == ({"head": 0.5}, {"head": "npu", "blocks.0": "cpu"})
    mapping.write_text('{"part": {"values": {"blocks": 0}, "kind": "category"}, "ms": {"head": 1}}')
    assert [(o.name, o.kind, o.values) for o in read_overlays(mapping)] == [
        ("part", "category", {"blocks": "0"}),
        ("ms", "number", {"head": 1.0}),
    ]
    assert "coloured by ms" in repr(draw(gm, overlay=ms))
    table.write_text("node,ms\n0.10,1\n0.1,2\nNA,3\n,4\n")
    assert read_overlays(table)[0].values == {"0.10": 1.0, "0.1": 2.0, "NA": 3.0}
    damaged = {"node,ms\nb,1\na,1\na,2\n": "'a' is there more than once", "node\na\n": "no column"}
    for text, words in damaged.items():
        table.write_text(text)
        with pytest.raises(ValueError, match=words):
            read_overlays(table)
    misspelt, unknown = {"values": {"x": 1}, "units": "s"}, {"values": {"x": [1]}, "kind": "color"}
    for text in ("[1]", '{"a": 1}', "{", json.dumps({"a": misspelt}), json.dumps({"a": unknown})):
        mapping.write_text(text)
        with pytest.raises(ValueError, match=r"device.json is no table of values"):
            read_overlays(mapping)
    with pytest.raises(ValueError, match="no value for any node"):
        draw(gm, overlay=Overlay("x", {"nowhere": 1.0}))


def test_a_report_shows_given_overlays_at_first(view: View, tmp_path: Path) -> None:
    gm = view.hierarchy.leaves[0].node.graph.owning_module
    given = [Overlay("ms", {"blocks.0": 1.0}), Overlay("part", {"blocks": 0}, kind="category")]
    text = report(Session(gm), path=tmp_path / "r.html", overlay=given, measure=False).read_text()
    written = json.loads(re.search(r'id="fxlab-session">(.*?)</script>', text)[1])
    assert written["colours"] == "ms"
    assert [one["name"] for one in written["data"]["overlays"]][-2:] == ["ms", "part"]
    assert written["tables"]["more"][-1]["name"] == "overlays"
    with pytest.raises(ValueError, match="no value for any node"):
        report(Session(gm), path=tmp_path / "r.html", overlay=Overlay("x", {"nowhere": 1}), measure=False)


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="values: expected a mapping"):
        Overlay("n", [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="values: expected numbers, got 'a'"):
        Overlay("n", {"x": "a"}, kind="number")
    for wrong in ([1], torch.ones(2), 10**400, 1j):
        with pytest.raises(TypeError, match="values: x: expected a number or a text, got"):
            Overlay("n", {"y": 1, "x": wrong})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="title: expected a text"):
        Overlay("n", {}, title=3)  # type: ignore[arg-type]
    rows = pd.MultiIndex.from_tuples([("a", "b")])
    with pytest.raises(ValueError, match=re.escape("paths of its modules, got \"('a', 'b')\"")):
        draw(fx.symbolic_trace(nn.ReLU()), overlay=pd.Series([1], index=rows))
    with pytest.raises(ValueError, match="'a' is there more than once"):
        from_table(pd.Series([1, 2], index=["a", "a"]))
    with pytest.raises(TypeError, match="got a list"):
        from_table([1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'mean'"):
        Overlay("n", {}, combine="mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="There are: output-error"):
        source("nonsense")
