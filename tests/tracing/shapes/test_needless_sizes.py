"""Calls for which torch reads numbers or fixes sizes to no effect: their graphs hold for other sizes."""

import pytest
import torch
import torch.nn.functional as F
from agreement import assert_agree
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fxlab import symbolic_trace


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.recurrent, self.options = kind(3, 4, num_layers=2, batch_first=True), options

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, **self.options)
        output, state = self.recurrent(packed)
        return *pad_packed_sequence(output, batch_first=True, total_length=x.shape[1]), output.data, state


def sequences(n):
    return torch.randn(n - 1, n + 2, 3), torch.tensor([n, *range(n - 2, 0, -1)])


def stored(x, k):
    result = x.clone()
    result[k, 1:] += 2.0
    return result


def into(a, b):
    torch.matmul(a, b, out=(result := torch.empty(0)))
    return result


def variances(n):
    return torch.randn(n, 3), torch.randn(n, 3), torch.rand(n, 3) + 0.1


def texts(n):
    lengths = torch.full((n,), 12), torch.full((n,), 4)
    return torch.randn(12, n, 6).log_softmax(-1), torch.randint(1, 6, (n, 4)), *lengths


CASES = {
    "an index": (lambda x, k: x[k], lambda n: (torch.randn(n, 4), torch.tensor(n - 2))),
    "an index among others": (
        lambda x, k: x[None, :, k, 1:],
        lambda n: (torch.randn(2, n, 4), torch.tensor(1)),
    ),
    "an index computed": (lambda x: x[x[:, 0].argmax()], lambda n: (torch.randn(n, 4),)),
    "an index to write at": (stored, lambda n: (torch.randn(n, 4), torch.tensor(n - 1))),
    "variances": (lambda *given: F.gaussian_nll_loss(*given, reduction="none"), variances),
    "lengths": (lambda *given: F.ctc_loss(*given, reduction="sum"), texts),
    "covariances": (lambda x: torch.cov(x.T) + x.T.corrcoef(), lambda n: (torch.randn(n, 3),)),
    "a pool": (nn.AdaptiveMaxPool3d((None, 2, None)), lambda n: (torch.randn(1, 2, n, 5, n),)),
    "a class of tensors": (lambda x: x.type(torch.HalfTensor), lambda n: (torch.randn(n, 3),)),
    "numbers of a class": (
        lambda x: x.masked_fill(torch.BoolTensor([True, False, True]), 0.5),
        lambda n: (torch.randn(n, 3),),
    ),
    "sizes of a class": (
        lambda x: x + torch.DoubleTensor(x.shape[0], 1).fill_(3.0),
        lambda n: (torch.randn(n, 3),),
    ),
    "packed": (Recurrent(nn.GRU), sequences),
    "packed and sorted": (Recurrent(nn.LSTM, enforce_sorted=False), sequences),
    "a result": (into, lambda n: (torch.randn(n, 4), torch.randn(4, 5))),
}


@pytest.mark.parametrize("case", CASES)
def test_a_size_that_torch_reads_to_no_effect_is_followed(case):
    function, given = CASES[case]
    model = function if isinstance(function, nn.Module) else Calls(function)
    traced = symbolic_trace(model, given(4))
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, model, given(7))


def test_an_empty_batch_of_whole_numbers():
    tokens = torch.zeros(0, 4, dtype=torch.long)
    with pytest.warns(UserWarning, match=r"input.shape\[0\] fixed at 0"):
        traced = symbolic_trace(nn.Embedding(5, 3), tokens)
    assert traced(tokens).shape == (0, 4, 3)
