"""Products with large weights made short, alike in model and graph, where a trace compares at other sizes.

They take most of the time of a large model. Whether a graph follows sizes shows in what both do besides: all
other operators run as they are, and on the given inputs the products do, too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch

from fxlab.base.torch_private import TorchDispatchMode
from fxlab.models.state.model_state import memory_of

_PRODUCTS = torch.ops.aten.mm.default, torch.ops.aten.addmm.default
_SHORT = 16


class ShortProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes a product with a weight as one with its first rows, so that each number of the other counts.

    ``is_used``: whether there was such a product.
    """

    def __init__(self, weights: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_used, self._weights = False, {*map(memory_of, weights)}
        self._mix = functools.cache(_mix)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, or a short product."""
        if func in _PRODUCTS and min(args[-1].shape) > _SHORT:
            *bias, other, weight = args
            if memory_of(weight) in self._weights and other.is_floating_point():
                self.is_used = True
                mix = self._mix(other.shape[1], other.dtype, other.device)
                args = *bias, other @ mix, weight[:_SHORT]
        return func(*args, **(kwargs or {}))


def _mix(size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a matrix of few columns, of numbers without a pattern."""
    numbers = torch.arange(size * _SHORT, dtype=torch.float64, device="cpu")
    return numbers.square_().cos_().view(size, _SHORT).div_(_SHORT**0.5).to(dtype).to(device)
