import re
import xml.etree.ElementTree as ET

import pandas as pd
import pytest
import torch
from drawing_models import Bert
from torch import fx, nn

import fxlab
from fxlab import draw
from fxlab.drawing import Drawing, Group
from fxlab.overlays import Overlay

SHAPE = "4×2 f32"  # noqa: RUF001


@pytest.fixture(scope="module")
def gm() -> fx.GraphModule:
    return fx.symbolic_trace(Bert())


class Pass:
    signature = "a-signature"

    def get_transformed_nodes(self, gm):
        return [node for node in gm.graph.nodes if node.target == "softmax"]


def test_a_drawing_shows_itself(gm):
    drawing = draw(gm)
    assert isinstance(drawing, Drawing)
    shown = drawing._repr_mimebundle_()["image/svg+xml"]
    assert shown == drawing._repr_svg_()
    assert shown.startswith('<svg style="max-width: 100%;')
    assert shown.partition("xmlns")[2] == drawing.svg.partition("xmlns")[2]
    assert drawing.source.startswith("digraph")


def test_lines_lead_to_the_right_and_say_shapes(gm):
    down, right = draw(gm), draw(gm, direction="right", shapes=True)
    sizes = [ET.fromstring(drawing.svg).attrib for drawing in (down, right)]
    assert [float(size["width"]) > float(size["height"]) for size in sizes] == [False, True]
    graph = fxlab.symbolic_trace(nn.Linear(2, 3), torch.ones(4, 2))
    assert SHAPE in draw(graph, shapes=True).open().svg
    assert draw(graph, shapes=True).source.count(f'label="{SHAPE}"') == 1
    assert draw(graph).source.count(f'label="{SHAPE}"') == 0
    with pytest.raises(ValueError, match='direction: expected "down" or "right", got \'up\''):
        draw(gm, direction="up")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x > 0],
        lambda x: (x, torch.nonzero(x[:, 0] > 0)),
        lambda x: torch.unique(x).sin(),
        lambda x: x.repeat_interleave(torch.tensor([1, 0, 2]), 0),
    ],
)
def test_results_whose_sizes_depend_on_data_are_drawn(function, tmp_path):
    session = fxlab.Session(function, torch.randn(3, 4))
    assert str(fxlab.draw(session))
    assert fxlab.report(session, path=tmp_path / "report.html", measure=False)


def test_lines_are_coloured_by_dtype_or_as_thick_as_their_bytes():
    class Halved(nn.Module):
        def forward(self, x, index):
            return x[index].half() * 2, x + 1

    graph = fxlab.symbolic_trace(Halved(), (torch.ones(64, 4), torch.tensor([0])))
    by_dtype = draw(graph, lines="dtype")
    edges = re.findall(r"-> .*edge-.*", by_dtype.source)
    colours = [re.search(r'color="(#\w+)"', edge) for edge in edges]
    assert len({found[1] for found in colours if found}) >= 3
    for words in ("Lines: dtype", "float32", "float16", "int64"):
        assert words in by_dtype.svg
    by_bytes = draw(graph, lines="bytes", overlay="dtype")
    edges = re.findall(r"-> .*edge-.*", by_bytes.source)
    widths = [float(found[-1]) for edge in edges if (found := re.findall(r'penwidth="([\d.]+)"', edge))]
    assert (min(widths), max(widths)) == (1.5, 5.0)
    assert "Lines: up to 1 KiB" in by_bytes.svg
    assert "Dtype" in by_bytes.svg
    with pytest.raises(ValueError, match='lines: expected "alike", "dtype" or "bytes", got \'thick\''):
        draw(graph, lines="thick")


@pytest.mark.parametrize(
    ("suffix", "beginning"),
    [(".svg", b"<svg"), (".png", b"\x89PNG"), (".pdf", b"%PDF"), (".dot", b"digraph")],
)
def test_save_writes_what_the_suffix_says(gm, tmp_path, suffix, beginning):
    file = draw(gm).save(tmp_path / f"graph{suffix}")
    assert file.read_bytes().startswith(beginning)


def test_save_refuses_other_suffixes(gm, tmp_path):
    with pytest.raises(ValueError, match=r"\.svg, \.png, \.pdf or \.dot"):
        draw(gm).save(tmp_path / "graph.gif")
    with pytest.raises(TypeError, match="path: expected a path, got 3"):
        draw(gm).save(3)
    with pytest.raises(FileNotFoundError, match="make it first"):
        draw(gm).save(tmp_path / "missing" / "graph.svg")


def test_a_graph_without_an_output_is_drawn_and_one_node_is_counted_in_the_singular():
    graph = fx.Graph()
    module = fx.GraphModule(nn.Module(), graph)
    assert repr(draw(module)) == "<Drawing: 0 nodes in 0 boxes>"
    graph.placeholder("x")
    assert repr(draw(module)) == "<Drawing: 1 node in 1 box>"


