import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from drawing_models import Bert, Convolutions, Llama, boxes_of, labels_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn

from fxlab.drawing import View, build_hierarchy, render
from fxlab.drawing.hierarchy.hierarchy import Group
from fxlab.drawing.rendering.box import CHIP_SIZE, LINE_SIZE, TITLE_HEIGHT, _words_of, make_boxes
from fxlab.drawing.rendering.dot import outline, write_dot
from fxlab.drawing.rendering.layout import lay_out
from fxlab.drawing.rendering.safe_svg import safe_svg
from fxlab.drawing.rendering.theme import (
    CHANGED,
    CHANGED_CLUSTER,
    CLUSTER,
    box_colours,
    has_known_width,
    printable,
    text_width,
)

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "quote \" and ' here",
    "<b>bold</b>",
    "</script><script>alert(1)</script>",
    "back\\slash \\N \\G \\l",
    "&amp; & &#x3c;",
    "two\nlines\ttab",
    "emoji 🙂🙃 and 漢字",
    "مرحبا بالعالم",
    "\u202eoverride\u2066",
    "nul \x00 bell \x07 \x9f \ud800 \uffff",
    "x" * 10_000,
    "",
    " ",
    "<<TABLE>>",
    "]]>",
]


def named_graph(name: str) -> fx.GraphModule:
    """Return a graph whose placeholder target, method, stack path and class all are one text."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(2):
        x = graph.call_method("neg", (x,))
        x.meta["nn_module_stack"] = {name: (name, f"module.{name}")}
    graph.output(x)
    gm = fx.GraphModule(nn.Module(), graph)
    # Later, as such names are no Python and the module's code could not be made.
    for node in gm.graph.nodes:
        if node.op != "output":
            node.target = name
    return gm


def check_is_safe(svg: str) -> ET.Element:
    root = ET.fromstring(svg)
    allowed = {"svg", "g", "path", "polygon", "text", "title"}
    ids = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= allowed
    assert len(ids) == len(set(ids))
    assert all(set(i) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for i in ids)
    attributes = {a for e in root.iter() for a in e.attrib} - {"xmlns"}
    assert attributes <= ATTRIBUTES
    assert "<!" not in svg
    assert "<?" not in svg
    return root


ATTRIBUTES = {
    "width", "height", "viewBox", "class", "id", "font-family", "transform", "d", "points", "fill", "stroke",
    "stroke-width", "stroke-dasharray", "paint-order", "x", "y", "text-anchor", "font-size", "font-weight",
    "textLength", "lengthAdjust",
}  # fmt: skip


def texts_of(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", HOSTILE, ids=lambda n: repr(n[:20]))
def test_hostile_names_are_shown_as_text(name):
    hierarchy = build_hierarchy(named_graph(name))
    view = View(hierarchy, frozenset(hierarchy.groups) - {""})
    svg = render(view)
    root = check_is_safe(svg)
    assert name in labels_of(view).values()
    if name.strip() and len(name) < 30 and printable(name) == name:
        assert name in [text.replace("\xa0", " ") for text in texts_of(root)]
    assert len(svg) < 20_000


@given(st.text(st.characters(), max_size=60))
@settings(max_examples=40)
def test_any_text_gives_well_formed_svg(name):
    hierarchy = build_hierarchy(named_graph(name))
    check_is_safe(render(View(hierarchy)))
    check_is_safe(render(View(hierarchy, frozenset(hierarchy.groups) - {""})))


@pytest.mark.parametrize("model", [Bert(), Llama(), Convolutions()], ids=lambda m: type(m).__name__)
def test_every_visible_thing_is_an_element_whose_tooltip_says_what_it_is(model):
    hierarchy = build_hierarchy(fx.symbolic_trace(model))
    view = View.default(hierarchy)
    root = check_is_safe(render(view))
    tooltips = {e.attrib["id"]: e.findtext(f"{SVG}title") for e in root.iter() if "id" in e.attrib}
    boxes, edges = labels_of(view), {f"edge-{edge.source.id}-{edge.target.id}" for edge in view.edges}
    assert tooltips.keys() == boxes.keys() | edges
    assert boxes.keys() == {box.id for box in view.boxes} | {group.id for group in view.clusters}
    for box, label in boxes.items():
        assert tooltips[box].startswith(label)
    for edge in view.edges:
        ends = tooltips[f"edge-{edge.source.id}-{edge.target.id}"]
        assert ends.startswith(f"{boxes[edge.source.id]} → {boxes[edge.target.id]}")


def test_titles_of_opened_groups_are_above_the_lines_that_cross_them():
    hierarchy = build_hierarchy(fx.symbolic_trace(Bert()))
    marks = {leaf.name: ("a",) for leaf in hierarchy.leaves if leaf.node.target == "softmax"}
    drawn = ET.fromstring(render(View(hierarchy).open("encoder"), marks=marks))
    places = {group: place for place, group in enumerate(drawn.iter(f"{SVG}g"))}
    (cluster,), (title,), edges = (
        drawn.findall(f".//{SVG}g[@class]{words}")
        for words in (
            f"[@id='{hierarchy.groups['encoder'].id}']",
            "[@class='cluster-title']",
            "[@class='edge']",
        )
    )
    assert places[cluster] < min(map(places.get, edges)) <= max(map(places.get, edges)) < places[title]
    assert cluster.find(f"{SVG}text") is None
    assert cluster.findtext(f"{SVG}title") == title.findtext(f"{SVG}title") != ""
    text, fill = title.find(f"{SVG}text"), cluster.find(f"{SVG}path").attrib["fill"]
    assert (text.text, text.attrib["stroke"], text.attrib["paint-order"]) == ("encoder", fill, "stroke")
    *_, badge = title.findall(f"{SVG}text")
    assert (badge.text, badge.get("stroke")) == ("4 changed", None)


def test_classes_say_what_a_box_is():
    hierarchy = build_hierarchy(fx.symbolic_trace(Bert()))
    classes = classes_by_id(render(View(hierarchy).open("encoder")))
    of = {info: classes[box.id] for box in hierarchy.leaves for info in [box.name] if box.id in classes}
    assert "fx-placeholder" in of["input_ids"]
    assert {"fx-op", "fx-call_module"} <= of["embeddings"]
    assert "fx-call_function" in of["tanh"]
    assert "fx-output" in of["output"]
    assert {"cluster", "fx-group"} <= classes[hierarchy.groups["encoder"].id]
    assert "fx-repeat" in classes[hierarchy.groups["encoder.layer.[0-3]"].id]


def classes_by_id(svg: str) -> dict[str, set[str]]:
    return {
        e.attrib["id"]: set(e.attrib["class"].split()) for e in ET.fromstring(svg).iter() if "id" in e.attrib
    }


def test_marks_highlight_nodes_and_the_closed_groups_that_hold_them():
    hierarchy = build_hierarchy(fx.symbolic_trace(Bert()))
    softmaxes = [leaf.name for leaf in hierarchy.leaves if leaf.node.target == "softmax"]
    svg = render(View(hierarchy), marks={**{name: ["b"] for name in softmaxes}, "tanh": ["a", "b"]})
    assert "4 changed" in texts_of(ET.fromstring(svg))
    classes = classes_by_id(svg)
    encoder = classes[hierarchy.groups["encoder"].id]
    assert {word for word in encoder if word.startswith("fx-mark-")} == {"fx-mark-0"}
    tanh = next(leaf for leaf in hierarchy.leaves if leaf.name == "tanh")
    assert {"fx-changed", "fx-mark-0", "fx-mark-1"} <= classes[tanh.id]
    pooler = next(leaf for leaf in hierarchy.leaves if leaf.name == "pooler")
    assert "fx-changed" not in classes[pooler.id]
    assert [border_of(svg, leaf.id) for leaf in (tanh, pooler)] == [
        (CHANGED, "2.2"),
        (box_colours("fx-call_module").border, "1"),
    ]


def border_of(svg: str, box: str) -> tuple[str, str]:
    """Return the colour and width of the border of a box."""
    shape = ET.fromstring(svg).find(f".//{SVG}g[@id='{box}']/{SVG}path")
    return shape.attrib["stroke"], shape.attrib.get("stroke-width", "1")


def test_an_open_group_that_holds_changed_nodes_is_marked():
    hierarchy = build_hierarchy(fx.symbolic_trace(Bert()))
    view = View(hierarchy).open("encoder")
    encoder = hierarchy.groups["encoder"].id
    changed = next(leaf.name for leaf in hierarchy.leaves if leaf.node.target == "softmax")
    svg = render(view, marks={changed: ["a"]})
    assert border_of(svg, encoder) == (CHANGED_CLUSTER, "1")
    assert border_of(render(view), encoder) == (CLUSTER[0].border, "1")
    assert {"1 changed", "1 changed in 1 of 4"} <= set(texts_of(ET.fromstring(svg)))
    marks = {leaf.name: ["a"] for leaf in hierarchy.leaves if leaf.node.target == "softmax"}
    each = texts_of(ET.fromstring(render(view, marks=marks)))
    assert {"4 changed", "each 1 changed"} <= set(each)


def test_a_box_that_stands_for_several_blocks_has_two_borders():
    hierarchy = build_hierarchy(fx.symbolic_trace(Bert()))
    svg = render(View(hierarchy).open("encoder"))
    borders = {
        group.attrib["id"]: sum(path.get("stroke") != "none" for path in group.findall(f"{SVG}path"))
        for group in ET.fromstring(svg).iter(f"{SVG}g")
        if "node" in group.get("class", "").split()
    }
    repeated = hierarchy.groups["encoder.layer.[0-3]"].id
    assert borders.pop(repeated) == 2
    assert set(borders.values()) == {1}


def test_values_that_many_read_are_named_in_chips_above_the_title():
    hierarchy = build_hierarchy(fx.symbolic_trace(Llama(layers=8)))
    view = View(hierarchy).open("layers.[1-7]")
    root = ET.fromstring(render(view))
    for number in range(1, 8):
        layer = root.find(f".//{SVG}g[@id='{hierarchy.groups[f'layers.{number}'].id}']")
        *chips, title = layer.findall(f"{SVG}text")[:4]
        assert sorted(chip.text for chip in chips) == ["cos", "mask", "sin"]
        assert title.text == f"layers.{number}"
        assert max(float(chip.attrib["y"]) for chip in chips) < float(title.attrib["y"]) - TITLE_HEIGHT / 2
    (first,) = {edge.target.path for edge in view.edges if edge.source.id == boxes_of(view)["mask"]}
    assert first == "layers.0"


def test_the_same_view_gives_the_same_svg_and_ids_survive_a_change_of_the_graph():
    gm = fx.symbolic_trace(Bert())
    first = render(View.default(build_hierarchy(gm)))
    assert first == render(View.default(build_hierarchy(fx.symbolic_trace(Bert()))))
    with gm.graph.inserting_before(next(n for n in gm.graph.nodes if n.name == "tanh")):
        gm.graph.call_function(torch.neg, (next(iter(gm.graph.nodes)),))
    later = render(View.default(build_hierarchy(gm)))
    assert classes_by_id(first).keys() < classes_by_id(later).keys()


@pytest.mark.parametrize("opened", [[], ["layers.[0-7]"], ["layers.0.self_attn"]])
def test_texts_fit_their_boxes_and_do_not_meet(opened):
    hierarchy = build_hierarchy(fx.symbolic_trace(Llama(layers=8)))
    view = View.default(hierarchy)
    for path in opened:
        view = view.open(path)
    marks = {leaf.name: ("a",) for leaf in hierarchy.leaves[::3]}
    drawn = ET.fromstring(render(view, marks=marks))
    boxes = [
        group for group in drawn.iter(f"{SVG}g") if {"node", "cluster"} & set(group.get("class").split())
    ]
    titles = drawn.findall(f".//{SVG}g[@class='cluster-title']")
    clusters = [group for group in boxes if "cluster" in group.get("class")]
    assert len(titles) == len(clusters) >= len(opened)
    titled = dict(zip(clusters, titles, strict=True))
    for group in boxes:
        around = extent(group)
        lines: dict[str, list[tuple[float, float]]] = {}
        for text in titled.get(group, group).findall(f"{SVG}text"):
            assert has_known_width(text.text)
            length, x = float(text.attrib["textLength"]), float(text.attrib["x"])
            start = x - length / 2 if text.attrib["text-anchor"] == "middle" else x
            assert around[0] <= start
            assert start + length <= around[1]
            assert around[2] <= float(text.attrib["y"]) <= around[3]
            lines.setdefault(text.attrib["y"], []).append((start, start + length))
        for line in map(sorted, lines.values()):
            assert all(end < start for (_, end), (start, _) in pairwise(line))


def extent(group: ET.Element) -> tuple[float, float, float, float]:
    """Return the left, right, upper and lower end of a box or cluster."""
    shapes = [*group.findall(f"{SVG}path"), *group.findall(f"{SVG}polygon")]
    points = " ".join(shape.get("d") or shape.attrib["points"] for shape in shapes)
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", points)]
    xs, ys = numbers[::2], numbers[1::2]
    return min(xs), max(xs), min(ys), max(ys)


def test_a_picture_says_its_size_in_css_pixels():
    root = ET.fromstring(render(View.default(build_hierarchy(fx.symbolic_trace(Bert())))))
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
    texts = {text.text: float(text.attrib["font-size"]) for text in root.iter(f"{SVG}text")}
    assert texts["embeddings"] > texts["Embedding 50×16"] == LINE_SIZE  # noqa: RUF001


def test_what_graphviz_may_write_and_a_page_must_not_have_is_left_out():
    """Links, scripts, event handlers and unknown elements, whatever a version of Graphviz writes."""
    drawn = b"""<?xml version="1.0"?><!DOCTYPE svg><!-- secret --><svg width="9pt" height="9pt"
      viewBox="0.00 0.00 9.00 9.00" xmlns="http://www.w3.org/2000/svg"
      xmlns:xlink="http://www.w3.org/1999/xlink">
      <g id="graph0" class="graph"><title>secret</title><script>alert(1)</script>
      <g id="a" class="node"><a xlink:href="javascript:alert(1)"><text x="1" y="1">secret</text></a>
      <path d="M0,0L8,0" fill="red" onclick="alert(1)" style="secret"/>
      <text x="1" y="1" font-size="10.00">a &lt;b&gt;</text><image xlink:href="secret"/></g></g></svg>"""
    svg = safe_svg(drawn, {"a": "<i>tip</i>"})
    root = check_is_safe(svg)
    assert (root.attrib["width"], root.attrib["height"]) == ("9", "9")
    assert not re.search("secret|alert|href|graph0", svg)
    assert texts_of(root) == ["a <b>"]
    assert [title.text for title in root.iter(f"{SVG}title")] == ["<i>tip</i>"]


def test_layout_does_not_depend_on_installed_fonts(monkeypatch, tmp_path):
    from fxlab.drawing.rendering import layout

    view = View.default(build_hierarchy(fx.symbolic_trace(Bert())))
    here = render(view)
    monkeypatch.setenv("FONTCONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(layout, "_process", layout.LayoutProcess())
    monkeypatch.setattr(layout, "_KNOWN", {})
    assert render(view) == here
    layout._process.stop()


def test_widths_are_the_fonts_metrics():
    assert text_width("i W", 1000) == 222 + 278 + 944
    assert text_width("漢", 10) > text_width("a", 10)


@pytest.mark.parametrize(
    "model", [Bert(layers=2), Llama(layers=2), Convolutions()], ids=lambda m: type(m).__name__
)
def test_boxes_lie_in_an_outline_where_they_lie_with_words(model):
    view = View.default(build_hierarchy(fx.symbolic_trace(model)))
    marks = {leaf.name: ("a",) for leaf in view.hierarchy.leaves[::3]}
    while True:
        boxes = make_boxes(view, marks, ("a",))
        without, with_words = outline(view, boxes), write_dot(view, boxes)
        assert len(without) < len(with_words)
        places, labelled = places_of(without), places_of(with_words)
        assert places.keys() == labelled.keys() == boxes.keys()
        for box, place in places.items():
            assert place == pytest.approx(labelled[box], abs=0.02)
        closed = [box.path for box in view.boxes if isinstance(box, Group)]
        if not closed:
            break
        view = view.open(closed[0])


def places_of(dot: str) -> dict[str, tuple[float, float, float, float]]:
    groups = ET.fromstring(lay_out(dot)).iter(f"{SVG}g")
    return {
        group.attrib["id"]: extent(group)
        for group in groups
        if {"node", "cluster"} & set(group.get("class").split())
    }


def test_a_reference_is_as_wide_as_its_title_in_the_size_of_chips():
    shown = SimpleNamespace(title="attention", classes="node fx-op")
    for end, words in (("source", "attention"), ("target", "→ attention")):
        text, width = _words_of(SimpleNamespace(end=end), shown)
        assert text == words
        assert width == pytest.approx(text_width(words, CHIP_SIZE, bold=True) + 14, abs=1)
