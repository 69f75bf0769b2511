"""Activation checkpointing keeps every bit of a step and fewer activations."""

import copy

import pytest
import torch
from step_models import batches, blocks, net, own_loss, squared

import fxlab
from fxlab import ActivationCheckpointing
from fxlab.drawing import build_hierarchy


def step_of(model, x, loss=squared, **kwargs):
    return fxlab.trace_step(model, x, loss=loss, **kwargs)


def most_activations(graph):
    return fxlab.memory(graph).table["activations"].max()


@pytest.fixture(scope="module")
def step():
    model, x = blocks(3)
    return step_of(model, x.repeat(40, 1), optimizer=torch.optim.AdamW(model.parameters()))


@pytest.mark.often(1)
@pytest.mark.parametrize("modules", ["blocks.*", ("blocks.0", "blocks.2"), "blocks.1"])
def test_a_step_keeps_its_bits_and_fewer_activations(step, modules):
    session = fxlab.Session(step, passes=[ActivationCheckpointing(modules)])
    before = most_activations(session)
    session.apply("activation-checkpointing")
    assert most_activations(session) < 0.8 * before
    assert str(session.verdict().status) == "same bits"


def test_what_is_computed_again_lies_in_a_box_of_the_backward_pass(step):
    changed = ActivationCheckpointing("blocks.*")(copy.deepcopy(step))
    again = [node for node in changed.graph.nodes if node.meta.get("recomputed")]
    assert again
    assert all(node.meta["autograd_backward"] for node in again)
    groups = build_hierarchy(changed).groups
    assert any("(recomputed)" in path for path in groups)


def test_random_numbers_are_kept_and_not_drawn_again(step):
    changed = ActivationCheckpointing("blocks.*")(copy.deepcopy(step))
    draws = torch.ops.aten.bernoulli.p
    assert len(changed.graph.find_nodes(op="call_function", target=draws)) == 3


@pytest.mark.weekly
def test_it_saves_about_what_a_checkpoint_of_torch_saves():
    (plain, x), (checkpointed, _) = blocks(3), blocks(3, (0, 1, 2))
    x = x.repeat(40, 1)
    ours = ActivationCheckpointing("blocks.*")(step_of(plain, x))
    theirs = step_of(checkpointed, x)
    assert fxlab.memory(ours).peak <= 1.1 * fxlab.memory(theirs).peak


def test_statistics_of_batch_norms_are_written_once():
    model = net()
    changed = ActivationCheckpointing(("norm", "act"))(step_of(model, batches(1)[0], own_loss))
    assert fxlab.verdict(step_of(model, batches(1)[0], own_loss), changed, fxlab.Session(changed).inputs)


def test_a_module_without_a_backward_pass_is_left_alone():
    graph = fxlab.symbolic_trace(blocks(2)[0].eval(), blocks(2)[1])
    explained = ActivationCheckpointing("blocks.*").explain(graph)
    assert set(explained["matched"]) == {False}
    assert explained["reason"].str.contains("could be computed again").all()


def test_modules_are_paths_or_patterns():
    with pytest.raises(TypeError, match="expected a path or pattern"):
        ActivationCheckpointing(["blocks"])
