"""Compiles with gradients: joint, forward and backward, each a stack of its own."""

import pytest
import torch
from tiny_models import Blocks, plant_mistake

import fxlab


@pytest.fixture(scope="module")
def session():
    torch.manual_seed(0)
    return fxlab.compile_session(Blocks().eval(), torch.randn(3, 8), training=True)


def test_there_are_three_stacks(session):
    assert list(session.graphs) == ["joint", "forward", "backward"]
    assert session.graphs["joint"] is session


def test_outputs_and_gradients_of_every_stage_are_those_of_eager(session):
    count = len(list(session.original.parameters()))
    assert len(session.compare_outputs()) == 2 + count
    assert session.verdict().agrees
    assert all(session.verdict(pass_.name).agrees for pass_ in session.passes)


def test_the_original_has_the_gradients_of_autograd(session):
    captured = session.original(**session.inputs)
    model = Blocks().eval()
    model.load_state_dict(session.original.state_dict())
    outputs = model(session.inputs["x"]).values()
    tangents = [value for name, value in session.inputs.items() if name != "x"]
    expected = torch.autograd.grad(list(outputs), list(model.parameters()), tangents)
    assert all(any(torch.equal(a, b) for b in captured) for a in expected)


def test_the_backward_graph_runs_on_what_the_forward_graph_saves(session):
    backward = session.graphs["backward"]
    assert backward.passes
    assert backward.verdict().agrees
    assert any(name.startswith("tangents") for name in backward.inputs)


def test_a_pass_of_one_stack_is_switched_for_that_stack_alone(session):
    backward = session.graphs["backward"]
    backward.revert(backward.passes[-1].name)
    assert backward.verdict().agrees
    assert session.applied == session.passes


def test_a_mistake_in_a_joint_pass_is_found_by_name():
    options = {"joint_custom_post_pass": plant_mistake}
    session = fxlab.compile_session(Blocks().eval(), torch.randn(3, 8), training=True, options=options)
    assert fxlab.bisect(session).pass_.name == "joint/plant_mistake"


def test_a_model_in_training_mode_writes_its_buffers_as_eager_does():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU()).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    session = fxlab.compile_session(model, torch.randn(5, 4), training=True)
    assert session.verdict().agrees
    assert "written state 1.running_mean" in session.compare_outputs().index
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
