"""What a page may have laid out by the kernel: outlines, and nothing that Graphviz would read files for."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from drawing_models import Bert
from inspected import Model, Page
from test_hostile_names import HOSTILE, inspected
from torch import fx, nn

from fxlab.drawing import View, build_hierarchy
from fxlab.drawing.rendering.box import make_boxes
from fxlab.drawing.rendering.dot import outline
from fxlab.notebook.page.outline import is_outline


def outlines(gm: fx.GraphModule) -> list[str]:
    """Return outlines with few groups open, and with all."""
    hierarchy = build_hierarchy(gm)
    views = View.default(hierarchy), View(hierarchy, frozenset(hierarchy.groups))
    return [outline(view, make_boxes(view, {}, ())) for view in views]


@pytest.mark.parametrize(
    "model", [Model(), Bert(layers=3), nn.Sequential(nn.ReLU())], ids=lambda m: type(m).__name__
)
def test_every_outline_is_one(model: nn.Module):
    for text in outlines(fx.symbolic_trace(model)):
        assert "->" in text
        assert is_outline(text)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:10]))
def test_no_name_of_a_model_is_in_its_outline(name: str):
    for text in outlines(inspected(name).inspector.session.original):
        assert is_outline(text)


BOX = '"x" [id="x" width="1.0000" height="0.5000"]'
CLUSTER = (
    'graph [id="g" labelloc="t" labeljust="l" margin="14" label=<<TABLE BORDER="0" CELLBORDER="0"'
    ' CELLSPACING="0" CELLPADDING="0" FIXEDSIZE="TRUE" WIDTH="40" HEIGHT="20">'
    '<TR><TD ALIGN="LEFT"> </TD></TR></TABLE>>]'
)


def outline_with(line: str) -> str:
    """Return an outline with one more line before its end."""
    text = outlines(fx.symbolic_trace(Model()))[0]
    return text.removesuffix("}") + line + "\n}"


@pytest.mark.parametrize("line", [BOX, CLUSTER, '"x" -> "y" [id="edge-x-y" penwidth="1.8"]'])
def test_the_lines_that_are_spoilt_below_are_right(line: str):
    assert is_outline(outline_with(line))


@pytest.mark.often(12)
@pytest.mark.parametrize(
    "line",
    [
        BOX.replace("]", ' image="/etc/passwd"]'),
        BOX.replace("]", ' image="1.5"]'),
        BOX.replace("]", ' shape="epsf" shapefile="a"]'),
        BOX.replace("]", ' URL="http"]'),
        BOX.replace("]", ' label="words"]'),
        BOX.replace('"1.0000"', '"1.0000\\"'),
        BOX.replace('"1.0000"', '"1e999"'),
        BOX.replace('"x"', '"x:y"'),
        BOX.replace('"x"', '"X Y"'),
        BOX.replace('"x"', f'"{"x" * 201}"'),
        BOX.replace('"x"', '""'),
        BOX + " // more",
        BOX + BOX,
        CLUSTER.replace("> <", ">words<"),
        CLUSTER.replace("> <", '><IMG SRC="a"/><'),
        CLUSTER.replace('BORDER="0"', 'HREF="A"', 1),
        CLUSTER.replace('margin="14"', 'margin="14" fontpath="/"'),
        'graph [fontpath="a"]',
        'graph [imagepath="a"]',
        'node [label="words"]',
        'node [image="1"]',
        'subgraph "cluster_x" { "y"',
        '"x" -> "y" [id="edge-x-y" label="1"]',
        "",
        "/* */",
    ],
)  # fmt: skip
def test_anything_else_is_refused(page: Page, line: str):
    text = outline_with(line)
    assert not is_outline(text)
    (answer, _) = page.sends({"type": "lay-out", "outline": text, "request": "1"})
    assert answer == {"type": "answer", "request": "1", "failed": True}
    assert "not of its own making" in page.error["text"]


@pytest.mark.parametrize("text", ["", "}", "digraph {\n}", 'graph [fontpath="a"]', "\0"])
def test_what_does_not_begin_as_an_outline_is_refused(text: str):
    assert not is_outline(text)


def test_an_outline_is_laid_out(page: Page):
    text = outlines(page.inspector.session.original)[0]
    answer, done = page.sends({"type": "lay-out", "outline": text, "request": "1"})
    places = {element.get("id") for element in ET.fromstring(answer["value"]).iter()}
    assert set(re.findall(r'id="([^"]+)"', text)) <= places
    assert done == {"type": "done"}
