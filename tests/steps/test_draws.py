"""Dropouts are recorded with the random numbers of an eager step, whatever the layout of their values."""

import pytest
import torch
from step_models import squared
from torch import nn

import fxlab
from fxlab.steps import recorded_calls
from fxlab.values.tensors import same_bits


class Drops(nn.Module):
    """A dropout of what a module returns, in the layout of a function."""

    def __init__(self, module, arranged=lambda values: values):
        super().__init__()
        self.module, self.arranged = module, arranged

    def forward(self, x):
        return nn.functional.dropout(self.arranged(self.module(x)), 0.3)


CHANNELS_LAST = {"memory_format": torch.channels_last}
IMAGES = torch.randn(2, 3, 8, 8).to(**CHANNELS_LAST)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (Drops(nn.Linear(6, 6), lambda values: values.transpose(0, 1)), torch.randn(3, 4, 6)),
        (Drops(nn.Linear(6, 6), lambda values: values.permute(2, 0, 1)[1:]), torch.randn(3, 4, 6)),
        (nn.TransformerEncoderLayer(6, 2, 12, batch_first=True), torch.randn(3, 4, 6)),
        (Drops(nn.Conv2d(3, 4, 3)).to(**CHANNELS_LAST), IMAGES),
        (
            Drops(nn.Linear(6, 6), lambda values: values * torch.empty_like(values).random_(2, 5)),
            torch.randn(3, 6),
        ),
        (
            Drops(nn.Linear(6, 6), lambda values: values * torch.empty_like(values.t()).random_(5).t()),
            torch.randn(3, 6),
        ),
    ],
)
def test_numbers_are_drawn_in_the_layout_of_their_values(model, x):
    step = fxlab.trace_step(model, x, loss=squared)
    session = fxlab.Session(step)
    torch.manual_seed(5)
    loss = squared(model(x)).detach()
    torch.manual_seed(5)
    with torch.no_grad():
        found = step(**session.inputs)
    assert same_bits(found["loss"], loss)
    assert session.verdict().same_bits


class Noisy(torch.optim.SGD):
    """Updates a random half of the elements."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                chosen = torch.empty_like(parameter).bernoulli_(0.5)
                parameter.sub_(group["lr"] * chosen * parameter.grad)


def test_an_optimizer_draws_in_the_layout_of_its_parameters():
    model = nn.Conv2d(3, 4, 3).to(**CHANNELS_LAST)
    step = fxlab.trace_step(model, IMAGES, loss=squared, optimizer=Noisy(model.parameters(), lr=0.1))
    assert fxlab.Session(step).verdict().same_bits


@pytest.mark.parametrize("follows_memory", [True, False])
def test_numbers_follow_the_order_of_the_kernel(monkeypatch, follows_memory):
    # The other order is that of other processors.
    monkeypatch.setattr(recorded_calls, "_follows_memory", lambda device: follows_memory)
    values = torch.empty(4, 3, 5).permute(2, 0, 1)
    drawn = [
        draw(values, 0.5, generator=torch.Generator().manual_seed(5))
        for draw in (recorded_calls.IN_LAYOUT[torch.ops.aten.bernoulli.p], torch.ops.aten.bernoulli.p)
    ]
    assert drawn[0].stride() == values.stride()
    assert torch.equal(*drawn) is not follows_memory