def test_highlighting_a_transformation_opens_the_groups_around_its_nodes(gm):
    drawing = draw(gm, highlight=[Pass()])
    assert drawing.svg.count("fx-changed") > 4
    assert {*sum(drawing.marks.values(), ())} == {"a-signature"}


@pytest.mark.parametrize("how", ["name", "node", "both"])
def test_names_and_nodes_can_be_highlighted(gm, how):
    tanh = next(node for node in gm.graph.nodes if node.name == "tanh")
    wanted = {"name": ["tanh"], "node": [tanh], "both": ["pooler", tanh]}[how]
    drawing = draw(gm, highlight=wanted)
    assert {*drawing.marks} == ({"tanh", "pooler"} if how == "both" else {"tanh"})
    assert drawing.svg.count("fx-changed") == len(drawing.marks)


def test_a_group_of_a_highlighted_node_says_so_and_not_that_it_was_changed():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.ReLU())
    traced = fxlab.symbolic_trace(model, torch.ones(1, 2))
    svg = draw(traced, highlight=[[*traced.graph.nodes][1]], opened=[]).svg
    assert ">1 highlighted<" in svg
    assert "changed<" not in svg


def test_groups_can_be_opened_and_closed(gm):
    drawing = draw(gm, opened=["encoder.layer.2"])
    assert any(cluster.path == "encoder.layer.2" for cluster in drawing.view.clusters)
    assert not drawing.close("encoder").view.clusters
    assert drawing.open("encoder.layer.0").view.opened > drawing.view.opened


def test_mistakes_are_named(gm):
    with pytest.raises(TypeError, match=r"graph: expected a torch.nn.Module, .* got the class Bert"):
        draw(Bert)
    with pytest.raises(TypeError, match="highlight: expected"):
        draw(gm, highlight=3)
    with pytest.raises(ValueError, match="no such node"):
        draw(gm, highlight=["nope"])
    with pytest.raises(TypeError, match="expected a list of group paths"):
        draw(gm, opened="encoder")
    with pytest.raises(ValueError, match="no group"):
        draw(gm, opened=["nope"])


@pytest.fixture(scope="module")
def small() -> fx.GraphModule:
    return fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


def test_a_drawing_is_coloured_by_a_name_a_table_or_an_overlay(small):
    table = pd.DataFrame({"rank": [1, 2]}, index=["_0", "_1"])
    own = Overlay("rank", title="rank", values={"_0": 1.0, "_1": 2.0})
    pictures = {draw(small, overlay=what).svg for what in (table, table["rank"], own)}
    assert len(pictures) == 1
    assert ">rank</text>" in pictures.pop()
    assert ">Parameters</text>" in draw(small, overlay="parameters").svg
    measured = draw(small, overlay="flops", inputs=(torch.ones(3, 2),))
    assert repr(measured) == "<Drawing: 4 nodes in 4 boxes, coloured by FLOPs>"
    assert measured.overlay.values["_0"] == 2 * 3 * 2 * 2


def test_a_coloured_drawing_stays_so_when_groups_open_and_in_every_file(gm, tmp_path):
    closed = draw(gm, overlay="parameters", opened=[])
    group = next(box.path for box in closed.view.boxes if isinstance(box, Group))
    opened = closed.open(group)
    assert opened.overlay is opened.close(group).overlay is closed.overlay
    for suffix in (".svg", ".dot"):
        assert ">Parameters<" in opened.save(tmp_path / f"graph{suffix}").read_text(encoding="utf-8")
    for suffix, beginning in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
        assert opened.save(tmp_path / f"graph{suffix}").read_bytes().startswith(beginning)


@pytest.mark.parametrize(
    ("overlay", "error", "words"),
    [
        ("warmth", ValueError, "There are: output-error"),
        ("time", ValueError, "no inputs to run it on"),
        ("output-error", ValueError, "no inputs to run it on"),
        (3, TypeError, "got 3"),
        (pd.DataFrame({"a": [1], "b": [2]}, index=["_0"]), ValueError, "one column, got 2: 'a', 'b'"),
        (pd.Series([1.0], index=["elsewhere"]), ValueError, "no value for any node"),
    ],
)
def test_an_overlay_that_is_none_is_refused_in_words(small, overlay, error, words):
    with pytest.raises(error, match=words):
        draw(small, overlay=overlay)


def test_an_error_needs_another_graph(small):
    with pytest.raises(ValueError, match="compare_nodes"):
        draw(small, overlay="introduced-error", inputs=(torch.ones(1, 2),))
