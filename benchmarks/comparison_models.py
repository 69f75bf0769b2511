"""Six architectures of transformers and ports of them by hand, in which a mistake can be planted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import nn
from torch.nn import functional as F  # noqa: N812

AT = 2
"""The layer with the mistake."""
_MODEL = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}


def _heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.reshape(*x.shape[:-1], heads, -1).transpose(-3, -2)


def _joined(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-3, -2).flatten(-2)


class Gpt2Block(nn.Module):
    """A layer of GPT-2; its linears are functions."""

    mistakes = "gelu", "mask", "scale", "post-norm", "eps"

    def __init__(self, layer: Any, mistake: str) -> None:
        super().__init__()
        self.mistake = mistake
        self.ln1, self.ln2 = layer.ln_1, layer.ln_2
        self.wqkv, self.bqkv = nn.Parameter(layer.attn.c_attn.weight.T.clone()), layer.attn.c_attn.bias
        self.wo, self.bo = nn.Parameter(layer.attn.c_proj.weight.T.clone()), layer.attn.c_proj.bias
        self.w1, self.b1 = nn.Parameter(layer.mlp.c_fc.weight.T.clone()), layer.mlp.c_fc.bias
        self.w2, self.b2 = nn.Parameter(layer.mlp.c_proj.weight.T.clone()), layer.mlp.c_proj.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layer."""
        h = F.layer_norm(
            x, x.shape[-1:], self.ln1.weight, self.ln1.bias, 1e-3 if self.mistake == "eps" else 1e-5
        )
        q, k, v = (_heads(each, 4) for each in F.linear(h, self.wqkv, self.bqkv).chunk(3, -1))
        scale = 0.3 if self.mistake == "scale" else None
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.mistake != "mask", scale=scale)
        x = x + F.linear(_joined(a), self.wo, self.bo)
        h = x if self.mistake == "post-norm" else self.ln2(x)
        h = F.gelu(F.linear(h, self.w1, self.b1), approximate="none" if self.mistake == "gelu" else "tanh")
        h = F.linear(h, self.w2, self.b2)
        return x + (self.ln2(h) if self.mistake == "post-norm" else h)


class Gpt2(nn.Module):
    """GPT-2 by hand."""

    block = Gpt2Block

    def __init__(self, model: Any, mistake: str) -> None:
        super().__init__()
        body = model.transformer
        self.wte, self.wpe, self.norm = body.wte, body.wpe, body.ln_f
        self.blocks = nn.ModuleList(Gpt2Block(b, mistake if i == AT else "") for i, b in enumerate(body.h))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.wte.weight.T


