import pytest
from drawing_models import Bert
from torch import fx

from fxlab.drawing import Drawing, draw


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


@pytest.mark.parametrize(
    ("suffix", "beginning"),
    [(".svg", b"<svg"), (".png", b"\x89PNG"), (".pdf", b"%PDF"), (".dot", b"digraph")],
)
def test_save_writes_what_the_suffix_says(gm, tmp_path, suffix, beginning):
    file = draw(gm).save(tmp_path / f"graph{suffix}")
    assert file.read_bytes().startswith(beginning)


def test_save_refuses_other_suffixes(gm, tmp_path):
    with pytest.raises(ValueError, match=r"\.svg, \.png, \.pdf, \.dot"):
        draw(gm).save(tmp_path / "graph.gif")


def test_highlighting_a_transformation_opens_the_groups_around_its_nodes(gm):
    drawing = draw(gm, highlight=Pass())
    assert drawing.svg.count("fx-changed") > 4
    assert drawing.picture.signatures == ("a-signature",)


@pytest.mark.parametrize("how", ["name", "node", "both"])
def test_names_and_nodes_can_be_highlighted(gm, how):
    tanh = next(node for node in gm.graph.nodes if node.name == "tanh")
    wanted = {"name": "tanh", "node": tanh, "both": ["pooler", tanh]}[how]
    changed = {box.label for box in draw(gm, highlight=wanted).picture.boxes.values() if box.changed}
    assert changed == ({"tanh", "pooler"} if how == "both" else {"tanh"})


def test_groups_can_be_opened_and_closed(gm):
    drawing = draw(gm, opened=["encoder.layer.2"])
    assert any(cluster.path == "encoder.layer.2" for cluster in drawing.view.clusters)
    assert not drawing.close("encoder").view.clusters
    assert drawing.open("encoder.layer.0").view.opened > drawing.view.opened


def test_mistakes_are_named(gm):
    with pytest.raises(TypeError, match=r"expected a torch\.fx\.GraphModule, got Bert"):
        draw(Bert())
    with pytest.raises(TypeError, match="highlight expected"):
        draw(gm, highlight=3)
    with pytest.raises(ValueError, match="no such node"):
        draw(gm, highlight="nope")
    with pytest.raises(TypeError, match="the string"):
        draw(gm, opened="encoder")
    with pytest.raises(ValueError, match="no group"):
        draw(gm, opened=["nope"])
