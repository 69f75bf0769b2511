"""What an overlay looks like, and its legend."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest
from drawing_models import labels_of
from torch import fx, nn

from fxlab.drawing import View, build_hierarchy, render, to_dot
from fxlab.drawing.rendering.layout import lay_out
from fxlab.drawing.rendering.paint import paint
from fxlab.drawing.rendering.theme import CHANGED, HEAT, KINDS, PLAIN, heat_colours
from fxlab.overlays import Overlay

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def view() -> View:
    """A view of three nodes between the input and the output: 0, 1 and 2, of which the last is a group."""
    inner = nn.Sequential(nn.Tanh(), nn.ReLU())
    return View(build_hierarchy(fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), inner))))


def fills(view: View, overlay: Overlay) -> dict[str, str]:
    """Return by label what the boxes of a painted picture are filled with."""
    drawn = ET.fromstring(render(view, overlay=overlay))
    groups = {g.attrib["id"]: g for g in drawn.iter(f"{SVG}g") if "id" in g.attrib}
    labels = labels_of(view).items()
    return {label: groups[box].find(f"{SVG}path").attrib["fill"] for box, label in labels}


def legend_of(svg: str) -> list[str]:
    """Return the words that are in no box."""
    (graph,) = ET.fromstring(svg).findall(f"{SVG}g")
    return [text.text or "" for text in graph.findall(f"{SVG}text")]


def test_costs_are_painted_in_proportion_and_groups_with_their_sum(view: View):
    overlay = Overlay("flops", title="FLOPs", values={"_0": 100, "_1": 0, "_2_0": 20, "_2_1": 30})
    shown = fills(view, overlay)
    assert shown["0"] == HEAT[1]
    assert shown["1"] == HEAT[0]
    assert shown["2"] == heat_colours(0.5).fill
    assert shown["output"] == PLAIN.fill
    assert legend_of(render(view, overlay=overlay)) == ["FLOPs", "0", "100"]


def test_the_scale_of_the_legend_has_the_colours_and_words_of_its_ends(view: View):
    (graph,) = ET.fromstring(render(view, overlay=Overlay("f", title="F", values={"_0": 100.0}))).findall(
        f"{SVG}g"
    )
    (gradient,) = graph.iter(f"{SVG}linearGradient")
    assert [re.search("#[0-9a-f]{6}", stop.attrib["style"])[0] for stop in gradient] == [*HEAT]
    assert [s.get("fill") for s in graph if s.get("fill", "").startswith("url")] == [
        f"url(#{gradient.get('id')})"
    ]
    _, low, high = graph.findall(f"{SVG}text")
    assert float(low.attrib["x"]) == pytest.approx(float(gradient.attrib["x1"]), abs=2)
    end = float(high.attrib["x"]) + float(high.attrib["textLength"])
    assert end == pytest.approx(float(gradient.attrib["x2"]), abs=2)


def test_errors_are_painted_by_their_order_of_magnitude(view: View):
    overlay = Overlay(
        "e", title="Error", values={"_0": 1e-9, "_1": 1e-3, "_2_0": 1e-6, "input_1": 0.0}, combine="max"
    )
    shown = fills(view, overlay)
    assert shown["0"] == heat_colours(0.12).fill
    assert shown["2"] == heat_colours(0.56).fill
    assert shown["1"] == HEAT[1]
    assert legend_of(render(view, overlay=overlay)) == ["Error", "0", "1.00e-03"]


def test_negative_numbers_are_painted_from_the_lowest_to_the_highest(view: View):
    shown = fills(view, Overlay("x", title="x", values={"_0": -2.0, "_1": 2.0, "_2_0": 0.0}))
    assert [shown[name] for name in ("0", "2", "1")] == [heat_colours(level).fill for level in (0, 0.5, 1)]


def test_infinite_values_are_the_highest_and_no_scale(view: View):
    overlay = Overlay("x", title="x", values={"_0": math.inf, "_1": 1.0, "_2_0": 2.0}, combine="max")
    assert fills(view, overlay)["0"] == HEAT[1]
    assert legend_of(render(view, overlay=overlay))[1:] == ["1", "2"]


def test_where_only_infinity_is_beside_one_value_it_ends_the_scale(view: View):
    for combine in ("sum", "max"):
        overlay = Overlay("x", title="x", values={"_0": math.inf, "_1": 0.0}, combine=combine)
        assert [fills(view, overlay)[name] for name in ("1", "0")] == [HEAT[0], HEAT[1]]
        assert legend_of(render(view, overlay=overlay))[1:] == ["0", "∞"]


def test_words_are_kinds_the_most_frequent_first(view: View):
    overlay = Overlay("dtype", title="Dtype", values={"_0": "int64", "_1": "float32", "_2_0": "float32"})
    shown = fills(view, overlay)
    assert (shown["1"], shown["2"], shown["0"]) == (KINDS[0].fill, KINDS[0].fill, KINDS[1].fill)
    assert legend_of(render(view, overlay=overlay)) == ["Dtype", "float32", "int64"]


def test_more_kinds_than_colours_are_others():
    layers = [nn.ReLU() for _ in range(len(KINDS) + 2)]
    view = View(build_hierarchy(fx.symbolic_trace(nn.Sequential(nn.ModuleList(layers)[0], *layers[1:]))))
    leaves = [leaf.name for leaf in view.hierarchy.leaves]
    overlay = Overlay("x", title="x", values={name: f"kind {i:02}" for i, name in enumerate(leaves)})
    words = [words for _, words in paint(view, overlay).legend.kinds]
    assert words == [*(f"kind {i:02}" for i in range(len(KINDS) - 1)), "others"]


def test_what_is_changed_keeps_its_border(view: View):
    overlay = Overlay("flops", title="FLOPs", values={"_0": 1.0})
    svg = render(view, marks={"_0": ["pass"], "_1": ["pass"]}, overlay=overlay)
    (box,) = (box for box, label in labels_of(view).items() if label == "0")
    shape = ET.fromstring(svg).find(f".//{SVG}g[@id='{box}']/{SVG}path")
    assert (shape.attrib["fill"], shape.attrib["stroke"]) == (HEAT[1], CHANGED)


def test_a_painted_picture_is_the_picture_with_a_legend_below(view: View):
    overlay = Overlay("flops", title="FLOPs", values={"_0": 1.0})
    plain, painted = (ET.fromstring(render(view, overlay=one)) for one in (None, overlay))
    ids = [{g.get("id") for g in drawn.iter(f"{SVG}g")} for drawn in (plain, painted)]
    assert ids[0] == ids[1]
    assert float(painted.get("height")) > float(plain.get("height"))


@pytest.mark.parametrize("title", ["<b>&\"'", "x" * 400, "\x00\N{RIGHT-TO-LEFT OVERRIDE}", ""])
def test_titles_and_kinds_are_words_and_never_markup(view: View, title: str):
    overlay = Overlay("x", title=title, values={"_0": title or "-", "_1": "b"})
    assert all(len(words) <= 30 for words in legend_of(render(view, overlay=overlay)))
    assert lay_out(to_dot(view, overlay=overlay), "svg")


def test_dot_has_the_colours_and_the_legend_and_titles_of_groups_stay_on_top(view: View):
    opened = view.open("2")
    source = to_dot(opened, overlay=Overlay("flops", title="FLOPs", values={"_0": 1.0, "_2_0": 2.0}))
    assert f'fillcolor="{HEAT[1]}"' in source
    assert source.count("dashed") == 4, "what is not painted"
    assert "FLOPs" in source
    assert "FLOPs" not in to_dot(opened)
    drawn = ET.fromstring(lay_out(source, "svg"))
    (cluster,) = (g for g in drawn.iter(f"{SVG}g") if "cluster" in g.get("class", "").split())
    ys = [float(text.attrib["y"]) for text in cluster.iter(f"{SVG}text")]
    below = [float(text.attrib["y"]) for text in drawn.iter(f"{SVG}text") if text.text == "Tanh"]
    assert max(ys) < min(below)