class LlamaBlock(nn.Module):
    """A layer of Llama; attention by hand, two products of the MLP at once."""

    mistakes = "rope", "silu", "norm in float16", "kv heads", "weight"

    def __init__(self, layer: Any, mistake: str) -> None:
        super().__init__()
        self.mistake = mistake
        attention, mlp = layer.self_attn, layer.mlp
        self.norm1, self.norm2 = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        self.q, self.k, self.v, self.o = (getattr(attention, f"{n}_proj") for n in "qkvo")
        self.up = nn.Parameter(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).clone())
        self.down = nn.Parameter(mlp.down_proj.weight.clone())
        if mistake == "weight":
            with torch.no_grad():
                self.down[3] = self.down[4]

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Run the layer."""
        h = self._norm(x, self.norm1)
        q, k, v = (_heads(each(h), n) for each, n in ((self.q, 4), (self.k, 2), (self.v, 2)))
        q, k = self._turned(q, cos, sin), self._turned(k, cos, sin)
        if self.mistake == "kv heads":
            k, v = (each.repeat(1, 2, 1, 1) for each in (k, v))
        else:
            k, v = (each.repeat_interleave(2, 1) for each in (k, v))
        scores = (q * 8**-0.5) @ k.mT
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        a = scores.masked_fill(later, -1e9).softmax(-1) @ v
        x = x + self.o(_joined(a))
        gate, up = (self._norm(x, self.norm2) @ self.up.T).chunk(2, -1)
        gate = F.gelu(gate) if self.mistake == "silu" else gate * gate.sigmoid()
        return x + (gate * up) @ self.down.T

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if self.mistake == "norm in float16":
            x = x + 1e-3
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight

    def _turned(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        if self.mistake == "rope":
            a, b = x[..., ::2], x[..., 1::2]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Llama(nn.Module):
    """Llama by hand."""

    block = LlamaBlock

    def __init__(self, model: Any, mistake: str) -> None:
        super().__init__()
        self.embed, self.norm, self.head = model.model.embed_tokens, model.model.norm.weight, model.lm_head
        layers = enumerate(model.model.layers)
        self.blocks = nn.ModuleList(LlamaBlock(b, mistake if i == AT else "") for i, b in layers)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.embed(tokens)
        angles = torch.outer(torch.arange(tokens.shape[1]), 10000.0 ** (-torch.arange(0, 8, 2) / 8))
        for block in self.blocks:
            x = block(x, angles.cos(), angles.sin())
        return self.head(F.rms_norm(x, x.shape[-1:], self.norm, 1e-6))


class BertBlock(nn.Module):
    """A layer of BERT."""

    mistakes = "gelu", "mask", "residual", "eps", "out bias"

    def __init__(self, layer: Any, mistake: str) -> None:
        super().__init__()
        self.mistake = mistake
        own = layer.attention.self
        self.wqkv = nn.Parameter(torch.cat([own.query.weight, own.key.weight, own.value.weight]).clone())
        self.bqkv = nn.Parameter(torch.cat([own.query.bias, own.key.bias, own.value.bias]).clone())
        self.out, self.norm1 = layer.attention.output.dense, layer.attention.output.LayerNorm
        self.up, self.down = layer.intermediate.dense, layer.output.dense
        self.norm2 = layer.output.LayerNorm

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Run the layer."""
        q, k, v = (_heads(each, 4) for each in F.linear(x, self.wqkv, self.bqkv).chunk(3, -1))
        bias = torch.zeros(mask.shape).masked_fill(mask == 0, -1e9)[:, None, None]
        scores = q @ k.mT / 8**0.5 + (0 if self.mistake == "mask" else bias)
        a = _joined(scores.softmax(-1) @ v)
        a = a @ self.out.weight.T + (0 if self.mistake == "out bias" else self.out.bias)
        x = self.norm1(a if self.mistake == "residual" else a + x)
        h = F.gelu(self.up(x), approximate="tanh" if self.mistake == "gelu" else "none")
        h = self.down(h) + x
        eps = 1e-5 if self.mistake == "eps" else self.norm2.eps
        return F.layer_norm(h, h.shape[-1:], self.norm2.weight, self.norm2.bias, eps)


class Bert(nn.Module):
    """BERT by hand."""

    block = BertBlock

    def __init__(self, model: Any, mistake: str) -> None:
        super().__init__()
        self.embeddings = model.embeddings
        layers = enumerate(model.encoder.layer)
        self.blocks = nn.ModuleList(BertBlock(b, mistake if i == AT else "") for i, b in layers)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return hidden states."""
        e = self.embeddings
        x = e.word_embeddings(input_ids) + e.position_embeddings.weight[: input_ids.shape[1]]
        x = e.LayerNorm(x + e.token_type_embeddings.weight[0])
        for block in self.blocks:
            x = block(x, attention_mask)
        return x


class VitBlock(nn.Module):
    """A layer of ViT."""

    mistakes = "heads", "scale", "no second norm", "gelu", "keys for values"

    def __init__(self, layer: Any, mistake: str) -> None:
        super().__init__()
        self.mistake = mistake
        parts = dict(layer.named_modules())

        def linear(*ends: str) -> nn.Linear:
            return next(m for n, m in parts.items() if n.endswith(ends) and isinstance(m, nn.Linear))

        self.q, self.k, self.v = linear("query", "q_proj"), linear("key", "k_proj"), linear("value", "v_proj")
        linears = [m for m in parts.values() if isinstance(m, nn.Linear)]
        self.o = next(
            m for m in linears if m not in (self.q, self.k, self.v) and m.out_features == m.in_features
        )
        self.up = next(m for m in linears if m.out_features > m.in_features)
        self.down = next(m for m in linears if m.out_features < m.in_features)
        self.norm1, self.norm2 = layer.layernorm_before, layer.layernorm_after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layer."""
        h = self.norm1(x)
        heads = 2 if self.mistake == "heads" else 4
        q, k, v = (_heads(each(h), heads) for each in (self.q, self.k, self.v))
        scale = 8**-0.25 if self.mistake == "scale" else 32**-0.5 * heads**0.5
        a = torch.einsum("bhqd,bhkd->bhqk", q, k).mul(scale).softmax(-1)
        x = x + self.o(_joined(a @ (k if self.mistake == "keys for values" else v)))
        h = self.up(x if self.mistake == "no second norm" else self.norm2(x))
        h = F.gelu(h, approximate="tanh" if self.mistake == "gelu" else "none")
        return x + self.down(h)


