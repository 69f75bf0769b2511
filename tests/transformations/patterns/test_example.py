"""A pattern that is made of nodes finds these nodes, and others like them."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fxlab
from fxlab.rewriting import find_matches, pattern_of

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's, of run_decompositions
X = torch.randn(2, 3, 8)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.norm, self.drop = nn.LayerNorm(8), nn.Dropout()

    def forward(self, x):
        y = self.norm(x)
        scores = self.q(y) @ self.k(y).transpose(1, 2) * 0.25
        y = self.drop(torch.softmax(scores, -1)) @ self.v(y)
        half = y[..., :4].reshape(2, 3, 2, 2).flatten(2)
        return x + torch.cat((half, F.silu(y[..., 4:])), dim=-1) ** 2


def graphs():
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).eval()
    program = torch.export.export(model, (X,))
    return {
        "trace": fxlab.symbolic_trace(model, X),
        "exported": fxlab.from_exported(program),
        "decomposed": fxlab.from_exported(program.run_decompositions()),
    }


@pytest.mark.parametrize("kind", ["trace", "exported", "decomposed"])
def test_every_chain_of_calls_is_found_again(kind):
    gm = graphs()[kind]
    count = 0
    for node in gm.graph.nodes:
        if not node.op.startswith("call_") or node.meta.get("val") is None or not node.users:
            continue
        is_part = node.target in (torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
        if is_part or not isinstance(node.meta["val"], torch.Tensor):
            continue
        reads = [
            each
            for each in node.all_input_nodes
            if each.op.startswith("call_") and each.meta.get("val") is not None
        ]
        chosen = [
            node,
            *(each for each in reads if isinstance(each.meta["val"], torch.Tensor) and len(each.users) == 1),
        ]
        pattern = pattern_of(gm, chosen)
        compile(inspect.getsource(pattern), "source", "exec")
        found = {each for match in find_matches(gm, pattern) for each in match.roots}
        assert node in found, (node, inspect.getsource(pattern))
        count += len(found) > 1
    assert count > 10  # the second block has the same


def test_a_pattern_of_an_example_can_be_replaced():
    gm = graphs()["trace"]
    nodes = [node for node in gm.graph.nodes if "softmax" in node.name][:1]
    nodes += list(nodes[0].users)
    pattern = pattern_of(fxlab.Session(gm, X, passes=[]), nodes, name="dropped_softmax")
    assert pattern.__name__ == "dropped_softmax"
    pass_ = fxlab.from_pattern(pattern, lambda x: torch.softmax(x, -1), preserves_computation=True)
    assert pass_.explain(gm).matched.all()


@pytest.mark.parametrize(
    ("nodes", "options", "error", "message"),
    [
        (["nothing"], {}, ValueError, "no node 'nothing'"),
        ([3], {}, TypeError, "nodes: expected nodes or their names"),
        (["input_1"], {}, ValueError, "expected nodes that compute something"),
        (["relu"], {"name": "a b"}, ValueError, "name: expected a name"),
    ],
)
def test_what_cannot_be_chosen_is_said(nodes, options, error, message):
    gm = torch.fx.symbolic_trace(lambda input_1: torch.relu(input_1))
    with pytest.raises(error, match=message):
        pattern_of(gm, nodes, **options)
    with pytest.raises(TypeError, match="session: expected"):
        pattern_of(3, nodes)


def test_somebody_elses_function_is_no_pattern():
    gm = fxlab.symbolic_trace(nn.Sequential(nn.LSTM(8, 4)), X)
    (node,) = gm.graph.find_nodes(op="call_module", target="0")
    with pytest.raises(ValueError, match=r"none of torch\.nn"):
        pattern_of(gm, [node])


def test_matches_are_asked_for_what_they_captured():
    gm = torch.fx.symbolic_trace(lambda x: torch.relu(x * 3) + torch.relu(2 * x))

    def scaled(x, factor: float):
        return torch.relu(x * factor)

    first, _ = find_matches(gm, scaled)
    assert first["factor"] == 3
    assert first["x"].name == "x"
    with pytest.raises(KeyError, match="no argument 'y'"):
        first["y"]
    assert len(find_matches(gm, scaled, where={"three": lambda match: match["factor"] == 3})) == 1
    with pytest.raises(TypeError, match="graph_module"):
        find_matches(3, scaled)


def test_a_pattern_leaves_out_what_only_checks_sizes_and_returns_a_layer_once():
    layers = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Sigmoid()).eval()
    program = torch.export.export(layers, (torch.ones(2, 4),)).run_decompositions()
    gm = fxlab.from_exported(program)
    source = inspect.getsource(pattern_of(gm, [n for n in gm.graph.nodes if n.op.startswith("call")]))
    assert "size" not in source
    assert source.count(" = ") == 3
    assert source.rstrip().endswith("return sigmoid")


class Writes(str):
    """A text of a model's own, which writes other Python than a text."""

    def __repr__(self):
        return "__import__('os').abort()"


@pytest.mark.parametrize(
    "hostile",
    [
        {"kwargs": {"dim=__import__('os').abort(), keepdim": True}},
        {"kwargs": {"dim": Writes("x")}},
        {"name": "x):\n    __import__('os').abort()\ndef y("},
    ],
)
def test_what_a_model_holds_is_no_python_of_a_pattern(hostile):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.sum, (x,), hostile.get("kwargs"))
    graph.output(graph.call_function(torch.neg, (node,)))
    gm = torch.fx.GraphModule({}, torch.fx.Tracer().trace(lambda x: x))
    gm._graph = graph
    graph.owning_module = gm
    if "name" in hostile:
        x.name = node.name = hostile["name"]
        assert "abort()" not in inspect.getsource(pattern_of(gm, [node]))
    else:
        with pytest.raises(ValueError, match="nodes: "):
            pattern_of(gm, [node])
