"""Fake tensors of a known shape, made without asking torch for their other properties.

Tensors of one shape are copies of a first one, so that torch derives the properties of the shape once. They
share its storage, which has no data; a model that asks which tensors share one is recorded again without
that.
"""

from __future__ import annotations

from typing import Any, cast

import torch

from fxlab.tracing.shapes.fake_mode import FakeMode
from fxlab.tracing.shapes.symbolic_sizes import expression_of
from fxlab.tracing.torch_private import FakeTensor, in_kernel_invocation_manager


def made(shape: tuple[Any, ...], *given: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor as a call on others gives it, of the dtype and device of the first."""
    result = _empty(shape, given[0])
    follows = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    return computed_from(result, *given) if follows else result


def computed_from(result: FakeTensor, *given: torch.Tensor) -> torch.Tensor:
    """Return a new tensor that has a gradient and may be written to, as a call on others gives it."""
    followed = next(tensor for tensor in given if tensor.requires_grad)
    mode = result.fake_mode
    assert isinstance(mode, FakeMode)
    return mode.given_by(torch.ops.aten.clone.default, followed, result)


def _empty(shape: tuple[Any, ...], like: torch.Tensor) -> FakeTensor:
    """Return a new tensor, which copies torch's findings about the first one of its shape.

    To count the elements and to find whether they are contiguous takes some thirty questions about symbolic
    sizes. Each copy has a version of its own.
    """
    assert isinstance(like, FakeTensor)
    mode, device = like.fake_mode, like.fake_device
    if not isinstance(mode, FakeMode) or not mode.shares_storages:
        return cast(FakeTensor, like.new_empty(shape))
    key = like.dtype, *map(expression_of, shape)
    if key not in mode.of_shape:
        with in_kernel_invocation_manager(mode):
            mode.of_shape[key] = torch.empty(shape, dtype=like.dtype, device="meta")
    return mode.of(mode.of_shape[key], device)


def are_plain(*tensors: Any) -> bool:
    """Tell whether all are fake tensors of one dtype and device, which autocast does not change."""
    first = tensors[0]
    return (
        all(
            type(tensor) is FakeTensor and (tensor.dtype, tensor.device) == (first.dtype, first.device)
            for tensor in tensors
        )
        and not torch._C._is_any_autocast_enabled()
    )


def are_equal(sizes: Any, others: Any) -> bool:
    """Tell whether sizes are known to be equal, without a guard that makes them so."""
    return [*map(expression_of, sizes)] == [*map(expression_of, others)]


def spreads_over(shape: Any, larger: Any) -> bool:
    """Tell whether a shape broadcasts to another.

    Where that is not known, torch is asked whether two sizes are equal, as the call itself does.
    """
    if len(shape) > len(larger):
        return False
    pairs = zip(reversed(shape), reversed(larger), strict=False)
    unknown = [pair for pair in pairs if expression_of(pair[0]) not in (1, expression_of(pair[1]))]
    return all(expression_of(other) != 1 and bool(size == other) for size, other in unknown)
