"""What the kernel says of a node or a group that a page does not know."""

from __future__ import annotations

import pytest
from inspected import FUSE, MERGE, MUL_TO_ADD, Page
from torch import fx

from fxlab.drawing import build_hierarchy
from fxlab.view_model.details import Describer


def test_a_node_has_its_arguments_parameters_and_what_passes_say_of_it(page: Page):
    details = page.details("head_query")
    assert details["arguments"] == [{"label": "0", "tokens": [{"node": "mean"}]}]
    assert details["parameters"] == [
        {"name": "weight", "shape": "(5, 4)", "dtype": "torch.float32", "elements": 20, "kind": "parameter"},
        {"name": "bias", "shape": "(5)", "dtype": "torch.float32", "elements": 5, "kind": "parameter"},
    ]
    (candidate,) = (row for row in details["candidates"] if row["signature"] == MERGE.signature)
    assert candidate["matched"]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (lambda x: (slice(1, None), slice(None, x, 2), ...), "(1:, :x:2, …)"),
        (lambda x: {"a": x, "b": [None, x]}, "{'a': x, 'b': [None, x]}"),
        (lambda x: [[7] * 500], "[[" + "7, " * 149 + "…"),
    ],
)
def test_an_argument_is_written_as_python_writes_it(argument, words: str):
    graph = fx.Graph()
    node = graph.call_function(print, (argument(graph.placeholder("x")),))
    graph.output(node)
    hierarchy = build_hierarchy(fx.GraphModule({}, graph))
    (written,) = Describer(hierarchy, {}).node(node)["arguments"]
    assert "".join(text for token in written["tokens"] for text in token.values()) == words


def test_a_group_has_what_it_holds(page: Page):
    details = page.details("head", "group")
    assert {"name": "Linear", "count": 2} in details["contents"]
    assert {"label": "Parameters", "value": "50", "code": False} in details["fields"]


def test_what_was_said_before_a_pass_is_not_said_after_it(page: Page):
    offered = {row["signature"] for row in page.details("stem_norm")["candidates"]}
    assert FUSE.signature in offered
    assert page.details("mul")["arguments"]
    page.switches(MUL_TO_ADD, True)
    page.switches(MERGE, True)
    (reads, _) = page.details("mul")["arguments"]
    assert reads["tokens"] != [{"node": "head_query"}]
    assert page.details("query_key_merged")["rewrites"][0]["signature"] == MERGE.signature


def test_a_late_question_about_a_stage_that_is_gone_is_dropped(page: Page):
    page.switches(MERGE, True)
    gone = page.number
    page.switches(MERGE, False)
    message = {"type": "details", "graph": gone, "kind": "node", "name": "mul"}
    assert page.asks(message) is None
    assert page.error is None


@pytest.mark.parametrize("graph", [-1, 99, 10**30])
def test_a_graph_that_there_is_not_says_so(page: Page, graph: int):
    for message in (
        {"type": "details", "graph": graph, "kind": "group", "name": "head"},
        {"type": "rest", "graph": graph},
        {"type": "overlay", "graph": graph, "name": "flops"},
    ):
        assert page.asks(message) is None
        assert f"no graph {graph}" in page.error["text"]


def test_a_group_of_a_preview_is_described_without_what_would_be_gone(page: Page):
    page.sends({"type": "preview", "signature": FUSE.signature})
    assert "stem_norm" in page.names()
    said = page.details("stem", "group")
    assert [row["name"] for row in said["contents"]] == ["Conv2d", "mean"]
    assert {field["label"]: field["value"] for field in said["fields"]}["Parameters"] == "112"
    page.sends({"type": "end-preview"})
    said = page.details("stem", "group")
    assert [row["name"] for row in said["contents"]] == ["Conv2d", "BatchNorm2d", "mean"]
