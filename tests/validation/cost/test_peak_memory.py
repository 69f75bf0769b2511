"""The bytes of tensors that are alive at once."""

import torch
from torch import nn

from fxlab.validation.cost.memory import PeakMemory


def test_what_is_dropped_makes_room():
    with PeakMemory() as memory:
        x = torch.zeros(1000)
        for _ in range(5):
            x = x + 1
    assert memory.peak == 2 * 4000


def test_views_and_writes_in_place_take_nothing():
    with PeakMemory() as memory:
        x = torch.zeros(10, 10)
        x.t().reshape(10, 10).add_(1)
        x[2:].mul_(x.view(10, 10)[2:])
    assert memory.peak == 400


def test_what_was_there_before_does_not_count():
    model, x = nn.Linear(10, 5), torch.ones(3, 10)
    with PeakMemory() as memory:
        model(x)
    assert memory.peak == 3 * 5 * 4


def test_counting_starts_anew():
    with PeakMemory() as memory:
        x = torch.zeros(1000)
        memory.restart()
        y = x[:10] + 1
        assert memory.peak == 40
        assert len(y) == 10
