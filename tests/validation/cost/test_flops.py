"""Operations that are counted, and those that are not known."""

import math

import pytest
import torch
from torch import nn

import fxlab
from fxlab import profile
from fxlab.overlays import Subject, source
from fxlab.validation.cost.traced_flops import FlopCount


def count(function):
    with torch.no_grad(), FlopCount() as found:
        function()
    return found


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_recurrent_layers_are_counted(cls, device):
    layer = cls(5, 7, num_layers=2, bidirectional=True, device=device)
    weights = sum(p.numel() for p in layer.parameters() if p.dim() == 2)
    assert count(lambda: layer(torch.ones(11, 3, 5, device=device))).total == 2 * 33 * weights


def test_products_of_groups_and_of_vectors_are_counted():
    rows, matrices = torch.ones(10, 8, dtype=torch.bfloat16), torch.ones(4, 8, 16, dtype=torch.bfloat16)
    offsets = torch.tensor([2, 4, 6, 10], dtype=torch.int32)
    assert count(lambda: torch._grouped_mm(rows, matrices, offs=offsets)).total == 2 * 10 * 8 * 16
    assert count(lambda: nn.Linear(3, 4)(torch.ones(3))).total == 24
    assert count(lambda: torch.ones(3) @ torch.ones(3)).total == 6


@torch.library.custom_op("fxlab_tests::squared", mutates_args=())
def squared(x: torch.Tensor) -> torch.Tensor:
    return x @ x


@pytest.mark.parametrize(
    "function", [torch.fft.fft, torch.linalg.svd, squared, lambda x: torch.linalg.solve(x + torch.eye(4), x)]
)
def test_operations_that_have_no_formula_are_not_known(function):
    assert math.isnan(count(lambda: function(torch.ones(4, 4))).total)


def test_what_is_not_known_is_no_part_of_a_sum():
    class Mixes(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return torch.fft.fft(self.linear(x)).real + torch.softmax(x, -1)

    graph = fxlab.symbolic_trace(Mixes(), torch.ones(2, 4))
    flops = profile(graph, torch.ones(2, 4), rounds=1)["flops"]
    assert math.isnan(flops.filter(like="fft").item())
    assert flops[["linear", "softmax"]].tolist() == [64, 0]
    for inputs in (torch.ones(2, 4), None):
        overlay = source("flops").overlay(Subject(graph, inputs=inputs))
        assert overlay.title == "FLOPs (at least)"


def test_columns_that_are_divided_among_groups_are_counted():
    matrices, rows = torch.ones(4, 8, 16, dtype=torch.bfloat16), torch.ones(16, 32, dtype=torch.bfloat16)
    offsets = torch.tensor([8, 16, 24, 32], dtype=torch.int32)
    assert count(lambda: torch._grouped_mm(matrices, rows, offs=offsets)).total == 2 * 8 * 16 * 32
