"""Attention kernels of accelerators, which have no float64, computed step by step."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.nn.functional import pad

from fxlab.torch_private import OpOverload
from fxlab.values.tensors import tensors_by_path

_KERNEL = "_scaled_dot_product_"
_HAVE_FLOAT64 = ("_scaled_dot_product_attention_math", "_scaled_dot_product_flash_attention_for_cpu")
_BACKWARD = "_backward"
_STATES = ("philox_seed", "philox_offset", "rng_state", "unused")
"""What torch calls results of operators that are the state of a generator."""
_ROWS = 32
"""The efficient kernel pads its logarithms of sums to a multiple of as many rows, with infinity."""


def is_attention_kernel(func: Any, args: Any, kwargs: Any) -> bool:
    """Tell whether a call is one of a kernel without float64, and drops nothing inside."""
    if not isinstance(func, OpOverload) or not func._opname.startswith(_KERNEL):
        return False
    return not func._opname.startswith(_HAVE_FLOAT64) and not _named(func, args, kwargs)["dropout_p"]


def in_steps(func: OpOverload, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Return what such a kernel returns, or its backward one, in the dtype of its inputs.

    The state of generators, which it returns as well, is zero: nothing is drawn.
    """
    named = _named(func, args, kwargs)
    attention = _Attention.of(named)
    if func._opname.endswith(_BACKWARD):
        grad = named["grad_out"] if "grad_out" in named else named["grad_out_"]
        return attention.backward(grad)[: len(func._schema.returns)]
    rows, keys = attention.scores.shape[-2:]
    found: list[Any] = []
    for place, result in enumerate(func._schema.returns):
        if place == 0:
            found.append(attention.weights @ attention.value)
        elif "sumexp" in result.name:
            found.append(_logarithms(func, attention.scores, named.get("compute_log_sumexp", True)))
        elif result.name in ("max_q", "max_k"):
            found.append(rows if result.name == "max_q" else keys)
        else:
            found.append(torch.zeros((), dtype=torch.int64, device=attention.scores.device))
    return tuple(found)


def states_of_generators(graph_module: GraphModule) -> frozenset[str]:
    """Return the outputs, by path, that are states of generators: two runs need not agree in them."""
    (output,) = graph_module.graph.find_nodes(op="output")
    told: Any = map_arg(output.args[0], lambda node: torch.tensor([_is_state(node)], device="cpu"))
    return frozenset(
        path for path, flag in tensors_by_path(told).items() if flag.dim() and flag.item() is True
    )


def _is_state(node: Node) -> bool:
    kernel, place = (*node.args, None, None)[:2]
    if node.target is not operator.getitem or not isinstance(kernel, Node) or not isinstance(place, int):
        return False
    returns = kernel.target._schema.returns if isinstance(kernel.target, OpOverload) else ()
    return place < len(returns) and returns[place].name in _STATES


class _Attention(NamedTuple):
    """The steps of an attention, with a head of keys and values for each of the query."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scores: torch.Tensor
    weights: torch.Tensor
    scale: float
    bias: torch.Tensor | None
    heads: int
    """The number of heads of keys and values."""

    @classmethod
    def of(cls, named: dict[str, Any]) -> _Attention:
        query, key, value = named["query"], named["key"], named["value"]
        heads = key.shape[-3]
        key, value = (tensor.repeat_interleave(query.shape[-3] // heads, -3) for tensor in (key, value))
        scale = named.get("scale")
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        scores, bias = query @ key.mT * scale, named.get("attn_bias")
        if bias is not None:
            scores = scores + bias
        if named.get("is_causal"):
            is_read = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~is_read, -math.inf)
        weights = scores.softmax(-1).masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
        return cls(query, key, value, scores, weights, scale, bias, heads)

    def backward(self, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of query, key, value and bias."""
        of_weights = grad @ self.value.mT
        of_scores = self.weights * (of_weights - (of_weights * self.weights).sum(-1, keepdim=True))
        of_bias = None if self.bias is None else of_scores.sum_to_size(self.bias.shape)
        of_query = of_scores @ self.key * self.scale
        of_key, of_value = of_scores.mT @ self.query * self.scale, self.weights.mT @ grad
        batch, rest = of_key.shape[:-3], (self.heads, -1)
        of_key, of_value = (each.view(*batch, *rest, *each.shape[-2:]).sum(-3) for each in (of_key, of_value))
        return of_query, of_key, of_value, of_bias


def _logarithms(func: OpOverload, scores: torch.Tensor, are_asked: bool) -> torch.Tensor:
    sums = scores.logsumexp(-1)
    if "efficient" not in func._opname:
        return sums
    return pad(sums, (0, -sums.shape[-1] % _ROWS), value=math.inf) if are_asked else sums[..., :0]


def _named(func: OpOverload, args: Any, kwargs: Any) -> dict[str, Any]:
    arguments = func._schema.arguments
    defaults = {each.name: each.default_value for each in arguments if each.has_default_value()}
    names = (each.name for each in arguments)
    return {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
