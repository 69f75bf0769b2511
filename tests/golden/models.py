"""The models of the golden vectors: small, made without a download, and each with something of its own.

The vectors have the numbers of these lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

import fxlab
from fxlab import (
    ChangeTrueDivToMulByInverse,
    EliminateCommonSubexpressions,
    FuseBatchNorm2dInConv2d,
    MergeLinears,
    RemoveIdentities,
    Session,
    Transformation,
)


class Attention(nn.Module):
    """Two linears that read the same, which are merged, and a division by a number."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.query(x)) * self.key(x) / 2.0)  # the product


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(self.norm(x))


class Mlp(nn.Module):
    """Blocks with residuals, which are folded, and a value that so many read that it becomes a chip."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 4)
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        y = self.blocks(x)
        return torch.cat([y + x, y * x, y - x, torch.maximum(y, x), torch.minimum(y, x)], -1)


class Stem(nn.Module):
    """A convolution whose norm goes away."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, image: Tensor) -> Tensor:
        return self.norm(self.conv(image)).mean((2, 3))


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(4, 5), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.query(x)) * self.key(x) / 7.0


class Conv(nn.Module):
    """Two groups: ``stem`` with a convolution to fuse, ``head`` with linears to merge."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = Stem(), Head()

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.stem(image))


class Shared(nn.Module):
    """Parameters that are read directly, and in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("steps", torch.arange(3))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) * self.scale
        x = x + self.embed(self.steps) * self.scale
        return nn.functional.linear(x.exp() + x.exp(), self.embed.weight)


class Loop(nn.Module):
    """Sixty equal nodes, which are folded, alone in a module within another."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Steps()
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inner(x))


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.deep = Deep()

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack(self.deep(x)).sum(0)


class Deep(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        made: list[Tensor] = []
        while len(made) < 60:
            made.append(torch.sin(x))
        return made


class Touch(Transformation):
    """Marks every addition."""

    @property
    def signature(self) -> str:
        """The same in every Python, which compiles the code of a class in its own way."""
        return "3d5c0792494b1dc3a89084bb62c0237e"

    def transform(self, graph_module: fx.GraphModule) -> fx.GraphModule:
        for node in graph_module.graph.nodes:
            if "add" in node.name:
                self.mark_as_transformed(node)
        return graph_module


_FOLDER = re.compile(r'File "/.*/(?=(?:transformers|torch|golden)/)')
"""What source files are in, which is different on each machine; no lines are read from where they are not."""
_FRAME = re.compile(r"  File .*\n(?:    .*\n)?")
IMG = "<img src=x onerror=alert(1)>"
QUOTES = "'`&amp;</script>"
UNICODE = "größe İ ΣΑΣ 层 🜚 \u202e"
Hostile = type(f"Evil{IMG}", (nn.Identity,), {})
"""A module whose class has a name that is no identifier."""


def hostile() -> fx.GraphModule:
    """Return a graph whose names are anything but names."""
    root = nn.Module()
    for name in (IMG, QUOTES, UNICODE):
        outer = nn.Module()
        outer.add_module(UNICODE, Hostile())
        outer.add_module(IMG, nn.Linear(2, 2))
        root.add_module(name, outer)
    graph = fx.Graph()
    x = graph.placeholder("x")
    for name in (IMG, QUOTES, UNICODE):
        for inner in (UNICODE, IMG):
            y = graph.call_module(f"{name}.{inner}", (x,))
            y.meta["nn_module_stack"] = {"": ("", nn.Module), name: (name, Hostile)}
            y.meta["stack_trace"] = (
                f'  File "/{IMG}/{QUOTES}.py", line 3, in {UNICODE}\n    {IMG} = "{UNICODE}\\"\n'
            )
            x = graph.call_function(torch.add, (x, y))
    x = graph.create_node("call_method", "exp", (x,), name="__proto__")
    x = graph.create_node("call_method", "exp", (x,), name="constructor")
    graph.output(x)
    return fx.GraphModule(root, graph)


def bert() -> tuple[nn.Module, Any]:
    import transformers as hf

    config = hf.BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=20
    )
    return hf.BertModel(config), {"input_ids": torch.ones(2, 5, dtype=torch.int64)}


def llama() -> tuple[nn.Module, Any]:
    import transformers as hf

    config = hf.LlamaConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=8, vocab_size=20,
    )  # fmt: skip
    return hf.LlamaModel(config), {"input_ids": torch.ones(2, 5, dtype=torch.int64)}


def step() -> fx.GraphModule:
    """A training step: its columns, what it keeps and returns, what it computes again, and an optimizer."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(3, 4)
            self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4)) for _ in range(3)])

        def forward(self, x: Tensor) -> Tensor:
            x = self.embed(x)
            for block in self.blocks[:2]:
                x = x + torch.relu(block(x))
            return torch.utils.checkpoint.checkpoint(self.blocks[2], x, use_reentrant=False)

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return fxlab.trace_step(net, torch.ones(2, 3), loss=lambda x: x.square().mean(), optimizer=optimizer)


MODELS: dict[str, tuple[Callable[[], Any], tuple[type[Transformation], type[Transformation]]]] = {
    "mlp": (lambda: (Mlp(), torch.ones(2, 3)), (MergeLinears, ChangeTrueDivToMulByInverse)),
    "conv": (lambda: (Conv(), torch.ones(2, 3, 8, 8)), (FuseBatchNorm2dInConv2d, MergeLinears)),
    "bert": (bert, (MergeLinears, RemoveIdentities)),
    "llama": (llama, (MergeLinears, EliminateCommonSubexpressions)),
    "hostile": (hostile, (Touch, RemoveIdentities)),
    "shared": (
        lambda: (Shared(), torch.ones(2, 3, dtype=torch.int64)),
        (EliminateCommonSubexpressions, Touch),
    ),
    "step": (step, (EliminateCommonSubexpressions, fxlab.RemoveRedundantViews)),
    "loop": (lambda: (Loop(), torch.ones(2, 4)), (Touch, RemoveIdentities)),
}
"""Name -> how the model is made, and its passes."""


def session_of(name: str) -> Session:
    """Return a session of a model, with both passes off."""
    make, passes = MODELS[name]
    torch.manual_seed(0)
    made = make()
    if not isinstance(made, fx.GraphModule):
        model, inputs = made
        made = fxlab.symbolic_trace(model.eval(), inputs)
    for node in made.graph.nodes:
        if trace := node.meta.get("stack_trace"):
            node.meta["stack_trace"] = "".join(_FRAME.findall(_FOLDER.sub('File "/code/', trace))[-3:])
    # It names files of this machine.
    made.meta.pop("trace", None)
    return Session(made, passes=[p() for p in passes])
