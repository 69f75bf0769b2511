"""Rewrites as a person writes them, found in a model that writes them otherwise, in every dialect."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fxlab
from fxlab import Session, from_pattern

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's, of run_decompositions
X = torch.randn(2, 5, 8)


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.weight, self.bias = nn.Parameter(torch.rand(8) + 0.5), nn.Parameter(torch.rand(8))
        self.matrix = nn.Parameter(torch.rand(8, 8))
        self.layer_norm, self.group_norm = nn.LayerNorm(8), nn.GroupNorm(2, 8)
        self.batch_norm, self.conv = nn.BatchNorm1d(8), nn.Conv1d(8, 8, 3, padding=1)
        self.third = nn.Linear(5, 5)
        self.words, self.gelu = nn.Embedding(10, 8), nn.GELU()

    def forward(self, x):
        return self.function(self, x)


def normalized(x, w, b, eps: float):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + eps) * w + b


def folded_norm(x, w, b, mean, variance, g, h):
    scale = g * torch.rsqrt(variance + 1e-5)
    return F.linear(x, w * scale[:, None], (b - mean) * scale + h)


class Layers(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.activation = activation
        self.conv, self.norm, self.linear = nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4), nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(self.activation(self.norm(self.conv(x))))


REWRITES = {
    "modules": (
        Layers(torch.relu),
        Layers(lambda x: torch.clamp(x, min=0)),
        lambda m, x: m.third(torch.relu(m.batch_norm(m.conv(x.transpose(1, 2))))),
    ),
    "gated": (
        lambda x, a, b: F.gelu(F.linear(x, a)) * F.linear(x, b),
        lambda x, a, b: F.linear(x, b) * F.gelu(F.linear(x, a)),
        lambda m, x: F.linear(x, m.matrix) * m.gelu(F.linear(x, m.first.weight)),
    ),
    "two layers": (
        lambda x, a, b, c, d: F.linear(F.gelu(F.linear(x, a, b)), c, d),
        lambda x, a, b, c, d: F.gelu(x @ a.t() + b) @ c.t() + d,
        lambda m, x: m.second(m.gelu(m.first(x))),
    ),
    "length": (
        lambda x: x / x.norm(dim=-1, keepdim=True),
        lambda x: F.normalize(x, dim=-1),
        lambda m, x: x / torch.norm(x, dim=-1, keepdim=True),
    ),
    "layer norm": (
        normalized,
        lambda x, w, b, eps: F.layer_norm(x, w.shape, w, b, eps),
        lambda m, x: m.weight * ((x - x.mean(-1, True)) / torch.sqrt(x.var(-1, False, True) + 1e-6)) + m.bias,
    ),
    "layer norm of a sum": (
        lambda x, y, w, b: F.layer_norm(x + y, (8,), w, b),
        lambda x, y, w, b: F.layer_norm(x + y, (8,)) * w + b,
        lambda m, x: m.layer_norm(m.first(x) + x),
    ),
    "group norm": (
        lambda x, w, b: F.group_norm(x, 2, w, b),
        lambda x, w, b: F.group_norm(x, 2) * w.reshape(1, -1, 1) + b.reshape(1, -1, 1),
        lambda m, x: m.group_norm(x.transpose(1, 2)),
    ),
    "batch norm behind a linear": (
        lambda x, w, b, mean, var, g, h: F.batch_norm(F.linear(x, w, b), mean, var, g, h),
        folded_norm,
        lambda m, x: m.batch_norm(m.first(x[:, 0])),
    ),
    "convolution": (
        lambda x, w, b: F.relu(F.conv1d(x, w, b, padding=1)),
        lambda x, w, b: torch.clamp(F.conv1d(x, w, b, padding=1), min=0),
        lambda m, x: torch.relu(m.conv(x.transpose(1, 2))),
    ),
    "hardswish": (
        lambda x: x * F.relu6(x + 3) / 6,
        lambda x: F.hardswish(x),
        lambda m, x: (x + 3).clamp(min=0, max=6) * x / 6,
    ),
    "gelu": (
        lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
        lambda x: F.gelu(x, approximate="tanh"),
        lambda m, x: x * 0.5 * (torch.tanh((x + torch.pow(x, 3) * 0.044715) * 0.7978845608028654) + 1),
    ),
    "softmax": (
        lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True),
        lambda x: torch.softmax(x, -1),
        lambda m, x: x.exp() / x.exp().sum(2, keepdim=True),
    ),
    "where": (
        lambda x: torch.where(x > 0, x, 0.0),
        lambda x: torch.relu(x),
        lambda m, x: torch.where(x > 0, x, 0.0) + 1,
    ),
    "fill": (
        lambda x, mask: x.masked_fill(mask, -1e9),
        lambda x, mask: torch.where(mask, -1e9, x),
        lambda m, x: x.masked_fill(x > 0.5, -1e9) + 1,
    ),
    "squeezed": (lambda x: x.unsqueeze(1).squeeze(1), lambda x: x, lambda m, x: x[:, None].squeeze(1) + 1),
    "scaled words": (
        lambda i, w, c: F.embedding(i, w) * c,
        lambda i, w, c: F.embedding(i, w * c),
        lambda m, x: m.words((x > 0).long()[..., 0]) * 2.5,
    ),
    "product": (
        lambda x, w, b: x @ w + b,
        lambda x, w, b: F.linear(x, w.t(), b),
        lambda m, x: torch.matmul(x, m.matrix) + m.bias,
    ),
    "halves": (
        lambda x: x.chunk(2, -1)[0] * torch.sigmoid(x.chunk(2, -1)[1]),
        lambda x: F.glu(x, -1),
        lambda m, x: (parts := x.chunk(2, dim=2))[0] * torch.sigmoid(parts[1]),
    ),
    "a chain of factors": (
        lambda x, a: 2 * x * a * 3,
        lambda x, a: 6 * (x * a),
        lambda m, x: (x * 6.0) * m.weight,
    ),
    "dropout": (
        lambda x, w, b: F.linear(x, w, b),
        lambda x, w, b: x @ w.t() + b,
        lambda m, x: m.first(F.dropout(x.contiguous(), 0.3, False)),
    ),
}


@pytest.mark.often(5)
@pytest.mark.parametrize("name", REWRITES)
def test_a_rewrite_is_found_and_exact_in_every_dialect(name):
    pattern, replacement, function = REWRITES[name]
    torch.manual_seed(0)
    model = Model(function).eval()
    program = torch.export.export(model, (X,))
    for graph_module in (
        fxlab.symbolic_trace(model, X),
        fxlab.from_exported(program),
        fxlab.from_exported(program.run_decompositions()),
    ):
        session = Session(
            graph_module, X, passes=[from_pattern(pattern, replacement, name="p", preserves_computation=True)]
        )
        table = session.explain("p")
        assert table[table.matched].candidate.nunique() == 1, session.why_not("p").reason.tolist()
        session.apply("p")
        assert session.verdict().agrees
