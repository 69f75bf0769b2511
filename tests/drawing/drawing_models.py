"""Plain models with the shapes of the ones people draw."""

from __future__ import annotations

import torch
from torch import fx, nn

from fxlab import Session, Transformation
from fxlab.drawing import View
from fxlab.drawing.rendering.box import make_boxes


class Attention(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, size)
        self.out = nn.Linear(size, size)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2) / 8.0 + mask
        return self.out(scores.softmax(-1) @ self.value(x))


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.attention = Attention(size)
        self.norm = nn.LayerNorm(size)
        self.up, self.act, self.down = nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(x + self.attention(x, mask))
        return x + self.down(self.act(self.up(x)))


class Encoder(nn.Module):
    def __init__(self, size: int, layers: int) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Block(size) for _ in range(layers))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class Bert(nn.Module):
    """An encoder whose mask is read by every layer."""

    def __init__(self, size: int = 16, layers: int = 4) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(50, size)
        self.encoder = Encoder(size, layers)
        self.pooler = nn.Linear(size, size)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        mask = (1.0 - attention_mask) * -10000.0
        return torch.tanh(self.pooler(self.encoder(self.embeddings(input_ids), mask)[:, 0]))


class Rotary(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.ones(size))

    def forward(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = positions * self.frequencies
        return angles.cos(), angles.sin()


class RotaryAttention(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(size, size, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(size, size, bias=False)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        q, k = self.q_proj(x), self.k_proj(x)
        q, k = q * cos + q.neg() * sin, k * cos + k.neg() * sin
        return self.o_proj(nn.functional.scaled_dot_product_attention(q, k, self.v_proj(x), attn_mask=mask))


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class DecoderLayer(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.self_attn = RotaryAttention(size)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(size), RMSNorm(size)
        self.gate_proj, self.up_proj, self.down_proj = (nn.Linear(size, size, bias=False) for _ in range(3))

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(nn.functional.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    """A decoder whose rotary cos and sin are read by every layer."""

    def __init__(self, size: int = 8, layers: int = 6) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(50, size)
        self.rotary_emb = Rotary(size)
        self.layers = nn.ModuleList(DecoderLayer(size) for _ in range(layers))
        self.norm, self.lm_head = RMSNorm(size), nn.Linear(size, 50, bias=False)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(input_ids)
        cos, sin = self.rotary_emb(positions)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.lm_head(self.norm(x))


class Convolutions(nn.Module):
    """A small CNN without repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 7, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3)
        )
        self.classifier = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def flat_chain(length: int) -> fx.GraphModule:
    """Return a graph of unary calls without any metadata."""
    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(length):
        node = graph.call_function(torch.relu, (node,))
    graph.output(node)
    return fx.GraphModule(nn.Module(), graph)


def boxes_of(view: View) -> dict[str, str]:
    """Return node name -> id of the visible box that draws it."""
    return {name: box.id for box in view.boxes for name in view.hierarchy.names_in(box)}


def labels_of(view: View) -> dict[str, str]:
    """Return id of a visible box or cluster -> its complete title."""
    return {box.id: box.label for box in make_boxes(view, {}, ()).values()}


def bert_session(*passes: Transformation) -> Session:
    """Return a session of two layers with passes on."""
    torch.manual_seed(0)
    session = Session(fx.symbolic_trace(Bert(layers=2)), passes=passes)
    for pass_ in passes:
        session.apply(pass_)
    return session
