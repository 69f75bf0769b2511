"""Other numbers in place of equal ones.

On zeros and ones alone different computations agree: ``x * 2`` and ``x + 1`` on ones, a sum with a bias and
one without on zeros, which new biases are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fxlab.nested import map_tensors

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_FIRST = 1024
"""How many elements are looked at before all are."""


def varied(value: Any) -> Any:
    """Return a value whose floating-point tensors of one number have different ones near it."""
    return map_tensors(lambda _, tensor: _spread(tensor) if _is_of_one_number(tensor) else tensor, value)


def varied_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return what stands in for the parameters and buffers of a model that are of one number, by name."""
    state = (*model.named_parameters(), *model.named_buffers())
    return {name: _spread(tensor.detach()) for name, tensor in state if _is_of_one_number(tensor)}


def _is_of_one_number(tensor: torch.Tensor) -> bool:
    if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.dtype not in _FLOATS or not tensor.numel():
        return False
    elements = tensor.detach().flatten()
    return all(bool((part == elements[0]).all()) for part in (elements[:_FIRST], elements))


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    more = torch.linspace(0.1, 1, tensor.numel(), dtype=torch.float32, device=tensor.device)
    return tensor + more.reshape(tensor.shape).to(tensor.dtype)
