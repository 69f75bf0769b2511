"""Losses that torch computes in another way while it records have the bits of an eager step."""

import pytest
import torch
from torch import nn

import fxlab
from fxlab.values.tensors import same_bits


def labels():
    drawn = torch.randint(0, 10, (64,))
    drawn[torch.rand(64) < 0.2] = -100
    return drawn


@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
def test_a_mean_that_autograd_computes_in_another_way_while_it_is_recorded_is_refused():
    torch.manual_seed(0)
    loss = nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.rand(10))
    with pytest.raises(fxlab.TraceError, match="torch computes in another way while it is recorded"):
        fxlab.trace_step(nn.Linear(6, 10), (torch.randn(64, 6), labels()), loss=loss)


def test_lengths_of_a_ctc_loss_may_be_lists():
    class WithLoss(nn.Linear):
        def forward(self, x):
            logs = super().forward(x).log_softmax(-1)
            targets = torch.tensor([[1, 2], [3, 0]])
            return nn.functional.ctc_loss(logs, targets, (8, 7), target_lengths=[2, 1])

    model, x = WithLoss(6, 6), torch.randn(8, 2, 6)
    session = fxlab.Session(fxlab.trace_step(model, x, loss=lambda output: output))
    assert same_bits(session.graph_module(**session.inputs)["loss"], model(x).detach())
