"""Well-known rewrites as a person writes them, and the places where they are found.

``python -m benchmarks.patterns`` looks for twenty-one patterns in nine tiny models, in traces, exported and
decomposed graphs, beside the places that are there by the architecture. Each rewrite is applied and judged.
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import torch
import transformers
from torch import nn
from torch.fx import GraphModule
from torch.nn import functional
from tqdm import tqdm
from transformers.utils import logging

import fxlab
from fxlab.models.running.arguments import Inputs

KINDS = ("trace", "exported", "decomposed")


class ConvNormRelu(nn.Module):
    """A convolution, a batch norm and a ReLU, of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()

    def forward(self, x):
        return self.relu(self.norm(self.conv(x)))


class SqueezeExcite(nn.Module):
    """Channels weighed by what a small network makes of their means."""

    def __init__(self) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)

    def forward(self, y):
        small = functional.relu(self.squeeze(y.mean((2, 3), keepdim=True)))
        return y * torch.sigmoid(self.excite(small))


def qkv(x, a, b, c, d=None, e=None, f=None):
    return functional.linear(x, a, d), functional.linear(x, b, e), functional.linear(x, c, f)


def merged(x, a, b, c, d=None, e=None, f=None):
    biases = [w.new_zeros(w.shape[0]) if z is None else z for w, z in ((a, d), (b, e), (c, f))]
    y = functional.linear(x, torch.cat((a, b, c)), torch.cat(biases))
    first, second = a.shape[0], a.shape[0] + b.shape[0]
    return y[..., :first], y[..., first:second], y[..., second:]


def swiglu(x, gate, up):
    return functional.silu(functional.linear(x, gate)) * functional.linear(x, up)


def merged_swiglu(x, gate, up):
    y = functional.linear(x, torch.cat((gate, up)))
    return functional.silu(y[..., : gate.shape[0]]) * y[..., gate.shape[0] :]


def rms_norm(x, w, eps: float):
    return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def layer_norm(x, w, b, eps: float):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * w + b


