"""Activation checkpointing keeps every bit of a step and fewer activations."""

import copy

import pytest
import torch
from step_models import batches, blocks, net, own_loss, squared
from torch import nn

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


@pytest.mark.weekly
def test_a_loop_with_checkpoints_trains_the_same():
    model, x = blocks(2)
    other = copy.deepcopy(model)
    optimizer, other_optimizer = (torch.optim.AdamW(m.parameters()) for m in (model, other))
    session = fxlab.Session(
        step_of(model, x, optimizer=optimizer), passes=[ActivationCheckpointing("blocks.*")]
    )
    session.apply("activation-checkpointing")
    train = fxlab.steps.as_step(session)
    torch.manual_seed(3)
    for _ in range(3):
        train(x)
    torch.manual_seed(3)
    for _ in range(3):
        other_optimizer.zero_grad()
        squared(other(x)).backward()
        other_optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_modules_are_paths_or_patterns():
    with pytest.raises(TypeError, match="expected a path or pattern"):
        ActivationCheckpointing(["blocks"])


def test_a_budget_chooses_as_few_blocks_as_it_takes(step):
    whole, chosen = most_activations(step), []
    for budget in (1.0, 0.8, int(0.8 * whole), 0.0):
        session = fxlab.Session(step, passes=[ActivationCheckpointing(budget=budget)])
        session.apply("activation-checkpointing")
        nodes = session.graph_module.graph.nodes
        chosen.append({node.meta["recomputed"] for node in nodes if "recomputed" in node.meta})
        if budget == 0.8:
            assert most_activations(session) <= budget * whole
            assert session.verdict().status == "same bits"
    assert [len(blocks) for blocks in chosen] == [0, len(chosen[1]), len(chosen[1]), 3]
    assert 0 < len(chosen[1]) < 3


def test_of_a_model_that_repeats_no_block_modules_are_computed_again():
    block = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.LayerNorm(64))
    changed = ActivationCheckpointing(budget=0.0)(step_of(nn.Sequential(block, nn.Tanh()), torch.ones(50, 8)))
    assert {node.meta.get("recomputed") for node in changed.graph.nodes} == {None, "0"}


@pytest.mark.weekly
def test_a_budget_never_keeps_more():
    layers = (
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
    )
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 16, 4))
    step = step_of(net, torch.randn(5, 3, 8, 8), optimizer=torch.optim.AdamW(net.parameters()))
    # Values that a view holds, or that others need to be computed again, are kept all the same.
    changed = ActivationCheckpointing(budget=0.5)(copy.deepcopy(step))
    assert most_activations(changed) <= most_activations(step)


def test_a_budget_computes_nothing_again_from_what_it_no_longer_keeps():
    layers = (nn.Linear(4, 64), nn.Sigmoid(), nn.Tanh(), nn.Sigmoid(), nn.Tanh(), nn.Linear(64, 1))
    step = step_of(nn.Sequential(*layers), torch.randn(5, 4))
    changed = ActivationCheckpointing(budget=0.0)(copy.deepcopy(step))
    assert [node.meta["recomputed"] for node in changed.graph.nodes if "recomputed" in node.meta] == ["2"]
    assert most_activations(step) - most_activations(changed) == 4 * 5 * 64


@pytest.mark.parametrize("budget", [1.5, -1, True, "2GB"])
def test_what_is_no_budget_is_refused_in_words(budget):
    with pytest.raises(ValueError, match="budget: expected a share"):
        ActivationCheckpointing(budget=budget)
