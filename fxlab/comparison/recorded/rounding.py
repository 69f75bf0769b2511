"""Results of a recorded run rounded once more, by which a comparison knows how far rounding moves them."""

from typing import Any

import torch

from fxlab.base import torch_private
from fxlab.comparison.recorded.observation import key_of, written_by
from fxlab.values.nested import tensors_inside
from fxlab.values.tensors import is_floating

_NOISE = 2**15
_STEP = 7919
"""How far the noise of one result is from that of the next."""
_PRODUCTS = "mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "convolution", "cudnn_convolution"
_LESS_EXACT = {"high": 2.0**-10, "medium": 2.0**-8}
"""Roundings of products in float32, by ``torch.get_float32_matmul_precision()``."""


class Rounding:
    """Rounds the results of operators once more."""

    def __init__(self) -> None:
        self._known: dict[tuple[torch.device, torch.dtype, float], torch.Tensor] = {}
        self._count = 0

    def round(self, func: Any, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> None:
        """Round results once more: each element times one plus a random share of the last place."""
        self._count += 1
        keys = (key_of(tensor) for _, tensor in tensors_inside([args, kwargs]))
        given = {key[0] for key in keys if key is not None}
        written = {key_of(tensor) for tensor in written_by(func, args, kwargs)}
        for key, tensor in {key_of(tensor): tensor for tensor in tensors}.items():
            if key is None or not tensor.numel() or not is_floating(tensor):
                continue
            is_view = key[0] in given and key not in written
            if not is_view and tensor.element_size() > 1:
                unit = max(torch.finfo(tensor.dtype).eps, _unit_of_product(func, tensor))
                self._round(tensor, unit)

    def _round(self, tensor: torch.Tensor, unit: float) -> None:
        factors = self._factors(tensor.device, tensor.real.dtype, unit)
        count, start = tensor.numel(), (self._count * _STEP) % _NOISE
        if not tensor.is_contiguous():
            factors = factors[start : start + _NOISE]
            tensor.mul_(factors.repeat(-(-count // _NOISE))[:count].view(tensor.shape))
            return
        flat, whole = tensor.view(-1), count // _NOISE * _NOISE
        flat[:whole].view(-1, _NOISE).mul_(factors[start : start + _NOISE])
        flat[whole:].mul_(factors[start : start + count - whole])

    def _factors(self, device: torch.device, dtype: torch.dtype, unit: float) -> torch.Tensor:
        if (device, dtype, unit) not in self._known:
            generator = torch.Generator().manual_seed(0)
            noise = torch.rand(2 * _NOISE, generator=generator, dtype=torch.float64, device="cpu") * 2 - 1
            self._known[device, dtype, unit] = (1 + noise * unit).to(device, dtype)
        return self._known[device, dtype, unit]


def _unit_of_product(func: Any, tensor: torch.Tensor) -> float:
    """Return the rounding of a product in float32 where a setting allows a larger one."""
    if tensor.dtype is not torch.float32 or not isinstance(func, torch_private.OpOverload):
        return 0.0
    name = func._schema.name.partition("::")[2]
    if name not in _PRODUCTS:
        return 0.0
    if tensor.is_cuda and "conv" in name and torch.backends.cudnn.allow_tf32:
        return _LESS_EXACT["high"]
    return _LESS_EXACT.get(torch.get_float32_matmul_precision(), 0.0)
