"""Numbers in float64, on the CPU where their device has none."""

from functools import cache

import torch

from fxlab.torch_private import modes_disabled


def has_float64(device: torch.device) -> bool:
    """Tell whether a device computes in float64; that of Apple does not."""
    return _has_float64(device.type)


@cache
def _has_float64(kind: str) -> bool:
    try:
        with modes_disabled():
            torch.empty(0, dtype=torch.float64, device=kind)
    except Exception:  # each kind of device says so in its own way
        return False
    return True


def wide_device(device: torch.device) -> torch.device:
    """Return where float64 numbers of a device are."""
    return device if has_float64(device) else torch.device("cpu")


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return float64 for a floating-point dtype, complex128 for a complex one, and any other itself."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def to_float64(tensor: torch.Tensor, *, copy: bool = False) -> torch.Tensor:
    """Return a tensor in its wide dtype on its wide device; itself if it is so and no copy is asked for."""
    device = wide_device(tensor.device)
    if device != tensor.device:
        tensor, copy = tensor.to(device), False  # first, as the device may not convert it either
    return tensor.to(wide_dtype(tensor.dtype), copy=copy)