class Vit(nn.Module):
    """ViT by hand: patches by unfolding."""

    block = VitBlock

    def __init__(self, model: Any, mistake: str) -> None:
        super().__init__()
        e = model.embeddings
        self.cls, self.position, self.norm = e.cls_token, e.position_embeddings, model.layernorm
        self.patches = nn.Parameter(e.patch_embeddings.projection.weight.flatten(1).T.clone())
        self.bias = e.patch_embeddings.projection.bias
        layers = next(m for m in model.modules() if isinstance(m, nn.ModuleList))
        self.blocks = nn.ModuleList(VitBlock(b, mistake if i == AT else "") for i, b in enumerate(layers))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return hidden states."""
        x = F.unfold(pixels, 4, stride=4).mT @ self.patches + self.bias
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class ResNetBlock(nn.Module):
    """A layer of ResNet with its batch norms folded into scales and shifts."""

    mistakes = "eps", "no relu", "shortcut", "running variance", "padding"

    def __init__(self, layer: Any, mistake: str) -> None:
        super().__init__()
        self.mistake = mistake
        self.convolutions = nn.ModuleList(part.convolution for part in layer.layer)
        self.norms = nn.ModuleList(part.normalization for part in layer.layer)
        has_one = hasattr(layer.shortcut, "convolution")
        self.shortcut = layer.shortcut.convolution if has_one else None
        self.shortcut_norm = layer.shortcut.normalization if has_one else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layer."""
        h = x
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            if self.mistake == "padding" and i == 1:
                h = F.pad(h, (1, 1, 1, 1), mode="replicate")
                h = F.conv2d(h, convolution.weight, stride=convolution.stride)
            else:
                h = convolution(h)
            h = self._norm(h, norm, self.mistake if i == 1 else "")
            if i + 1 < len(self.norms) and self.mistake != "no relu":
                h = h.clamp_min(0)
        side = x if self.shortcut is None else self._norm(self.shortcut(x), self.shortcut_norm, "")
        return F.relu(h if self.mistake == "shortcut" else h + side)

    @staticmethod
    def _norm(x: torch.Tensor, norm: Any, mistake: str) -> torch.Tensor:
        eps = 1e-2 if mistake == "eps" else norm.eps
        variance = norm.running_mean.abs() if mistake == "running variance" else norm.running_var
        x = (x - norm.running_mean[:, None, None]) / torch.sqrt(variance + eps)[:, None, None]
        return x * norm.weight[:, None, None] + norm.bias[:, None, None]


class ResNet(nn.Module):
    """ResNet by hand."""

    block = ResNetBlock

    def __init__(self, model: Any, mistake: str) -> None:
        super().__init__()
        self.stem = model.embedder.embedder
        layers = [layer for stage in model.encoder.stages for layer in stage.layers]
        self.blocks = nn.ModuleList(ResNetBlock(b, mistake if i == AT else "") for i, b in enumerate(layers))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the last features."""
        x = F.max_pool2d(self.stem(pixels), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return x


class MixerBlock(nn.Module):
    """A layer with two recurrent gates, as no architecture of transformers has."""

    mistakes = "order", "gate", "decay", "norm", "shift"

    def __init__(self, layer: Any, mistake: str) -> None:
        super().__init__()
        self.inner, self.mistake = layer, mistake

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layer, in steps of a loop."""
        m, mistake = self.inner, self.mistake
        h = x if mistake == "norm" else m.norm(x)
        before = h if mistake == "shift" else torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], 1)
        key, value = m.key(before), m.value(h)
        state, states = torch.zeros_like(value[:, 0]), []
        decay = m.decay.sigmoid() ** (2 if mistake == "decay" else 1)
        for step in range(x.shape[1]):
            at = x.shape[1] - 1 - step if mistake == "order" else step
            state = state * decay + key[:, at].tanh() * value[:, at]
            states.append(state)
        gate = m.gate(h).tanh() if mistake == "gate" else m.gate(h).sigmoid()
        return x + m.out(gate * torch.stack(states, 1))


