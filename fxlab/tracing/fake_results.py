"""Calls that torch cannot make on fake tensors or symbolic sizes as it makes them on others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor


def fake_result(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return a fake tensor of the shape that a call gives, or ``None`` if torch can make the call itself."""
    maker = _MAKERS.get(func)
    return maker(*args, **kwargs) if maker is not None else None


def _grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor | None:
    """Products of groups of rows: torch's fake kernel takes bfloat16 alone, its kernel for the CPU more."""
    if not isinstance(a, FakeTensor) or not isinstance(b, FakeTensor):
        return None
    groups = offs.shape[:1] if offs is not None and a.dim() == b.dim() == 2 else ()
    batch = a.shape[:-2] if a.dim() == b.dim() else ()
    return a.new_empty(*groups, *batch, a.shape[-2], b.shape[-1], dtype=out_dtype or a.dtype)


def _linspace(
    start: Any,
    end: Any,
    steps: Any,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    **options: Any,
) -> torch.Tensor | None:
    """Torch fixes the number of steps."""
    if not isinstance(steps, torch.SymInt) or options.get("out") is not None:
        return None
    return torch.empty(steps, dtype=dtype, device=device)


_MAKERS: dict[Any, Callable[..., torch.Tensor | None]] = {
    nn.functional.grouped_mm: _grouped_mm,
    torch._grouped_mm: _grouped_mm,
    torch.linspace: _linspace,
}
