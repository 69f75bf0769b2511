"""Mistakes of many classes, each planted in one place of a graph, for ``benchmarks.verdicts``."""

from __future__ import annotations

import copy
import operator
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from benchmarks.verdict_models import NORMS

Plant = Callable[[GraphModule, Node], bool]
"""Plants a mistake at a node of a copy; ``False`` if the node has nothing of the kind."""

_NORMS = (*NORMS, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)
_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def planted(graph: GraphModule, seed: int, share: float) -> Iterator[tuple[str, GraphModule]]:
    """Yield graphs with a mistake of a share of the classes, each where a place for it is found first."""
    for kind, plant in BUGS.items():
        chance = random.Random(f"{seed} {kind}")
        if chance.random() > share:
            continue
        wrong = copy.deepcopy(graph)
        places = [n for n in wrong.graph.nodes if n.op in ("call_module", "call_function", "call_method")]
        chance.shuffle(places)
        with torch.no_grad():
            if any(plant(wrong, node) for node in places):
                wrong.graph.lint()
                wrong.recompile()
                yield kind, wrong


def _module(graph: GraphModule, node: Node, *types: type) -> Any:
    module = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
    return module if isinstance(module, types) else None


def _weights(change: Callable[[torch.Tensor], Any]) -> Plant:
    def plant(graph: GraphModule, node: Node) -> bool:
        module = _module(graph, node, *_WEIGHTED)
        if module is None:
            return False
        change(module.weight)
        return True

    return plant


def _all_of(weight: torch.Tensor) -> None:
    weight *= 1.01


def _row(weight: torch.Tensor) -> None:
    weight[0] *= 1.05


def _element(weight: torch.Tensor) -> None:
    weight.view(-1)[weight.abs().argmax()] *= 1.2


def _rows_swapped(weight: torch.Tensor) -> None:
    weight[:2] = weight[:2].flip(0).clone()


def _no_bias(graph: GraphModule, node: Node) -> bool:
    module = _module(graph, node, *_WEIGHTED[:-1], *_NORMS)
    if module is None or getattr(module, "bias", None) is None or not module.bias.any():
        return False
    module.bias.zero_()
    return True


def _bias(graph: GraphModule, node: Node) -> bool:
    module = _module(graph, node, *_WEIGHTED[:-1], *_NORMS)
    if module is None or getattr(module, "bias", None) is None or not module.bias.any():
        return False
    module.bias *= 1.02
    return True


def _eps(graph: GraphModule, node: Node) -> bool:
    module = _module(graph, node, *_NORMS)
    if module is None:
        return False
    module.eps = 1e-3
    return True


def _stale(graph: GraphModule, node: Node) -> bool:
    module = _module(graph, node, *NORMS)
    if module is None:
        return False
    module.running_var *= 1.02
    return True


def _wrong_channel(graph: GraphModule, node: Node) -> bool:
    module = _module(graph, node, *_NORMS)
    if module is None or module.weight is None:
        return False
    module.weight.copy_(module.weight.roll(1))
    return True


def _dropout(graph: GraphModule, node: Node) -> bool:
    module = _module(graph, node, nn.Dropout)
    if module is None or not module.p:
        return False
    module.train()
    return True


def _trains(graph: GraphModule, node: Node) -> bool:
    module = _module(graph, node, *NORMS)
    if module is None:
        return False
    module.train()
    return True


def _after(*targets: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Plant:
    """Change the result of a call."""

    def plant(graph: GraphModule, node: Node) -> bool:
        module = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
        if node.target not in targets and type(module) not in targets:
            return False
        with graph.graph.inserting_after(node):
            new = graph.graph.call_function(change, (node,))
        node.replace_all_uses_with(new, lambda user: user is not new)
        return True

    return plant


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x if x.dim() != 4 or x.shape[1] < 2 else x.roll(1, 1)


def _positions(x: torch.Tensor) -> torch.Tensor:
    return x.roll(1, -2) if x.dim() > 2 else x.roll(1, 0)


def _last_dropped(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[..., :-1], torch.zeros_like(x[..., -1:])], -1)


def _one_element(x: torch.Tensor) -> torch.Tensor:
    result = x.clone()
    result.view(-1)[result.numel() // 2] *= 1.05
    return result


def _one_row(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[:1] * 1.01, x[1:]])


