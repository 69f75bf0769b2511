import xml.etree.ElementTree as ET

import pytest
import torch
from drawing_models import Bert, Convolutions, Llama
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn

from fxlab.drawing import View, build_hierarchy, render, to_digraph
from fxlab.drawing.hierarchy.hierarchy import Group
from fxlab.drawing.rendering.box import make_boxes
from fxlab.drawing.rendering.dot import outline, write_digraph
from fxlab.drawing.rendering.layout import lay_out
from fxlab.drawing.rendering.svg import write_svg
from fxlab.drawing.rendering.typography import has_known_width, printable, text_width

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
    allowed = {"svg", "g", "path", "polygon", "rect", "text", "title"}
    ids = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= allowed
    assert len(ids) == len(set(ids))
    assert not [a for e in root.iter() for a in e.attrib if a.lower().startswith("on") or "href" in a]
    assert all(set(i) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for i in ids)
    return root


@pytest.mark.parametrize("name", HOSTILE, ids=lambda n: repr(n[:20]))
def test_hostile_names_are_shown_as_text(name):
    hierarchy = build_hierarchy(named_graph(name))
    view = View(hierarchy, frozenset(hierarchy.groups) - {""})
    picture = render(view)
    root = check_is_safe(picture.svg)
    labels = [info.label for info in picture.boxes.values()]
    assert name in labels
    if name.strip() and len(name) < 30 and printable(name) == name:
        assert name in ["".join(t.itertext()) for t in root.iter(f"{SVG}text")]
    assert len(picture.svg) < 20_000


@given(st.text(st.characters(), max_size=60))
@settings(max_examples=40, deadline=None)
def test_any_text_gives_well_formed_svg(name):
    hierarchy = build_hierarchy(named_graph(name))
    check_is_safe(render(View(hierarchy)).svg)
    check_is_safe(render(View(hierarchy, frozenset(hierarchy.groups) - {""})).svg)


@given(st.text())
def test_printable_text_survives_xml(text):
    element = ET.Element("text")
    element.text = printable(text)
    assert ET.fromstring(ET.tostring(element, encoding="unicode")).text in (printable(text), None)


@pytest.mark.parametrize("model", [Bert(), Llama(), Convolutions()], ids=lambda m: type(m).__name__)
def test_every_visible_thing_is_an_element_that_the_picture_explains(model):
    hierarchy = build_hierarchy(fx.symbolic_trace(model))
    view = View.default(hierarchy, budget=80)
    picture = render(view)
    root = check_is_safe(picture.svg)
    ids = {e.attrib["id"] for e in root.iter() if "id" in e.attrib}
    assert ids == set(picture.boxes) | set(picture.edges)
    assert {box.id for box in view.boxes} | {g.id for g in view.clusters} <= set(picture.boxes)
    for edge in picture.edges.values():
        assert {edge.source, edge.target} <= set(picture.boxes)


def test_classes_say_what_a_box_is():
    hierarchy = build_hierarchy(fx.symbolic_trace(Bert()))
    classes = classes_by_id(render(View(hierarchy).open("encoder")).svg)
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
    picture = render(View(hierarchy), marks={**{name: ["b"] for name in softmaxes}, "tanh": ["a", "b"]})
    assert picture.signatures == ("b", "a")
    encoder = picture.boxes[hierarchy.groups["encoder"].id]
    assert (encoder.changed, encoder.marks) == (4, (0,))
    assert "4 changed" in picture.svg
    classes = classes_by_id(picture.svg)
    tanh = next(leaf for leaf in hierarchy.leaves if leaf.name == "tanh")
    assert {"fx-changed", "fx-mark-0", "fx-mark-1"} <= classes[tanh.id]
    pooler = next(leaf for leaf in hierarchy.leaves if leaf.name == "pooler")
    assert "fx-changed" not in classes[pooler.id]


def test_chips_name_their_source_and_lead_to_it():
    hierarchy = build_hierarchy(fx.symbolic_trace(Llama(layers=8)))
    view = View(hierarchy).open("layers.[0-7]")
    picture = render(view)
    chips = [info for info in picture.boxes.values() if info.kind == "chip"]
    assert {chip.label for chip in chips} >= {"cos", "sin", "mask"}
    for chip in chips:
        assert chip.refers_to == view.box_of[chip.label]
        assert chip.belongs_to in picture.boxes


