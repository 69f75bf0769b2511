"""Distance in units in the last place."""

import torch

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integers that have the size of a float of so many bytes."""


def max_ulp_distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest distance of elements in units in the last place.

    The floating-point numbers of a dtype are counted in their order: two that are next to each other are one
    apart, and so are -0.0 and 0.0 none (Goldberg 1991, What every computer scientist should know about
    floating-point arithmetic). Elements that are not finite in both do not count. ``a``, ``b``: tensors of
    the same shape and dtype; of integers and booleans the difference is meant.

    Examples
    --------
    >>> max_ulp_distance(torch.tensor([1.0, 2.0]), torch.tensor([1.0 + 2**-23, 2.0 - 2**-23]))
    1.0
    """
    a, b = (_real(tensor.detach().cpu()) for tensor in (a, b))
    if a.is_floating_point():
        finite = a.double().isfinite() & b.double().isfinite()
        a, b = _position(a)[finite], _position(b)[finite]
    if not a.numel():
        return 0.0
    a, b = a.long(), b.long()
    # Of 64-bit numbers of different signs, the distance does not fit into 64 bits.
    distance = torch.where((a < 0) == (b < 0), (a - b).abs().double(), a.abs().double() + b.abs().double())
    return float(distance.max())


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _position(tensor: torch.Tensor) -> torch.Tensor:
    """Return the place of each number among those of its dtype, zero being 0."""
    integers = _INTEGERS[tensor.element_size()]
    bits = tensor.contiguous().view(integers)
    return torch.where(bits < 0, torch.iinfo(integers).min - bits.long(), bits.long())