def rotated(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotary(x, cos, sin):
    return (x * cos) + (rotated(x) * sin)


def gelu(x):
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def attention(q, k, v, scale: float, mask=None):
    scores = torch.matmul(q, k.transpose(-2, -1)) * scale
    return torch.matmul(torch.softmax(scores if mask is None else scores + mask, dim=-1), v)


def fused_attention(q, k, v, scale, mask=None):
    return functional.scaled_dot_product_attention(q, k, v, mask, scale=scale)


def repeat_kv(x, a, b, c, d, n, h):
    return x[:, :, None, :, :].expand(a, b, n, c, d).reshape(a, h, c, d)


def embeddings(i, p, w, v):
    return functional.embedding(i, w) + functional.embedding(p, v)


def two_linears(x, a, b, c, d):
    return functional.linear(functional.linear(x, a, b), c, d)


REWRITES: dict[str, tuple[dict[str, int], Callable[..., Any], Callable[..., Any]]] = {
    "qkv": ({"bert": 2, "llama": 2, "t5": 4, "vit": 2, "mixtral": 2, "whisper": 4}, qkv, merged),
    "swiglu": ({"llama": 2}, swiglu, merged_swiglu),
    "rms_norm": (
        {"llama": 5, "mixtral": 5, "t5": 12},
        rms_norm,
        lambda x, w, eps: functional.rms_norm(x, w.shape, w, eps),
    ),
    "layer_norm": (
        {"hand": 2},
        layer_norm,
        lambda x, w, b, eps: functional.layer_norm(x, w.shape, w, b, eps),
    ),
    "rotary": ({"llama": 4, "mixtral": 4}, rotary, lambda x, cos, sin: rotated(x) * sin + cos * x),
    "gelu": ({"gpt2": 2}, gelu, lambda x: functional.gelu(x, approximate="tanh")),
    "attention": (
        {"bert": 2, "llama": 2, "t5": 6, "vit": 2, "gpt2": 2, "mixtral": 2, "whisper": 6},
        attention,
        fused_attention,
    ),
    "repeat_kv": ({"llama": 4, "mixtral": 4}, repeat_kv, lambda x, n: x.repeat_interleave(n, dim=1)),
    "conv_norm_relu": ({"resnet": 5, "hand": 1}, ConvNormRelu(), ConvNormRelu()),
    "residual_scale": ({"hand": 2}, lambda x, y: x + 0.5 * y, lambda x, y: torch.add(x, y, alpha=0.5)),
    "squeeze_excite": ({"hand": 2}, SqueezeExcite(), SqueezeExcite()),
    "silu": ({"hand": 2}, lambda x: x * torch.sigmoid(x), lambda x: functional.silu(x)),
    "transposes": ({"hand": 2}, lambda x, order: x.permute(order).permute(order), lambda x: x),
    "reshapes": (
        {"hand": 2, "mixtral": 2},
        lambda x, a, b: x.reshape(a).reshape(b),
        lambda x, b: x.reshape(b),
    ),
    "casts": ({"hand": 2}, lambda x, a, b: x.to(a).to(b), lambda x, b: x.to(b)),
    "dropout": (
        {"bert": 7, "llama": 2, "t5": 24, "vit": 7, "gpt2": 7, "mixtral": 2, "whisper": 22},
        lambda x: functional.dropout(x, training=False),
        lambda x: x,
    ),
    "embed_add": ({"bert": 1, "gpt2": 1, "hand": 1}, embeddings, embeddings),
    "linear_linear": (
        {"hand": 2},
        two_linears,
        lambda x, a, b, c, d: functional.linear(x, c @ a, c @ b + d),
    ),
    "softmax_max": (
        {"hand": 2},
        lambda x: torch.softmax(x - x.max(-1, keepdim=True).values, -1),
        lambda x: torch.softmax(x, -1),
    ),
    "log_softmax": (
        {"hand": 2},
        lambda x, dim: torch.log(torch.softmax(x, dim)),
        lambda x, dim: torch.log_softmax(x, dim),
    ),
    "mean_subtract": (
        {"hand": 2},
        lambda x: x - x.mean(-1, keepdim=True),
        lambda x: torch.sub(x, torch.mean(x, -1, True)),
    ),
}
"""For each rewrite the places that there are, the pattern and its replacement."""


class Hand(nn.Module):
    """The rewrites that no tiny model of transformers has, each written in two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.up2, self.down2 = (
            nn.Linear(*sizes) for sizes in ((16, 4), (4, 16), (16, 4), (4, 16))
        )
        self.weight, self.bias = nn.Parameter(torch.rand(16) + 0.5), nn.Parameter(torch.rand(16))
        self.words, self.places = nn.Embedding(20, 16), nn.Embedding(20, 16)
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.squeeze, self.excite, self.squeeze2, self.excite2 = (
            nn.Conv2d(*sizes, 1) for sizes in ((8, 2), (2, 8), (8, 2), (2, 8))
        )

    def forward(self, ids, image):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        x = self.down2(self.up2(self.down(self.up(x))))
        for _ in range(2):
            x = layer_norm(x, self.weight, self.bias, 1e-5)
        x = x * torch.sigmoid(x)
        x = torch.sigmoid(x) * x
        x = x + functional.softmax(x - x.max(-1, keepdim=True).values, -1)
        x = x + torch.softmax(x - x.amax(-1, keepdim=True), dim=-1)
        x = x + torch.log(torch.softmax(x, -1))
        x = x + functional.softmax(x, dim=-1).log()
        x = x - x.mean(-1, keepdim=True)
        x = x - torch.mean(x, dim=-1, keepdim=True)
        x = x.transpose(1, 2).transpose(1, 2).permute(0, 2, 1).permute(0, 2, 1)
        x = x.reshape(-1, 4).reshape(*ids.shape, 16).view(-1, 16).view(*ids.shape, 16)
        x = x.double().float().to(torch.float64).to(torch.float32)
        y = functional.relu(self.norm(self.conv(image)))
        y = y * torch.sigmoid(self.excite(functional.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        small = functional.relu(self.squeeze2(functional.adaptive_avg_pool2d(y, 1)))
        y = torch.sigmoid(self.excite2(small)) * y
        x = x + 0.5 * torch.tanh(x)
        return torch.sin(x) * 0.5 + x, y


def model_of(name: str) -> tuple[nn.Module, Inputs]:
    """Return a tiny model with random weights, and inputs."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    words = {"vocab_size": 60}
    made: dict[str, Callable[[], nn.Module]] = {
        "bert": lambda: transformers.BertModel(
            transformers.BertConfig(**sizes, **words, max_position_embeddings=40)
        ),
        "llama": lambda: transformers.LlamaModel(
            transformers.LlamaConfig(**sizes, **words, num_key_value_heads=2)
        ),
        "t5": lambda: transformers.T5Model(
            transformers.T5Config(d_model=32, d_ff=48, num_layers=2, num_heads=4, d_kv=8, **words)
        ),
        "vit": lambda: transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=8)),
        "resnet": lambda: transformers.ResNetModel(
            transformers.ResNetConfig(
                embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic"
            )
        ),
        "gpt2": lambda: transformers.GPT2Model(
            transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=40, **words)
        ),
        "mixtral": lambda: transformers.MixtralModel(
            transformers.MixtralConfig(**sizes, **words, num_key_value_heads=2, num_local_experts=4)
        ),
        "whisper": lambda: transformers.WhisperModel(
            transformers.WhisperConfig(
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=48,
                decoder_ffn_dim=48,
                max_source_positions=40,
                max_target_positions=40,
                num_mel_bins=16,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                decoder_start_token_id=1,
                **words,
            )
        ),
        "hand": Hand,
    }
    torch.manual_seed(0)
    model = made[name]().eval()
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "use_cache"):
            config.use_cache = False
        if hasattr(config, "_attn_implementation"):
            config._attn_implementation = "eager"
    if name == "hand":
        return model, {"ids": torch.randint(0, 20, (2, 6)), "image": torch.rand(2, 3, 8, 8)}
    return model, fxlab.example_inputs(model)