class MixerLayer(nn.Module):
    """The same with one product of matrices for the recurrence."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.decay = nn.LayerNorm(16), nn.Parameter(torch.randn(16))
        self.key, self.value, self.gate, self.out = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layer."""
        h = self.norm(x)
        update = self.key(F.pad(h, (0, 0, 1, 0))[:, :-1]).tanh() * self.value(h)
        steps = torch.arange(x.shape[1])
        power = (steps[:, None] - steps).clamp_min(0)[..., None]
        weight = torch.where((steps[:, None] >= steps)[..., None], self.decay.sigmoid() ** power, 0)
        return x + self.out(self.gate(h).sigmoid() * torch.einsum("tsd,bsd->btd", weight, update))


class MixerModel(nn.Module):
    """Layers of one kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MixerLayer() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return hidden states."""
        for layer in self.layers:
            x = layer(x)
        return x


class Mixer(nn.Module):
    """The port."""

    block = MixerBlock

    def __init__(self, model: MixerModel, mistake: str) -> None:
        super().__init__()
        layers = enumerate(model.layers)
        self.blocks = nn.ModuleList(MixerBlock(b, mistake if i == AT else "") for i, b in layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return hidden states."""
        for block in self.blocks:
            x = block(x)
        return x


def _gpt2() -> Any:
    config = hf.GPT2Config(
        n_embd=32,
        n_layer=4,
        n_head=4,
        vocab_size=100,
        n_positions=32,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return hf.GPT2LMHeadModel(config)


def _llama() -> Any:
    config = hf.LlamaConfig(
        **_MODEL, intermediate_size=48, vocab_size=100, num_key_value_heads=2, use_cache=False
    )
    return hf.LlamaForCausalLM(config)


def _bert() -> Any:
    return hf.BertModel(
        hf.BertConfig(**_MODEL, intermediate_size=64, vocab_size=100), add_pooling_layer=False
    )


def _vit() -> Any:
    config = hf.ViTConfig(**_MODEL, intermediate_size=64, image_size=16, patch_size=4)
    return hf.ViTModel(config, add_pooling_layer=False)


def _resnet() -> Any:
    config = hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic", num_channels=3
    )
    return hf.ResNetModel(config)


PORTS: dict[str, tuple[Callable[[], Any], Any]] = {
    "GPT-2": (_gpt2, Gpt2),
    "Llama": (_llama, Llama),
    "BERT": (_bert, Bert),
    "ViT": (_vit, Vit),
    "ResNet": (_resnet, ResNet),
    "recurrent": (MixerModel, Mixer),
}


def reference(name: str) -> nn.Module:
    """Return a model with random weights, in which no weight is a constant."""
    torch.manual_seed(0)
    model: nn.Module = PORTS[name][0]().eval()
    with torch.no_grad():
        for tensor_name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.dim() == 1 and tensor.is_floating_point() and "inv_freq" not in tensor_name:
                tensor.add_(torch.rand_like(tensor) * 0.3)
    return model


def inputs_of(name: str) -> dict[str, torch.Tensor]:
    """Return what the model is called with."""
    generator = torch.Generator().manual_seed(1)
    if name in ("ViT", "ResNet"):
        size = 16 if name == "ViT" else 64
        return {"pixel_values": torch.randn(2, 3, size, size, generator=generator)}
    if name == "recurrent":
        return {"x": torch.randn(2, 7, 16, generator=generator)}
    ids = torch.randint(0, 100, (2, 9), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    return {"input_ids": ids, "attention_mask": mask} if name == "BERT" else {"input_ids": ids}
