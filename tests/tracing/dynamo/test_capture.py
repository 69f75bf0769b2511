"""The backend of torch.compile that keeps graphs: weights, names, inputs and the reasons of breaks."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fxlab
from fxlab import Capture, Session
from fxlab.operators.node_info import module_path


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.layers = nn.Linear(4, 4), nn.ModuleList([nn.Linear(4, 4)])
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.offset = torch.ones(4)

    def forward(self, x):
        y = self.layers[0](torch.relu(self.first(x))) + self.offset
        torch._dynamo.graph_break()
        return y / self.scale


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, batch, count=2):
        return F.dropout(self.block(batch["x"]).sin() * count, training=self.training)


MODEL, X = Model().eval(), torch.ones(3, 4)


def captured(model, *args, **settings):
    torch._dynamo.reset()
    capture = Capture()
    with torch.no_grad():
        output = torch.compile(model, backend=capture, **settings)(*args)
    return capture, output


@pytest.fixture(scope="module")
def of_model():
    return captured(MODEL, {"x": X})


def test_each_graph_is_kept_with_its_inputs_and_computes_what_comes_next(of_model):
    capture, output = of_model
    values = [graph.graph_module(*graph.inputs)[0] for graph in capture.graphs]
    assert len(values) == 3
    assert torch.equal(values[0], capture.graphs[1].inputs[0])
    assert torch.equal(values[1], capture.graphs[2].inputs[0])
    assert torch.equal(values[2], output)


def test_weights_and_paths_have_the_names_of_the_whole_model(of_model):
    first, second, last = (graph.graph_module for graph in of_model[0].graphs)
    names = ("first.weight", "first.bias", "layers.0.weight", "layers.0.bias", "offset")
    assert first.state_dict().keys() == {f"block.{name}" for name in names}
    assert [*second.state_dict()] == ["block.scale"]
    assert first.block.first.weight is MODEL.block.first.weight
    assert [str(node.target) for node in last.graph.find_nodes(op="placeholder")] == ["stack1"]
    linears = first.graph.find_nodes(op="call_function", target=F.linear)
    assert [module_path(node) for node in linears] == ["block.first", "block.layers.0"]


def test_a_break_has_its_reason_and_line(of_model):
    capture, _ = of_model
    (found,) = {graph.graph_break for graph in capture.graphs} - {None}
    assert found.reason == "Call to `torch._dynamo.graph_break()`"
    assert found.place.startswith(__file__)
    assert found.code == "torch._dynamo.graph_break()"
    assert repr(capture.graphs[0]).endswith(f"input, ends at {found}>")
    torch._dynamo.reset()  # It forgets what it has noted.
    assert capture.breaks == (found,)
    assert capture.table.reason.tolist() == [found.reason, "", ""]


def test_a_break_with_nothing_before_it_is_among_the_breaks():
    def function(x):
        print("")
        return x.sin()

    capture, _ = captured(function, X)
    assert [found.code for found in capture.breaks] == ['print("")']
    assert [graph.graph_break for graph in capture.graphs] == [None]
    capture.clear()
    assert capture.graphs == capture.breaks == ()


@pytest.mark.parametrize("dynamic", [False, True])
def test_all_passes_apply_and_are_taken_back(dynamic):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4)).eval()
    capture, _ = captured(model, X, dynamic=dynamic)
    session = Session(capture.graphs[0])
    for pass_ in session.passes:
        session.apply(pass_)
    assert session.changes("fuse-bias-in-linear").rewrites == 2
    # Of a float that may change, Dynamo makes an input: the dropout may be one at any time.
    assert session.changes("remove-identities").rewrites == (0 if dynamic else 1)
    assert session.verdict().agrees
    session.revert()
    assert session.graph_module is session.original


def test_sizes_follow_the_inputs_where_dynamo_let_them():
    capture, _ = captured(MODEL, {"x": X}, dynamic=True)
    graph = capture.graphs[0].graph_module
    assert [str(node.target) for node in graph.graph.find_nodes(op="placeholder")] == ["x"]
    assert graph(torch.randn(7, 4))[0].shape == (7, 4)
    with pytest.raises(AssertionError, match=r"traced for x\.shape\[1\] == 4 only"):
        graph(torch.randn(7, 5))


def test_sizes_that_dynamo_makes_inputs_are_read_from_the_tensors():
    class Repeats(nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0] * 2, -1) * x.shape[0]

    model = Repeats()
    capture, _ = captured(model, X, dynamic=True)
    graph, x = capture.graphs[0].graph_module, torch.randn(7, 4)
    assert len(graph.graph.find_nodes(op="placeholder")) == 1
    assert torch.equal(graph(x)[0], model(x))


def test_inputs_are_copies():
    x = torch.ones(3, 4)
    capture, _ = captured(nn.ReLU(), x)
    x.zero_()
    assert capture.graphs[0].inputs[0].sum() == 12


def test_tied_weights_are_one_tensor():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    capture, _ = captured(model, X)
    assert len(list(capture.graphs[0].graph_module.parameters())) == 3


def test_a_capture_that_is_called_with_a_model_says_what_it_is():
    with pytest.raises(TypeError, match=r"A capture is a backend: torch\.compile\(model, backend="):
        fxlab.Capture()(MODEL, X)