def test_the_same_view_gives_the_same_svg_and_ids_survive_a_change_of_the_graph():
    gm = fx.symbolic_trace(Bert())
    first = render(View.default(build_hierarchy(gm)))
    assert first.svg == render(View.default(build_hierarchy(fx.symbolic_trace(Bert())))).svg
    with gm.graph.inserting_before(next(n for n in gm.graph.nodes if n.name == "tanh")):
        gm.graph.call_function(torch.neg, (next(iter(gm.graph.nodes)),))
    assert set(first.boxes) < set(render(View.default(build_hierarchy(gm))).boxes)


def test_labels_tell_class_arguments_shapes_and_counts():
    gm = fx.symbolic_trace(Convolutions())
    for node in gm.graph.nodes:
        node.meta["val"] = torch.empty(2, 3, device="meta")
    hierarchy = build_hierarchy(gm)
    boxes = render(View(hierarchy).open("features")).boxes
    lines = {info.label: info.details for info in boxes.values()}
    assert lines["features.0"] == ("Conv2d 3→8 k7 s2", "2×3 f32")  # noqa: RUF001
    assert lines["classifier"][0] == "Linear 16→10"
    assert lines["features"][0] == "Sequential"
    assert "params" in lines["features"][1]


def test_texts_fit_their_boxes():
    picture = render(View.default(build_hierarchy(fx.symbolic_trace(Llama(layers=8)))))
    for group in ET.fromstring(picture.svg).iter(f"{SVG}g"):
        shapes = [r for r in group.findall(f"{SVG}rect") if r.attrib["class"] == "fx-shape"]
        if not shapes:
            continue
        left, width = float(shapes[0].attrib["x"]), float(shapes[0].attrib["width"])
        for text in group.findall(f"{SVG}text"):
            assert has_known_width(text.text)
            length, x = float(text.attrib["textLength"]), float(text.attrib["x"])
            start = x - length / 2 if text.attrib["text-anchor"] == "middle" else x
            assert left <= start
            assert start + length <= left + width


def test_layout_does_not_depend_on_installed_fonts(monkeypatch, tmp_path):
    from fxlab.drawing.rendering import layout

    view = View.default(build_hierarchy(fx.symbolic_trace(Bert())))
    here = render(view).svg
    monkeypatch.setenv("FONTCONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(layout, "_process", layout.LayoutProcess())
    monkeypatch.setattr(layout, "_cache", layout._Cache(0))
    assert render(view).svg == here
    layout._process.stop()


def test_widths_are_the_fonts_metrics():
    assert text_width("iW", 1000) == 222 + 944
    assert text_width("漢", 10) > text_width("a", 10)


def test_marks_of_the_wrong_type_are_refused():
    view = View(build_hierarchy(fx.symbolic_trace(Bert())))
    with pytest.raises(TypeError, match="marks expected a mapping"):
        to_digraph(view, marks=["tanh"])
    with pytest.raises(TypeError, match="list of signatures"):
        render(view, marks={"tanh": "signature"})
    with pytest.raises(TypeError, match="expected a View"):
        render("view")


@pytest.mark.parametrize(
    "model", [Bert(layers=2), Llama(layers=2), Convolutions()], ids=lambda m: type(m).__name__
)
def test_a_view_is_laid_out_without_words_as_it_is_with_them(model):
    view = View.default(build_hierarchy(fx.symbolic_trace(model)))
    marks = {leaf.name: ("a",) for leaf in view.hierarchy.leaves[::3]}
    while True:
        boxes, edges = make_boxes(view, marks, ("a",)), render(view).edges
        without, with_words = outline(view, boxes), write_digraph(view, boxes).source
        assert len(without) < len(with_words)
        pictures = [write_svg(lay_out(dot), boxes, edges) for dot in (without, with_words)]
        assert pictures[0] == pictures[1]
        closed = [box.path for box in view.boxes if isinstance(box, Group)]
        if not closed:
            break
        view = view.open(closed[0])
