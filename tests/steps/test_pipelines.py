"""Passes of others, ``f(graph_module, example_inputs)``, on a step: each is a switch, and judged."""

import functools

import pytest
import torch
from step_models import blocks, squared

import fxlab

ATEN = torch.ops.aten


def to_reshape(graph_module, example_inputs):
    for node in graph_module.graph.find_nodes(op="call_function", target=ATEN.view.default):
        node.target = ATEN.reshape.default
    graph_module.recompile()
    return graph_module


def replaced(graph_module, example_inputs, *, old, new):
    for node in graph_module.graph.find_nodes(op="call_function", target=old):
        node.target = new
    graph_module.recompile()
    return graph_module


PASSES = [
    to_reshape,
    functools.partial(replaced, old=ATEN.t.default, new=ATEN.numpy_T.default),
    functools.partial(replaced, old=ATEN.gelu.default, new=ATEN.relu.default),
]


@pytest.fixture(scope="module")
def step():
    model, x = blocks(2)
    return fxlab.trace_step(model, x, loss=squared, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


def test_each_becomes_a_switch_of_a_session_of_a_step(step):
    session = fxlab.Session(step, passes=[])
    example_inputs = tuple(session.inputs.values())
    for number, pass_ in enumerate(PASSES):
        function = functools.partial(pass_, example_inputs=example_inputs)
        session.add(fxlab.from_callable(function, name=f"pass {number}"))
        session.apply(f"pass {number}")
    assert str(session.verdict().status) == "different"
    session.revert("pass 2")
    assert str(session.verdict().status) == "same bits"
    session.revert()
    assert session.graph_module is session.original
