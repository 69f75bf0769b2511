"""Passes and sessions on graphs that others made: torch.export, Dynamo, quantized weights."""

import copy
import pickle

import pytest
import torch
from torch import nn
from wrapper_tensor import Int8Weight, WithoutFlatten, quantize

import fxlab
from fxlab import FuseBiasInLinear, Session, draw, from_callable
from fxlab.validation import Status


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x):
        y = self.norm(self.conv(x)).mean((2, 3))
        return {"a": self.query(y) * (self.scale * 2) + self.key(y) / 3, "b": (y.relu() + y.relu(),)}


X = torch.randn(2, 3, 4, 4)


def exported():
    shapes = ({0: torch.export.Dim("batch", min=2, max=9)},)
    return torch.export.export(Model().eval(), (X,), dynamic_shapes=shapes).module(), (X,)


def from_dynamo():
    graphs = []

    def backend(graph_module, inputs):
        graphs.append((graph_module, tuple(inputs)))
        return graph_module

    torch._dynamo.reset()
    torch.compile(Model().eval(), backend=backend, fullgraph=True)(X)
    return graphs[0]


@pytest.fixture(scope="module", params=[exported, from_dynamo])
def foreign(request):
    torch.manual_seed(0)
    return request.param()


def negate_twice(graph_module):
    """Change the graph, and say that it was changed as torch's own passes do."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        if "relu" in node.name:
            with graph.inserting_after(node):
                once = graph.call_function(torch.neg, (node,))
            with graph.inserting_after(once):
                twice = graph.call_function(torch.neg, (once,))
            node.replace_all_uses_with(twice, lambda user, once=once: user is not once)
    return True


@pytest.mark.weekly
@pytest.mark.filterwarnings("ignore:.*LeafSpec")  # torch's own deep copies warn of torch
def test_each_pass_is_switched_on_and_off_in_a_session(foreign):
    graph_module, inputs = foreign
    code = graph_module.code
    session = Session(graph_module, inputs)
    session.add(from_callable(negate_twice))
    for pass_ in session.passes:
        session.apply(pass_)
    made = session.passes["negate-twice"]
    assert not fxlab.rewriting.transformed_nodes(session.graph_module, made, original=session.original).empty
    assert session.verdict().agrees
    assert not fxlab.compare_outputs(session.original, session.graph_module, session.inputs).empty
    assert "<svg" in draw(session.graph_module).svg
    assert str(copy.deepcopy(session.graph_module).graph) == str(session.graph_module.graph)
    for pass_ in session.passes:
        (session.revert if pass_ in session.applied else session.apply)(pass_)
    session.undo()
    session.revert()
    assert session.graph_module is graph_module
    assert graph_module.code == code


def test_each_pass_is_applied_and_reversed(foreign):
    graph_module, _ = foreign
    for pass_ in (*Session(graph_module).passes, from_callable(negate_twice)):
        before, meta = (
            str(graph_module.graph),
            {node.name: dict(node.meta) for node in graph_module.graph.nodes},
        )
        pass_(graph_module)
        pass_(graph_module, reverse=True)
        assert str(graph_module.graph) == before, pass_.name
        assert {node.name: dict(node.meta) for node in graph_module.graph.nodes} == meta, pass_.name


def test_a_module_with_a_local_function_for_a_hook_says_why_it_is_not_pickled():
    graph_module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
    graph_module.register_forward_pre_hook(lambda module, args: None)
    FuseBiasInLinear()(graph_module)
    with pytest.raises(pickle.PicklingError, match=r"its _forward_pre_hooks is a function .*from_exported"):
        pickle.dumps(graph_module)


@pytest.mark.parametrize("cls", [Int8Weight, WithoutFlatten])
def test_weights_are_quantized_by_a_function_and_come_back(cls):
    graph_module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    x, weight = torch.randn(3, 4), graph_module.get_submodule("0").weight
    expected = graph_module(x)
    transformation = from_callable(lambda module: quantize(module, cls), name="quantize")

    session = Session(graph_module, x, passes=[transformation])
    session.apply("quantize")
    assert len(fxlab.rewriting.transformed_nodes(session.graph_module, original=session.original)) == 2
    assert not torch.equal(session.graph_module(x), expected)
    assert len(fxlab.compare_outputs(session.original, session.graph_module, session.inputs)) == 1
    (session.revert if "quantize" in session.applied else session.apply)("quantize")
    assert session.graph_module is graph_module

    transformation(graph_module)
    assert type(graph_module.get_submodule("0").weight) is cls
    transformation(graph_module, reverse=True)
    assert graph_module.get_submodule("0").weight is weight
    assert torch.equal(graph_module(x), expected)


def write_bytes(graph_module):
    graph_module.get_submodule("0").weight.data_bytes.neg_()


def replace_bytes(graph_module):
    weight = graph_module.get_submodule("0").weight
    weight.data_bytes = -weight.data_bytes


@pytest.mark.parametrize("function", [write_bytes, replace_bytes])
@pytest.mark.parametrize("cls", [Int8Weight, WithoutFlatten])
def test_what_is_written_inside_a_quantized_weight_is_noticed_and_taken_back(cls, function):
    model = nn.Sequential(nn.Linear(4, 4))
    quantize(model, cls)
    graph_module, x = torch.fx.symbolic_trace(model), torch.randn(3, 4)
    weight, expected = graph_module.get_submodule("0").weight, graph_module(x)
    transformation = from_callable(function)
    transformation(graph_module)
    assert len(transformation.get_transformed_nodes(graph_module)) == 1
    assert not torch.equal(graph_module(x), expected)
    assert torch.equal(model(x), expected)
    transformation(graph_module, reverse=True)
    assert graph_module.get_submodule("0").weight is weight
    assert torch.equal(graph_module(x), expected)


def test_a_quantized_model_is_judged_by_its_bits():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    quantize(model)
    session = Session(torch.fx.symbolic_trace(model), torch.randn(3, 4))
    for pass_ in session.passes:
        session.apply(pass_)
    assert session.verdict().status is Status.SAME_BITS


@pytest.mark.parametrize("cls", [Int8Weight, WithoutFlatten])
def test_a_quantized_weight_that_a_function_leaves_alone_stays_the_same_object(cls):
    model = nn.Sequential(nn.Linear(4, 4))
    quantize(model, cls)
    graph_module = torch.fx.symbolic_trace(model)
    weight = graph_module.get_submodule("0").weight
    transformation = from_callable(lambda module: None, name="nothing")
    transformation(graph_module)
    assert transformation.get_transformed_nodes(graph_module) == []
    assert graph_module.get_submodule("0").weight is weight


def freeze(graph_module):
    graph_module.get_submodule("0").requires_grad_(False)


def test_a_weight_that_is_only_frozen_is_not_copied():
    graph_module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4)))
    weight = graph_module.get_submodule("0").weight
    from_callable(freeze)(graph_module)
    frozen = graph_module.get_submodule("0").weight
    assert (frozen.requires_grad, weight.requires_grad) == (False, True)
    assert frozen.data_ptr() == weight.data_ptr()


def note_and_fail(graph_module):
    graph_module.get_submodule("0").note = "new"
    raise RuntimeError("on purpose")


def note(graph_module):
    graph_module.get_submodule("0").note = "new"


def test_an_attribute_that_a_function_adds_to_a_module_is_gone_when_it_is_reversed_or_fails():
    graph_module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4)))
    layer = graph_module.get_submodule("0")
    transformation = from_callable(note)
    transformation(graph_module)
    assert graph_module.get_submodule("0").note == "new"
    assert not hasattr(layer, "note")
    transformation(graph_module, reverse=True)
    assert graph_module.get_submodule("0") is layer
    assert not hasattr(layer, "note")
    with pytest.raises(RuntimeError, match="on purpose"):
        from_callable(note_and_fail)(graph_module)
    assert not hasattr(graph_module.get_submodule("0"), "note")


def test_a_broken_graph_is_refused_before_anything_is_done_with_it():
    graph_module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4)))
    placeholder, layer, _ = graph_module.graph.nodes
    placeholder.prepend(layer)
    done = []
    with pytest.raises(ValueError, match="graph_module"):
        from_callable(done.append)(graph_module)
    assert done == []
