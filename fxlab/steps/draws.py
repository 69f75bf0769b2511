"""Random draws into tensors of any layout, recorded without the write."""

from functools import cache
from typing import Any

import torch

from fxlab.tracing import torch_private

_BERNOULLI = torch.ops.aten.bernoulli.p


def _bernoulli(values: torch.Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Any:
    """Draw as ``bernoulli_`` does; torch's own functional form of it forgets the layout of ``values``."""
    if values.is_contiguous():
        return NotImplemented
    order = sorted(range(values.dim()), key=values.stride, reverse=True)
    back = [order.index(dim) for dim in range(values.dim())]
    if _follows_memory(values.device):
        return _BERNOULLI(values.permute(order), p, generator=generator).permute(back)
    return _BERNOULLI(values, p, generator=generator).permute(order).contiguous().permute(back)


@cache
def _follows_memory(device: torch.device) -> bool:
    """Tell whether numbers are drawn in the order of memory; MKL draws in that of the dimensions."""
    if device.type == "meta":
        return True

    def drawn(*strides: int) -> torch.Tensor:
        values = torch.empty_strided((8, 8), strides, device=device)
        return values.bernoulli_(generator=torch.Generator(device).manual_seed(0))

    with torch_private.disable_current_modes():
        return torch.equal(drawn(8, 1), drawn(1, 8).t())


def _random(
    values: torch.Tensor, low: int, high: int | None = None, *, generator: torch.Generator | None = None
) -> Any:
    """Draw as ``random_`` does, by an operator that a call of Python can name: ``from`` is a keyword."""
    if high is None or generator is not None:
        return NotImplemented
    return torch.randint_like(values, low, high)


IN_LAYOUT = {_BERNOULLI: _bernoulli, getattr(torch.ops.aten.random, "from"): _random}
"""Other forms of operators that draw, for ``make_fx``."""