MODELS = ("bert", "llama", "t5", "vit", "resnet", "gpt2", "mixtral", "whisper", "hand")


def graph_of(name: str, kind: str) -> tuple[GraphModule, Inputs]:
    """Return the graph of a model in one dialect."""
    model, inputs = model_of(name)
    if kind == "trace":
        return fxlab.symbolic_trace(model, inputs), inputs
    program = torch.export.export(model, (), dict(inputs))
    return fxlab.from_exported(program.run_decompositions() if kind == "decomposed" else program), inputs


def found_in(name: str, kind: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each rewrite that a model has or fxlab finds."""
    graph_module, inputs = graph_of(name, kind)
    for rewrite, (known, pattern, replacement) in REWRITES.items():
        pass_ = fxlab.from_pattern(pattern, replacement, name=rewrite, preserves_computation=True)
        began = time.perf_counter()
        table = pass_.explain(graph_module)
        seconds = time.perf_counter() - began
        is_match = table.matched | ~table.reason.str.contains("calls fit")
        found = table[is_match].candidate.nunique()
        applied = table[table.matched].candidate.nunique()
        if not found and rewrite not in (key for key, value in REWRITES.items() if name in value[0]):
            continue
        agrees = ""
        if applied:
            session = fxlab.Session(graph_module, inputs, passes=[pass_])
            session.apply(rewrite)
            agrees = "yes" if session.verdict().agrees else "NO"
        row = {"model": name, "kind": kind, "rewrite": rewrite, "known": known.get(name, 0), "found": found}
        yield row | {"applied": applied, "agrees": agrees, "seconds": round(seconds, 2)}


def main() -> None:
    """Count, judge and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=MODELS, help="models to try; all by default")
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    chosen = [(name, kind) for kind in KINDS for name in parser.parse_args().names]
    rows = pd.DataFrame(row for name, kind in tqdm(chosen, unit="graph") for row in found_in(name, kind))
    rows["of_known"] = rows[["known", "found"]].min(axis=1)
    pairs = rows.pivot_table(
        index="rewrite", columns="kind", values=["known", "of_known", "applied"], aggfunc="sum"
    )
    print(pairs.fillna(0).astype(int).to_string())
    print(rows.groupby("kind")[["known", "of_known", "found", "applied"]].sum().to_string())
    print(rows.groupby("agrees").applied.sum().to_string())


if __name__ == "__main__":
    main()
