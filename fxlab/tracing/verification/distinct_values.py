"""Other numbers, in place of equal ones or of those that a model was recorded with.

On zeros and ones alone different computations agree: ``x * 2`` and ``x + 1`` on ones, a sum with a bias and
one without on zeros, which new biases are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fxlab.tracing.bound_inputs import Argument, mapped_tensors
from fxlab.values.nested import Path, map_tensors, tensors_inside
from fxlab.values.tensors import is_floating

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FIRST = 1024
"""How many elements are looked at before all are."""


def varied(value: Any) -> Any:
    """Return a value whose floating-point tensors of one number have different ones near it."""
    return map_tensors(lambda _, tensor: _spread(tensor) if _is_of_one_number(tensor) else tensor, value)


def varied_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return stand-ins for the parameters and buffers of a model that are of one number, by name."""
    state = (*model.named_parameters(), *model.named_buffers())
    return {name: _spread(tensor.detach()) for name, tensor in state if _is_of_one_number(tensor)}


def other_data(arguments: tuple[Argument, ...]) -> Iterator[dict[str, Any]]:
    """Yield inputs of the same shapes, within the range of the given numbers: all others, then fewer.

    Whole numbers are as likely to be names of things, of which others would mean nothing to the model.
    """
    generator = torch.Generator().manual_seed(0)

    def changed(*kinds: bool) -> dict[str, Any]:
        def change(_: str, __: Path, tensor: torch.Tensor) -> torch.Tensor:
            return _other(tensor, generator) if is_floating(tensor) in kinds else tensor

        return mapped_tensors(arguments, change)

    kinds = [is_floating(t) for a in arguments for _, t in tensors_inside(a.value)]
    yield changed(True, False)
    if any(kinds) and not all(kinds):
        yield changed(True)
        yield changed(False)


def with_padding(
    arguments: tuple[Argument, ...], values: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """Return inputs whose masks end in zeros, or ``None`` if there is no mask of ones to change.

    ``values``: others in place of the given ones, by name.
    """
    if values is not None:
        arguments = tuple(replace(argument, value=values[argument.name]) for argument in arguments)
    changed = False

    def pad(name: str, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        nonlocal changed
        is_number = is_floating(tensor)
        has_places = tensor.dim() == 2 and tensor.shape[-1] > 1 and tensor.numel()
        if is_number or not has_places or not bool((tensor == 1).all()):
            return tensor
        changed = True
        padded = tensor.clone()
        padded[-1, -(tensor.shape[-1] // 4 or 1) :] = 0
        return padded

    values = mapped_tensors(arguments, pad)
    return values if changed else None


def _other(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor like another, of other numbers between its smallest and its largest.

    Where there is but one number, the others are near it, and whole ones below it.
    """
    given = tensor.detach()
    if (
        type(given) not in (torch.Tensor, nn.Parameter)
        or given.layout is not torch.strided
        or not given.numel()
    ):
        return tensor
    if given.is_complex():
        parts = (_other(part, generator) for part in (given.real.clone(), given.imag.clone()))
        return given.clone().copy_(torch.complex(*parts)).requires_grad_(tensor.requires_grad)
    if given.dtype not in (*_FLOATS, *_WHOLE):
        return tensor
    share = torch.rand(given.shape, generator=generator, dtype=torch.float64, device="cpu").to(given.device)
    result = given.clone()
    if given.is_floating_point():
        finite = given.isfinite()
        known = given[finite].double()
        low, high = (known.min(), known.max()) if known.numel() else (given.new_zeros(()).double(),) * 2
        spread = torch.where(high > low, high - low, low.abs() / 2 + (low == 0))
        result.copy_(torch.where(finite, (low + spread * share).to(given.dtype), given))
    else:
        low, high = given.min().to(torch.int64), given.max().to(torch.int64)
        low = torch.where(high > low, low, (high - 1).clamp(min=min(int(high), 0)))
        result.copy_(low + (share * (high - low + 1)).floor().to(torch.int64))
    return result.requires_grad_(tensor.requires_grad)


def _is_of_one_number(tensor: torch.Tensor) -> bool:
    if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.dtype not in _FLOATS or not tensor.numel():
        return False
    elements = tensor.detach().flatten()
    return all(bool((part == elements[0]).all()) for part in (elements[:_FIRST], elements))


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    more = torch.linspace(0.1, 1, tensor.numel(), dtype=torch.float32, device=tensor.device)
    return tensor + more.reshape(tensor.shape).to(tensor.dtype)
