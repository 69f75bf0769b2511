"""Attention of accelerators' kernels computed in steps, for float64 runs and for trials that may fail."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from fxlab.base.torch_private import OpOverload, pytree
from fxlab.values.tensors import tensors_by_path

_KERNEL = "_scaled_dot_product_"
_HAVE_FLOAT64 = ("_scaled_dot_product_attention_math", "_scaled_dot_product_flash_attention_for_cpu")
_BACKWARD = "_backward"
_SMALL = 2**26
"""The number of scores that take 256 MB in single precision."""
_STATES = ("philox_seed", "philox_offset", "rng_state", "unused")
"""Torch's names for results that are the state of a generator."""


def is_attention_kernel(func: Any, args: Any, kwargs: Any) -> bool:
    """Tell whether a call is one of an accelerator's attention kernels, and drops nothing inside."""
    if not isinstance(func, OpOverload) or not func._opname.startswith(_KERNEL):
        return False
    return not func._opname.startswith(_HAVE_FLOAT64) and not _named(func, args, kwargs)["dropout_p"]


def is_small(func: Any, args: Any, kwargs: Any) -> bool:
    """Tell whether all scores of such a call easily fit into memory."""
    named = _named(func, args, kwargs)
    return bool(named["query"][..., 0].numel() * named["key"].shape[-2] <= _SMALL)


def in_steps(func: OpOverload, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Compute the results of such a kernel, or of its backward, in the dtype of its inputs.

    Shapes and strides are those of the kernel, as later nodes may view its results. The generator states
    among its results are zero: nothing is drawn.
    """
    named = _named(func, args, kwargs)
    attention = _Attention.of(named)
    if func._opname.endswith(_BACKWARD):
        known = attention.backward(named["grad_out"] if "grad_out" in named else named["grad_out_"])
    else:
        known = (attention.weights @ attention.value, attention.scores.logsumexp(-1))
    on_meta = pytree.tree_map_only(torch.Tensor, lambda value: value.to("meta"), (args, kwargs))
    likes = func(*on_meta[0], **on_meta[1])
    device = attention.scores.device
    return tuple(
        _laid_out(like, known[place] if place < len(known) else None, device)
        for place, like in enumerate(likes)
    )


def _laid_out(like: Any, value: torch.Tensor | None, device: torch.device) -> Any:
    """Return values in the shape and strides of a tensor without data, or zeros if there are none.

    The kernels pad logarithms of sums with infinity, to a multiple of some number of rows.
    """
    if not isinstance(like, torch.Tensor):
        return like
    dtype = like.dtype if value is None else value.dtype
    result = torch.empty_strided(like.shape, like.stride(), dtype=dtype, device=device)
    if value is None:
        return result.zero_()
    # A kernel that is not asked for logarithms of sums returns an empty tensor.
    if like.numel() < value.numel():
        return result
    result.fill_(math.inf)
    value = value.view(value.shape + (1,) * (like.dim() - value.dim()))
    result[tuple(map(slice, value.shape))] = value
    return result


def states_of_generators(graph_module: GraphModule) -> frozenset[str]:
    """Return the paths of outputs that are states of generators, which may differ between runs."""
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
        # Of rows in which all is masked, kernels return zeros, and softmax NaN.
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
        # Several heads of the query read one head of keys, whose gradient is their sum.
        of_key, of_value = (each.view(*batch, *rest, *each.shape[-2:]).sum(-3) for each in (of_key, of_value))
        return of_query, of_key, of_value, of_bias


def _named(func: OpOverload, args: Any, kwargs: Any) -> dict[str, Any]:
    arguments = func._schema.arguments
    defaults = {each.name: each.default_value for each in arguments if each.has_default_value()}
    names = (each.name for each in arguments)
    return {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
