"""Statistics and a histogram of one tensor for ``node_values``, a chunk at a time."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from fxlab.values.tensors import inner_tensors, wide_device

CHUNK = 2**17
"""Elements that are in float64 at once: as many as fit into a processor's cache."""

BINS = 40

_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.float64}
"""Dtypes that few operators of torch take, and those that hold their values."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of a tensor; those of a complex tensor are of its absolute values.

    Attributes
    ----------
    shape : tuple of int
        Its shape.
    dtype : torch.dtype
        Its dtype.
    min, max, mean, std : float or int
        Of its finite elements; NaN if there are none. ``std`` divides by their number.
    zeros : float
        The share of elements that are zero; NaN if there are no elements.
    nan, inf, negative_inf : int
        How many elements are NaN, infinity and minus infinity.
    first_non_finite : tuple of int or None
        The index of the first of these.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    min: float | int
    max: float | int
    mean: float
    std: float
    zeros: float
    nan: int
    inf: int
    negative_inf: int
    first_non_finite: tuple[int, ...] | None

    @property
    def largest(self) -> float | int:
        """The largest absolute value, infinite ones included; NaN if there are no elements but NaN."""
        return math.inf if self.inf or self.negative_inf else max(abs(self.min), abs(self.max))

    @property
    def range_used(self) -> float:
        """The largest absolute value as a share of the largest that the dtype can hold; NaN for bools."""
        if self.dtype is torch.bool or self.dtype.is_complex:
            return math.nan
        if self.dtype.is_floating_point:
            return self.largest / torch.finfo(self.dtype).max
        limits = torch.iinfo(self.dtype)
        return max(self.max / limits.max, self.min / limits.min if limits.min else 0.0)


@dataclass(frozen=True)
class Histogram:
    """Counts of the finite elements of a tensor, in bins of one width.

    Attributes
    ----------
    edges : tuple of float
        The ends of the bins, one more than there are bins; none if there are no finite elements. Every bin
        holds its left edge, the last one both.
    counts : tuple of int
        The elements in each bin.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's values as a plain strided one: real, and of a dtype that torch can compare.

    Raises ValueError if it has no values, or is one whose elements cannot be told one by one.
    """
    if tensor.is_meta:
        raise ValueError("it is on the meta device and has no values.")
    if tensor.layout is not torch.strided:
        raise ValueError(f"it is stored as {tensor.layout}; make it dense to look at its elements.")
    if inner_tensors(tensor):
        raise ValueError(f"it is a {type(tensor).__name__}, which keeps its values in other tensors.")
    with torch.no_grad():
        plain = tensor.detach().as_subclass(torch.Tensor)
        if plain.is_quantized:
            plain = plain.dequantize()
        if plain.is_complex():
            plain = plain.abs()
        if plain.dtype.is_floating_point and plain.dtype.itemsize == 1:
            plain = plain.to(torch.float32)
        return plain.to(_WIDER.get(plain.dtype, plain.dtype))


def statistics_of(tensor: torch.Tensor) -> Statistics:
    """Return the statistics of a tensor; ``ValueError`` if it has no readable values.

    Means and deviations are computed in float64, chunk by chunk (Chan, Golub and LeVeque, 1983).
    """
    # Somebody may watch all calls, and these are many.
    with torch._C.DisableTorchFunction():
        return _statistics_of(tensor, readable(tensor))


def _statistics_of(tensor: torch.Tensor, values: torch.Tensor) -> Statistics:
    low, high = math.inf, -math.inf
    count, mean, squares = 0, 0.0, 0.0
    zeros = nan = inf = negative_inf = 0
    first: int | None = None
    for start, chunk in _chunks(values):
        zeros += chunk.numel() - int(chunk.count_nonzero())
        least, most = (limit.item() for limit in torch.aminmax(chunk))
        if not (math.isfinite(least) and math.isfinite(most)):
            if first is None:
                first = start + int((~chunk.isfinite()).to(torch.uint8).argmax())
            nan += int(chunk.isnan().sum())
            inf += int(chunk.isposinf().sum())
            negative_inf += int(chunk.isneginf().sum())
            chunk = chunk[chunk.isfinite()]
            if not chunk.numel():
                continue
            least, most = (limit.item() for limit in torch.aminmax(chunk))
        low, high = min(low, least), max(high, most)
        # With a dot product it takes a third of the time of torch.var_mean.
        wide = chunk.to(wide_device(chunk.device)).to(torch.float64, copy=True)
        others, average = chunk.numel(), float(wide.mean())
        wide -= average
        step = average - mean
        squares += float(torch.dot(wide, wide)) + step * step * count * others / (count + others)
        mean += step * others / (count + others)
        count += others
    total = values.numel()
    return Statistics(
        shape=tuple(tensor.shape),
        dtype=tensor.dtype,
        min=low if count else math.nan,
        max=high if count else math.nan,
        mean=mean if count else math.nan,
        std=math.sqrt(squares / count) if count else math.nan,
        zeros=zeros / total if total else math.nan,
        nan=nan,
        inf=inf,
        negative_inf=negative_inf,
        first_non_finite=None if first is None else tuple(map(int, np.unravel_index(first, tensor.shape))),
    )


def histogram_of(tensor: torch.Tensor, statistics: Statistics | None = None) -> Histogram:
    """Count the finite elements of a tensor; integers in few bins have one for each number."""
    found = statistics or statistics_of(tensor)
    low, high = float(found.min), float(found.max)
    if not (math.isfinite(low) and math.isfinite(high)):
        return Histogram((), ())
    values = readable(tensor)
    is_whole = not values.dtype.is_floating_point
    if is_whole and high - low < BINS:
        low, high, bins = low - 0.5, high + 0.5, int(high - low) + 1
    elif low == high:
        return Histogram((low, high), (sum(int(c.isfinite().sum()) for _, c in _chunks(values)),))
    else:
        bins = BINS
    # The width of all float64 is more than one holds, and that of a few subnormal ones too little to divide.
    scale = 1.0 if 1e-300 < high - low < math.inf else max(abs(low), abs(high)) / 2
    counts = torch.zeros(bins, dtype=torch.int64, device="cpu")
    left, width = low / scale, (high / scale - low / scale) / bins
    for _, chunk in _chunks(values):
        finite = chunk if is_whole or found.first_non_finite is None else chunk[chunk.isfinite()]
        # A third of the time of torch.histc.
        places = (
            (finite.to(wide_device(finite.device)).to(torch.float64) / scale)
            .sub_(left)
            .div_(width)
            .to(torch.int64)
        )
        counts += torch.bincount(places.clamp_(0, bins - 1), minlength=bins).cpu()
    parts = [k / bins for k in range(bins + 1)]
    edges = tuple(low * (1 - part) + high * part for part in parts)
    return Histogram(edges, tuple(int(c) for c in counts.tolist()))


def _chunks(values: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    flat = values.reshape(-1)
    for start in range(0, flat.numel(), CHUNK):
        yield start, flat[start : start + CHUNK]
