"""A trace is the same whether or not equal layers share results of fake tensors."""

import pytest
import torch
from agreement import assert_agree
from torch import nn
from torch.nn import functional as F

from fxlab import symbolic_trace
from fxlab.tracing.recording import shared_results


def attention(layer, x):
    q, k = (layer.linear(x).view(*x.shape[:2], 2, -1).transpose(1, 2) for _ in range(2))
    return x + F.scaled_dot_product_attention(q, k, q * 2).transpose(1, 2).reshape(x.shape)


def keys_and_values(layer, x):
    keys, values = layer.linear(x), layer.linear(x).to(x.dtype) * layer.scale
    repeated = (y[:, :, None].expand(-1, -1, 2, -1).flatten(1, 2) for y in (keys, values))
    leaf = (x * 2).detach().requires_grad_()
    return F.scaled_dot_product_attention(x, *repeated) + leaf.contiguous().mul(1 + leaf.requires_grad)


def halves_turned(layer, x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), dim=-1) * x[:, -1:].expand_as(x).to(torch.float64).to(x.dtype)


def writes_into_views(layer, x):
    y = x * layer.scale
    rows = y[:, 0]
    rows.add_(1)
    y.transpose(0, 1)[:1].mul_(2)
    return y + rows[:, None]


def changes_its_shape(layer, x):
    y = (x * 2).contiguous()
    z = y.detach().unsqueeze_(0).requires_grad_()
    return (y + z).squeeze(0)


def without_gradient(layer, x):
    with torch.no_grad():
        y = layer.linear(x).t() if x.dim() == 2 else layer.linear(x).mT
        y.zero_()
    return x + y.sum() + (x > x.mean()).int().argmax()


def numbers_of_all_types(layer, x):
    return x * 1 + (x * 1.0).to(torch.int64) * True + x.new_zeros(1)


def sizes_of_data(layer, x):
    return x + x[x > 0].numel() + torch.nonzero(x).shape[0]


def sizes_asked_twice(layer, x):
    found = x > x.mean()
    return x + torch.nonzero(found).sum() * torch.nonzero(found).sum() * torch.nonzero(~found).shape[0]


def windows(layer, x):
    padded = F.pad(x, (0, 0, 0, (-x.shape[1]) % 3))
    return padded.unflatten(1, (-1, 3)).mean(2)[:, : x.shape[1]].sum(1, True) + x


def complex_views(layer, x):
    y = torch.fft.fft(x)
    return y.conj().imag * 2 + y.real


LAYERS = [
    *(attention, keys_and_values, halves_turned, writes_into_views, changes_its_shape, without_gradient),
    *(numbers_of_all_types, sizes_of_data, sizes_asked_twice, windows, complex_views),
]


class Layer(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.linear, self.scale = function, nn.Linear(8, 8), nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.function(self, x)


def told(graph):
    """Return all that a trace tells of its nodes; new symbols of data have the same names in each trace."""
    for node in graph.nodes:
        value = node.meta.get("val")
        tells = (value.dtype, value.shape, value.stride()) if isinstance(value, torch.Tensor) else value
        yield str(node.format_node()), str(tells)


@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
@pytest.mark.parametrize("function", LAYERS)
def test_a_trace_is_the_same_without_sharing(function, monkeypatch):
    model = nn.Sequential(*(Layer(function) for _ in range(3)))
    x = torch.randn(2, 6, 8)
    for grad in (torch.enable_grad(), torch.no_grad()):
        with grad:
            shared = symbolic_trace(model, x, check=False)
            with monkeypatch.context() as patch:
                patch.setattr(shared_results, "can_remember", lambda sizes: False)
                alone = symbolic_trace(model, x, check=False)
        assert [*told(shared.graph)] == [*told(alone.graph)]
    assert_agree(shared, model, torch.randn(3, 7, 8))


def test_layers_that_are_alike_ask_torch_once(monkeypatch):
    known = []
    again = shared_results.SharedCall._again

    def noted(call, *of):
        result = again(call, *of)
        known.extend([call._func] * (result is not None))
        return result

    monkeypatch.setattr(shared_results.SharedCall, "_again", noted)
    layers = (Layer(function) for _ in range(5) for function in (attention, keys_and_values))
    symbolic_trace(nn.Sequential(*layers), torch.randn(2, 6, 8), check=False)
    assert known.count(torch.Tensor.transpose) >= 3 * 3
    assert known.count(F.linear) >= 3 * 4
    assert known.count(torch.Tensor.expand) >= 3 * 2
    assert known.count(torch.Tensor.to) >= 3
