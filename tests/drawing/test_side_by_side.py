"""Several views in one DOT file."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from torch import fx, nn

from fxlab.drawing import View, build_hierarchy
from fxlab.drawing.rendering.dot import Side, side_by_side
from fxlab.drawing.rendering.layout import lay_out
from fxlab.drawing.rendering.theme import HEAT, heat_colours
from fxlab.overlays import Overlay

SVG = "{http://www.w3.org/2000/svg}"


def view_of(*layers: nn.Module) -> View:
    return View(build_hierarchy(fx.symbolic_trace(nn.Sequential(*layers))))


@pytest.fixture(scope="module")
def small() -> View:
    return view_of(nn.Linear(2, 2))


@pytest.fixture(scope="module")
def large() -> View:
    return view_of(nn.Linear(2, 2), nn.ReLU(), nn.Tanh(), nn.Sequential(nn.Linear(2, 2), nn.ReLU())).open("3")


def places(source: str) -> dict[str, tuple[float, float]]:
    """Return where words are in the laid out graph."""
    drawn = ET.fromstring(lay_out(source, "svg"))
    texts = [text for text in drawn.iter(f"{SVG}text") if text.text]
    return {str(text.text): (float(text.attrib["x"]), float(text.attrib["y"])) for text in texts}


@pytest.mark.parametrize("order", ["small first", "large first"])
def test_views_stand_in_their_order_with_headings_at_one_height(small: View, large: View, order: str):
    sides = [Side("one", small, {}), Side("other", large, {})]
    found = places(side_by_side(sides if order == "small first" else sides[::-1]))
    (one, top), (other, other_top) = found["one"], found["other"]
    assert (one < other) == (order == "small first")
    assert top == pytest.approx(other_top, abs=0.02)
    assert top < min(y for words, (_, y) in found.items() if words not in ("one", "other"))


def test_each_view_is_laid_out_as_it_is_alone(small: View, large: View):
    def extent(source: str, word: str, other: str) -> float:
        found = places(source)
        return found[other][1] - found[word][1]

    alone = side_by_side([Side("other", large, {})])
    beside = side_by_side([Side("one", small, {}), Side("other", large, {})])
    assert extent(beside, "other", "Tanh") == pytest.approx(extent(alone, "other", "Tanh"), abs=0.1)


def test_ids_are_unique_and_edges_stay_on_their_side(large: View):
    source = side_by_side([Side("a", large, {}), Side("b", large, {})])
    drawn = ET.fromstring(lay_out(source, "svg"))
    ids = [element.attrib["id"] for element in drawn.iter() if "id" in element.attrib]
    assert len(ids) == len({*ids})
    edges = [edge.find(f"{SVG}title").text for edge in drawn.iter(f"{SVG}g") if edge.get("class") == "edge"]
    assert len(edges) == 2 * len(large.edges)
    for edge in edges:
        source, target = edge.split("->")
        assert source.split("-")[:2] == target.split("-")[:2]


def test_overlays_are_painted_on_one_scale(small: View):
    overlays = [
        Overlay("flops", title="FLOPs", values={"_0": 50.0}),
        Overlay("flops", title="FLOPs", values={"_0": 100.0}),
    ]
    sides = [Side("one", small, {}), Side("other", small, {})]
    first, second = side_by_side(sides, overlays).split("subgraph")[1:]
    assert heat_colours(0.5).fill in first
    assert heat_colours(1.0).fill in second
    source = side_by_side(sides, overlays)
    assert source.count("FLOPs") == 1, "one legend"
    found = places(source)
    assert found["FLOPs"][1] > max(y for words, (_, y) in found.items() if words in ("0", "output"))
    assert HEAT[1] not in side_by_side(sides)


@pytest.mark.parametrize("name", ["<b>&\"'", "x" * 400, "\x00\N{RIGHT-TO-LEFT OVERRIDE}", ""])
def test_headings_are_words_and_never_markup(small: View, name: str):
    assert lay_out(side_by_side([Side(name, small, {}), Side(name, small, {})]), "svg")
