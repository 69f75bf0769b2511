"""Names of models are anybody's: they are text in the picture and data in the tables, never markup."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
import torch
from inspected import MulToAdd, Page
from torch import fx, nn
from torch.fx.passes.shape_prop import TensorMetadata

from fxlab import Session
from fxlab.notebook.inspector import Inspector
from fxlab.transformations.base import explanation

HOSTILE = [
    "<script>alert(1)</script>",
    "\"onload='alert(1)' x=\"",
    "]]><img src=x onerror=alert(1)>",
    "&amp;&lt;&#0;",
    "Größe 尺寸 🙂",
    "\u202egnp.exe",
    "a\x00b\x01c\x0bd\x1b[31m\ufffe",
    "line\none\r\ntwo\ttabs",
    "\ud800 half a character",
    "\\N\\l\\G{a|b}<port>",
    "%s {0} ${x}",
    "x" * 3_000,
    " ",
]
ELEMENTS = {
    "svg",
    "g",
    "path",
    "polygon",
    "polyline",
    "rect",
    "circle",
    "ellipse",
    "line",
    "text",
    "tspan",
    "title",
}


def inspected(name: str) -> Page:
    """Return a page that shows a model in which everything that is free text is this name.

    Paths of modules are given by ``nn_module_stack``: torch itself cannot write code for such targets.
    """

    class Leaf(nn.Linear):
        pass

    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(Leaf(3, 3), nn.ReLU())

        def forward(self, x):
            return self.inner(x) * x

    class Pass(MulToAdd):
        def __init__(self):
            self.argument = name

        def transform(self, graph_module):
            if "half" in name:
                raise ValueError(name)
            return super().transform(graph_module)

        def explain(self, graph_module):
            return explanation([("mul", True, name, "", 0), (name, False, name, "of-its-own", 1)])

    Pass.name, Pass.__doc__ = name, name
    traced = fx.symbolic_trace(Root())
    traced.meta["class_name"] = name
    for node in traced.graph.nodes:
        node.meta["tensor_meta"] = TensorMetadata(torch.Size([2, 3]), name, False, (3, 1), None, False, {})
        node.meta["stack_trace"] = f'File "{name}", line 1, in {name}\n    {name}'
        if node.op == "call_module":
            inside = f"{name}.{node.name}"
            node.meta["nn_module_stack"] = {name: (name, name), inside: (inside, name)}
    session = Session(traced, (torch.ones(2, 3),), passes=[Pass()])
    return Page(Inspector(session))


@pytest.fixture(params=HOSTILE, ids=lambda name: ascii(name[:10]))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def hostile(name: str) -> Page:
    return inspected(name)


def test_the_picture_is_well_formed_and_holds_only_shapes_and_words(hostile: Page):
    hierarchy = hostile.inspector._graphs.data.hierarchy(hostile.number)
    groups = [path for path in hierarchy.groups if path and is_sendable(path)]
    for path in groups:
        hostile.inspector.open_group(path)
    assert hostile.inspector._shown_view["opened"] is None or len(groups) >= 2
    root = ET.fromstring(hostile.inspector.svg)
    for element in root.iter():
        assert element.tag.removeprefix("{http://www.w3.org/2000/svg}") in ELEMENTS
        assert not [attribute for attribute in element.attrib if attribute.lower().startswith("on")]


def test_all_that_is_shown_can_be_sent_and_stays_data(hostile: Page):
    (p,) = hostile.inspector.session.passes
    hostile.switches(p, True)
    hierarchy = hostile.inspector._graphs.data.hierarchy(hostile.number)
    for kind, names in (("node", hierarchy.position_of), ("group", hierarchy.groups)):
        for chosen in filter(is_sendable, names):
            sendable(hostile.details(chosen, kind))
    for trait in ("_shown_view", "_shown_passes", "_shown_tables", "_shown_stages", "_shown_status"):
        sendable(getattr(hostile.inspector, trait))
    nodes = {node.name for node in hostile.inspector.session.graph_module.graph.nodes}
    assert hostile.names() == nodes, "compressed JSON, whatever the names"


def test_colours_and_tables_by_a_hostile_dtype_can_be_sent(hostile: Page):
    hostile.asks({"type": "overlay", "graph": hostile.number, "name": "dtype"})
    assert hostile.error is None
    for trait in ("_shown_view", "_shown_tables", "_shown_status"):
        sendable(getattr(hostile.inspector, trait))
    hostile.inspector.overlay("dtype")
    root = ET.fromstring(hostile.inspector.svg)
    assert {element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in root.iter()} <= ELEMENTS


def test_a_view_of_it_can_be_exported(hostile: Page):
    hostile.asks({"type": "file", "suffix": "pdf"})
    assert hostile.error is None
    assert hostile.buffers[-1].startswith(b"%PDF-")


def sendable(value: object) -> None:
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def is_sendable(name: str) -> bool:
    """Return whether a page can send a name: no message holds half a character."""
    return "\ud800" not in name


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "Größe 尺寸 🙂"], indirect=True)
def test_a_name_is_shown_as_it_is(hostile: Page, name: str):
    (p,) = hostile.inspector.session.passes
    hostile.switches(p, True)
    card = hostile.card(p)
    assert name.lower() in card["name"].lower()
    assert {reason["reason"] for reason in card["reasons"]} == {name}
    assert hostile.data.tables["graphs"][hostile.number]["model"]["title"] == name
    (row,) = hostile.inspector._shown_tables["nodes"]["table"]["rows"]
    assert row[0] == "mul"
    assert "<script" not in hostile.inspector.svg


def test_half_a_character_in_an_error_is_shown_as_far_as_it_can_be():
    page = inspected("\ud800 half a character")
    (p,) = page.inspector.session.passes
    page.switches(p, True)
    assert "half a character" in page.card(p)["error"]["text"]
