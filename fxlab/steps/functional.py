"""Functions whose writes in place become new values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxlab.torch_private import pytree
from fxlab.tracing import torch_private


def functional(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that returns what its arguments, which it leaves alone, hold at the end."""

    def run(*tensors: torch.Tensor) -> Any:
        wrapped = [_wrapped(tensor) for tensor in tensors]
        torch_private.enable_functionalization(reapply_views=True)
        try:
            result = function(*wrapped)
        finally:
            torch_private.disable_functionalization()
        return pytree.tree_map(_unwrapped, result)

    return run


def _wrapped(tensor: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = torch_private.to_functional_tensor(tensor)
    torch_private.mirror_autograd_meta_to(tensor, made)
    return made


def _unwrapped(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not torch_private.is_functional_tensor(value):
        return value
    torch_private.sync(value)
    return torch_private.from_functional_tensor(value)