def _lower(x: torch.Tensor) -> torch.Tensor:
    lower = torch.float8_e4m3fn if x.dtype in (torch.bfloat16, torch.float16) else torch.bfloat16
    return x.to(lower).to(x.dtype)


def _lower_row(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([_lower(x[:1]), x[1:]])


def _slightly_shifted(x: torch.Tensor) -> torch.Tensor:
    return x + 1e-3


def _clamped(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(max=float(x.max()) * 0.9)


_LAYERS = (nn.Linear, *_CONVOLUTIONS)
_MIXERS = (F.scaled_dot_product_attention, torch.matmul, operator.matmul)


def _argument(target: Any, name: str, value: Callable[[Any], Any]) -> Plant:
    """Change a keyword argument of a call."""

    def plant(graph: GraphModule, node: Node) -> bool:
        if node.target is not target:
            return False
        before = node.kwargs.get(name)
        after = value(before)
        if after is before:
            return False
        node.kwargs = {**node.kwargs, name: after}
        return True

    return plant


def _residual(graph: GraphModule, node: Node) -> bool:
    if node.target not in (operator.add, torch.add) or not all(isinstance(a, Node) for a in node.args):
        return False
    node.replace_all_uses_with(node.args[1])  # type: ignore[arg-type]
    return True


def _subtracted(graph: GraphModule, node: Node) -> bool:
    if node.target is not operator.add or not all(isinstance(a, Node) for a in node.args):
        return False
    node.target = operator.sub
    return True


def _activation(graph: GraphModule, node: Node) -> bool:
    if isinstance(_module(graph, node, nn.GELU), nn.GELU):
        graph.set_submodule(str(node.target), nn.GELU(approximate="tanh"))
        return True
    if node.target is F.gelu and not node.kwargs.get("approximate"):
        node.kwargs = {**node.kwargs, "approximate": "tanh"}
        return True
    return False


def _stride(graph: GraphModule, node: Node) -> bool:
    module = _module(graph, node, *_CONVOLUTIONS)
    if module is None or not isinstance(module.padding, tuple) or not any(module.padding):
        return False
    module.padding_mode, module._reversed_padding_repeated_twice = (
        "replicate",
        [p for p in reversed(module.padding) for _ in range(2)],
    )
    return True


def _number(graph: GraphModule, node: Node) -> bool:
    if node.target not in (operator.mul, operator.truediv) or not isinstance(node.args[1], float):
        return False
    node.args = (node.args[0], node.args[1] * 1.005)
    return True


def _operands(graph: GraphModule, node: Node) -> bool:
    if node.target not in (operator.sub, operator.truediv) or not all(isinstance(a, Node) for a in node.args):
        return False
    node.args = node.args[::-1]
    return True


BUGS: dict[str, Plant] = {
    "weights 1% off": _weights(_all_of),
    "a row of weights 5% off": _weights(_row),
    "one weight 20% off": _weights(_element),
    "two rows of weights swapped": _weights(_rows_swapped),
    "bias 2% off": _bias,
    "bias missing": _no_bias,
    "wrong epsilon": _eps,
    "stale statistics": _stale,
    "weights of the next channel": _wrong_channel,
    "dropout left on": _dropout,
    "batch norm left in training": _trains,
    "heads in another order": _after(*_MIXERS, change=_heads),
    "positions shifted by one": _after(*_LAYERS, change=_positions),
    "slice without its last": _after(*_LAYERS, change=_last_dropped),
    "one element 5% off": _after(*_LAYERS, change=_one_element),
    "a row 1% off": _after(*_LAYERS, change=_one_row),
    "a lower precision": _after(*_LAYERS, change=_lower),
    "a lower precision in a row": _after(*_LAYERS, change=_lower_row),
    "a small number added": _after(*_LAYERS, change=_slightly_shifted),
    "clamped": _after(*_LAYERS, change=_clamped),
    "attention not causal": _argument(
        F.scaled_dot_product_attention, "is_causal", lambda value: False if value else value
    ),
    "attention without its mask": _argument(
        F.scaled_dot_product_attention, "attn_mask", lambda value: None if value is not None else value
    ),
    "attention scaled otherwise": _argument(
        F.scaled_dot_product_attention, "scale", lambda value: (value or 0.25) * 1.02
    ),
    "residual missing": _residual,
    "subtracted": _subtracted,
    "another activation": _activation,
    "another padding": _stride,
    "a factor 0.5% off": _number,
    "operands exchanged": _operands,
}
"""A plant for each class."""
