"""Graphs that torch.export captured."""

import copy
import pickle

import pytest
import torch
import zoo
from agreement import assert_agree
from torch import nn
from torch.export import Dim, export

from fxlab import Session, compare_outputs, draw, example_inputs, from_exported


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.rest = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, *, scale, offset=None):
        self.calls.add_(1)
        y = self.rest(self.first(x)) * scale
        return {"y": y, "more": (y.sum(), y / 3)}


def program_of(model, **sizes):
    inputs = {"scale": torch.randn(1), "offset": None}
    shapes = {"x": {0: Dim("rows", **sizes)}, "scale": None, "offset": None}
    return export(model, (torch.randn(3, 4),), inputs, dynamic_shapes=shapes)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model().eval()


def inputs(rows=5):
    return {"x": torch.randn(rows, 4), "scale": torch.randn(1), "offset": None}


def test_parameters_keep_their_names_and_objects_and_buffers_are_written(model):
    module = from_exported(program_of(model))
    assert module.get_parameter("first.weight") is model.first.weight
    before = module.get_buffer("calls").item()
    module(**inputs())
    assert module.get_buffer("calls").item() == before + 1


def test_nodes_say_shape_module_and_line(model):
    module = from_exported(program_of(model))
    node = next(node for node in module.graph.nodes if node.target is torch.ops.aten.linear.default)
    assert list(node.meta["nn_module_stack"]) == ["first"]
    assert node.meta["val"].shape[1] == 8
    assert "test_from_exported.py" in node.meta["stack_trace"]
    assert "first" in draw(module).svg


@pytest.mark.parametrize(
    ("sizes", "wrong", "message"),
    [
        ({}, {"x": torch.randn(3, 5)}, r"traced for .*x\.shape\[1\]"),
        ({"max": 4}, {"x": torch.randn(5, 4)}, r"traced for x\.shape\[0\] <= 4"),
        ({"min": 3}, {"x": torch.randn(2, 4)}, r"traced for x\.shape\[0\] >= 3"),
        ({}, {"scale": torch.randn(5)}, r"traced for .*scale\.shape\[0\]"),
        ({}, {"offset": 3}, "traced for offset = None only"),
    ],
)
def test_what_the_program_does_not_take_is_refused(model, sizes, wrong, message):
    module = from_exported(program_of(model, **sizes))
    with pytest.raises(AssertionError, match=message):
        module(**{**inputs(4), **wrong})


def test_structures_are_taken_apart_and_put_together():
    class Nested(nn.Module):
        def forward(self, a, b, *rest, k, opts):
            return {"x": a + b[0] + b[1]["q"] + rest[0], "n": [opts["z"] * k, (rest[1],)]}

    def given(size):
        made = iter(torch.randn(7, size))
        args = [next(made), [next(made), {"q": next(made)}], next(made), next(made)]
        return args, {"k": next(made), "opts": {"z": next(made)}}

    args, kwargs = given(3)
    module = from_exported(export(Nested(), tuple(args), kwargs))
    names = [str(node.target) for node in module.graph.nodes if node.op == "placeholder"]
    assert names == ["a", "b", "rest_0", "rest_1", "k", "opts"]
    args, kwargs = given(3)
    actual, expected = module(*args, **kwargs), Nested()(*args, **kwargs)
    assert torch.equal(actual["x"], expected["x"])
    assert torch.equal(actual["n"][1][0], expected["n"][1][0])
    args, kwargs = given(4)
    with pytest.raises(AssertionError, match="traced for"):
        module(*args, **kwargs)


def test_copies_pickles_sessions_and_passes_take_it(model):
    module = from_exported(program_of(model))
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert_agree(other, model, inputs())
    session = Session(module, inputs())
    for offered in session.passes:
        session.apply(offered.name)
    assert session.verdict().agrees
    assert compare_outputs(module, model, inputs())["allclose"].all()


@pytest.mark.weekly
def test_a_model_of_transformers():
    model = zoo.bert(1)
    given = example_inputs(model)
    batch, length = Dim("batch"), Dim("length", max=512)
    shapes = {name: {0: batch, 1: length} for name in given}
    module = from_exported(export(model, (), given, dynamic_shapes=shapes))
    for kept in (given, example_inputs(model, batch_size=3, sequence_length=9)):
        expected, actual = model(**kept), module(**kept)
        torch.testing.assert_close(actual.last_hidden_state, expected.last_hidden_state, rtol=1e-4, atol=1e-5)


def test_what_is_no_program_is_refused_in_words():
    with pytest.raises(TypeError, match=r"torch\.export\.export"):
        from_exported(nn.Linear(2, 2))
