"""Losses that torch computes in another way while it records have the bits of an eager step."""

import copy

import pytest
import torch
from torch import nn

import fxlab
from fxlab.values.tensors import same_bits


def labels():
    drawn = torch.randint(0, 10, (64,))
    drawn[torch.rand(64) < 0.2] = -100
    return drawn


def test_one_graph_of_a_smoothed_cross_entropy_holds_for_any_number_of_ignored_labels():
    torch.manual_seed(0)
    model, loss = nn.Linear(6, 10), nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.rand(10))
    other, x = copy.deepcopy(model), torch.randn(64, 6)
    optimizer, eager = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, other))
    with pytest.warns(fxlab.TraceWarning, match="reads a tensor of shape"):
        train = fxlab.steps.as_step(
            fxlab.Session(fxlab.trace_step(model, (x, labels()), loss=loss, optimizer=optimizer))
        )
    for _ in range(8):
        target = labels()
        found = train(x, target)
        eager.zero_grad()
        expected = loss(other(x), target)
        expected.backward()
        eager.step()
        assert same_bits(found, expected.detach())
        assert same_bits(model.weight.detach(), other.weight.detach())
    assert train.graphs == 1


def test_a_step_through_it_names_the_lines_of_the_author():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 10)
            self.loss = nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.ones(10))

        def forward(self, x, target):
            return self.loss(self.head(x), target)

    step = fxlab.trace_step(WithLoss(), (torch.randn(64, 6), labels()), loss=lambda output: output)
    (smooth,) = step.graph.find_nodes(op="call_function", target=torch.ops.aten.masked_select.default)
    assert smooth.meta["stack_trace"].count("File") == 1
    assert "return self.loss(self.head(x), target)" in smooth.meta["stack_trace"]


def test_lengths_of_a_ctc_loss_may_be_lists():
    class WithLoss(nn.Linear):
        def forward(self, x):
            logs = super().forward(x).log_softmax(-1)
            targets = torch.tensor([[1, 2], [3, 0]])
            return nn.functional.ctc_loss(logs, targets, (8, 7), target_lengths=[2, 1])

    model, x = WithLoss(6, 6), torch.randn(8, 2, 6)
    session = fxlab.Session(fxlab.trace_step(model, x, loss=lambda output: output))
    assert same_bits(session.graph_module(**session.inputs)["loss"], model(x).detach())


def test_a_loss_of_the_output_alone_leaves_each_part_of_a_batch_to_the_model():
    class Masked(nn.Linear):
        def forward(self, x, mask=None):
            return super().forward(x) * (0 if mask is None else mask)

    model, x, mask = Masked(4, 2), torch.randn(3, 4), torch.rand(3, 1)
    session = fxlab.Session(fxlab.trace_step(model, (x, mask), loss=lambda output: output.sum()))
    assert [*session.inputs][-2:] == ["x", "mask"]
    assert same_bits(session.graph_module(**session.inputs)["loss"], model(x, mask).sum().detach())


def test_a_loss_may_make_its_scale_in_the_first_step():
    class Scaled:
        scale = None

        def __call__(self, y):
            if self.scale is None:
                self.scale = y.new_full((), 8.0)
            return (y * self.scale).sum()

    loss = Scaled()
    step = fxlab.trace_step(nn.Linear(4, 4), torch.randn(2, 4), loss=loss, optimizer=None)
    assert loss.scale is None
    assert fxlab.Session(step).verdict()
