"""Results of common calls on contiguous tensors, which torch makes as well, by way of many questions.

For each activation, norm or view torch asks dozens of questions about symbolic sizes. Here the result
has the shape, strides and gradient that torch documents, or torch is left to make the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import nn

from fxlab.tracing.shapes.kernels.made_tensors import are_equal, are_plain, made
from fxlab.tracing.shapes.symbolic_sizes import expression_of
from fxlab.tracing.torch_private import FakeTensor


def _activation(input: torch.Tensor, *options: Any, **named: Any) -> torch.Tensor | None:
    """Functions of each element."""
    if not named.keys() <= _OPTIONS or not _are_dense(input):
        return None
    if any(option is True for option in options) or named.get("inplace"):
        return _written(input)
    return made(input.shape, input)


def _written(input: torch.Tensor) -> torch.Tensor | None:
    """Mark a tensor as written to; torch refuses some writes to views and to tensors with a gradient."""
    if input.requires_grad and (input.is_leaf or input._is_view()):
        return None
    torch.autograd.graph.increment_version(input)
    return input


def _layer_norm(
    input: torch.Tensor,
    normalized_shape: Any,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor | None:
    """Norms of rows, which are contiguous for every input."""
    if not isinstance(normalized_shape, list | tuple) or not normalized_shape:
        return None
    state = [tensor for tensor in (weight, bias) if tensor is not None]
    if not are_plain(input, *state) or not _is_computed(input):
        return None
    rows = input.shape[-len(normalized_shape) :]
    if not all(are_equal(rows, sizes) for sizes in (normalized_shape, *(tensor.shape for tensor in state))):
        return None
    return made(input.shape, input, *state)


def _reshape(input: torch.Tensor, *shape: Any, **named: Any) -> torch.Tensor | None:
    shape = (*shape, *named.values())
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
    return _view(input, [*sizes]) if all(isinstance(size, int | torch.SymInt) for size in sizes) else None


def _reshape_as(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor | None:
    return _view(input, [*other.shape])


def _flatten(input: torch.Tensor, start_dim: Any = 0, end_dim: Any = -1) -> torch.Tensor | None:
    dims = range(-input.dim(), input.dim())
    if start_dim not in dims or end_dim not in dims:
        return None
    shape, first, last = [*input.shape], start_dim % input.dim(), end_dim % input.dim()
    if first >= last:
        return None
    return _view(input, [*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]])


def _view(input: torch.Tensor, shape: list[Any]) -> torch.Tensor | None:
    """A contiguous tensor in another shape, if that is known to have as many elements."""
    is_followed = any(isinstance(size, torch.SymInt) for size in (*input.shape, *shape))
    if not is_followed or not shape or not input.dim():
        return None
    if type(input) is not FakeTensor or input.constant is not None or not input.is_contiguous():
        return None
    left_out = [dim for dim, size in enumerate(shape) if not isinstance(size, torch.SymInt) and size < 1]
    if left_out:
        if len(left_out) > 1 or shape[left_out[0]] != -1:
            return None
        shape[left_out[0]] = 1
        shape[left_out[0]] = input.numel() // math.prod(shape)
    if sympy.Mul(*map(expression_of, shape)) != sympy.Mul(*map(expression_of, input.shape)):
        return None
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, size * strides[0])
    return input.as_strided(shape, strides)


def _are_dense(*tensors: Any) -> bool:
    """Tell whether tensors are alike, contiguous, and computed with floating-point numbers."""
    return are_plain(*tensors) and all(_is_computed(t) and t.is_contiguous() for t in tensors)


def _is_computed(tensor: Any) -> bool:
    """Tell whether a tensor is of floating-point numbers that torch does not know."""
    return bool(tensor.is_floating_point()) and tensor.constant is None


_OPTIONS = {"alpha", "approximate", "inplace", "max_val", "min_val", "negative_slope"}
_ACTIVATIONS: tuple[Any, ...] = (
    *(nn.functional.elu, nn.functional.gelu, nn.functional.hardsigmoid, nn.functional.hardswish),
    *(nn.functional.hardtanh, nn.functional.leaky_relu, nn.functional.mish, nn.functional.relu),
    *(nn.functional.relu6, nn.functional.silu, torch.relu, torch.sigmoid, torch.tanh),
    *(torch.Tensor.relu, torch.Tensor.sigmoid, torch.Tensor.tanh),
)
DENSE_RESULTS: dict[Any, Callable[..., torch.Tensor | None]] = {
    **dict.fromkeys(_ACTIVATIONS, _activation),
    **dict.fromkeys((torch.reshape, torch.Tensor.reshape, torch.Tensor.view), _reshape),
    **dict.fromkeys((torch.Tensor.reshape_as, torch.Tensor.view_as), _reshape_as),
    **dict.fromkeys((torch.flatten, torch.Tensor.flatten), _flatten),
    nn.functional.layer_norm: _layer_norm,
}
"""Makes the result of a call where no data comes along, or gives ``None``."""
