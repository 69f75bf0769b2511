"""Fingerprints of tensors that reshapes, transpositions and casts do not change, for alignment, recording."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from fxlab.values.tensors import real_numbers

_QUANTILES, _PROJECTIONS = 33, 4
TOLERANCE = 1e-9
"""The relative difference up to which two results in float64 are the same.

Two ways to compute the same differ by some 1e-13; weights that are rounded otherwise are measured apart.
"""
_LONGEST = 2**14
"""The length from which directions are products of shorter ones, which need no memory."""
_MOST_SORTED = 2**13
_MEANS = 8
_AT_ONCE, _AT_ONCE_ELSEWHERE = 2**16, 2**25
"""The number of elements measured at once: as many as fit a processor's cache, or another device's memory."""
_SMALL = 1e-70
"""Powers of numbers larger than this, and smaller than its inverse, are numbers of float64."""
_SINGLE = torch.float32, torch.float16, torch.bfloat16
_SMALL_SINGLE = 1e-9
"""The same of float32, for numbers that have no more digits."""
_HAVE_FLOAT64 = "cpu", "cuda", "xpu"
_UNSIGNED = torch.uint16, torch.uint32, torch.uint64
_FLAGS = 1e-6
"""How far, relatively, the means of magnitudes and of squares may be apart if all are zero or one."""
_LOOSE = 1e-5
"""The tolerance from which sorted elements alone are no evidence: layers with a norm have similar ones."""


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The elements of a tensor, in any order and dtype, and a sketch of their order."""

    elements: int
    special: tuple[int, int, int]
    """The numbers of elements that are NaN, infinite and minus infinite."""
    scale: float
    """The largest magnitude of the others."""
    sorted: torch.Tensor
    """Of the others, in units of this magnitude: quantiles, and the means of their first three powers."""
    flat: torch.Tensor
    """Random projections of the elements in their order, which a reshape does not change."""
    along: tuple[tuple[int, float], ...]
    """For each dimension its size and a projection of means along it, which no transposition changes."""
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Fingerprint:
        """Take the fingerprint of a tensor, of which complex numbers count as two, on its device."""
        shape = tuple(tensor.shape)
        values = _measurable(tensor)
        low, high = _bounds(values)
        special, finite = (0, 0, 0), values.reshape(-1)
        if not (math.isfinite(low) and math.isfinite(high)):
            found = finite.isnan(), finite == math.inf, finite == -math.inf
            special = tuple(int(where.sum()) for where in found)  # type: ignore[assignment]
            finite = finite[finite.isfinite()]
            # They are counted by kind; in sums they would hide all other elements.
            values = values.nan_to_num(0.0, 0.0, 0.0)
            low, high = _bounds(finite)
        scale = max(abs(low), abs(high))
        unit = scale or 1.0
        # Few elements, or extreme ones, are scaled first; others in their sums, without a float64 copy.
        if values.numel() <= _AT_ONCE or not _SMALL < unit < 1 / _SMALL:
            finite, values = (each.to(torch.float64) / unit for each in (finite, values))
            low, high, unit = low / unit, high / unit, 1.0
        sizes = [size for size in shape if size > 1]
        parts = [_without_order(finite, low, high, unit), _projected(values.reshape(-1), unit)]
        measured = torch.cat([*parts, *_along(values, len(shape), unit)]).cpu()
        along = measured[-len(sizes) :].tolist() if sizes else []
        count = len(parts[0])
        return cls(
            values.numel(),
            special,
            scale,
            measured[:count],
            measured[count : count + _PROJECTIONS],
            tuple(sorted(zip(sizes, along, strict=True))),
            shape,
        )

    @property
    def numbers(self) -> list[float]:
        """All of it but the shape, for :meth:`from_numbers`."""
        along = (value for _, value in self.along)
        return [*self.special, self.scale, *self.sorted.tolist(), *self.flat.tolist(), *along]

    @classmethod
    def from_numbers(cls, shape: tuple[int, ...], is_complex: bool, numbers: torch.Tensor) -> Fingerprint:
        """Return the fingerprint of a tensor of a shape that has given these numbers."""
        sizes = sorted(size for size in shape if size > 1)
        end = len(numbers) - len(sizes)
        nan, infinite, negative, scale = numbers[:4].tolist()
        return cls(
            math.prod(shape) * (2 if is_complex else 1),
            (int(nan), int(infinite), int(negative)),
            scale,
            numbers[4 : end - _PROJECTIONS],
            numbers[end - _PROJECTIONS : end],
            tuple(zip(sizes, numbers[end:].tolist(), strict=True)),
            shape,
        )

    @property
    def statistics(self) -> dict[str, float]:
        """The least, the largest and the mean of the finite elements, and their root mean square."""
        if not len(self.sorted):
            return {}
        low, high, mean, square = self.sorted[-_MEANS:][:4].tolist()
        scale = self.scale
        return {
            "min": low * scale,
            "max": high * scale,
            "mean": mean * scale,
            "rms": math.sqrt(square) * scale,
        }

    @property
    def is_of_flags(self) -> bool:
        """Whether all finite elements are zero or of one magnitude, as those of masks and comparisons."""
        if not len(self.sorted):
            return True
        _, _, _, square, _, magnitude, *_ = self.sorted[-_MEANS:].tolist()
        return bool(magnitude - square <= _FLAGS * magnitude)

    def distance(self, other: Fingerprint) -> float:
        """Return the largest difference of sorted elements, relative to the largest element."""
        if (self.elements, self.special) != (other.elements, other.special):
            return math.inf
        scales = self.scale, other.scale
        apart = abs(scales[0] - scales[1]) / max(scales) if any(scales) else 0.0
        return max(apart, float((self.sorted - other.sorted).abs().max()) if len(self.sorted) else 0.0)

    def is_like(self, other: Fingerprint, tolerance: float = TOLERANCE) -> bool:
        """Tell whether the elements are the same, up to the rounding of float64 or a larger tolerance."""
        return self.distance(other) <= tolerance and (
            tolerance < _LOOSE or self.is_in_order_of(other, tolerance)
        )

    def is_in_order_of(self, other: Fingerprint, tolerance: float = TOLERANCE) -> bool:
        """Tell whether the elements stand in the same order, or in that of a transposition."""
        sizes, theirs = ([size for size, _ in each.along] for each in (self, other))
        if self._flat_apart(other) <= tolerance:
            return True
        may_be_turned = sizes == theirs and (self.shape != other.shape or len({*sizes}) < len(sizes))
        return may_be_turned and all(
            abs(a - b) <= tolerance for (_, a), (_, b) in zip(self.along, other.along, strict=True)
        )

    def is_output_like(self, other: Fingerprint, tolerance: float = TOLERANCE) -> bool:
        """Tell whether the elements are the same and in the same place."""
        return self.distance(other) <= tolerance and self._flat_apart(other) <= tolerance

    def moved_by(self, other: Fingerprint) -> float:
        """Return the largest difference of anything in the fingerprints of two runs of one node."""
        along = (abs(a - b) for (_, a), (_, b) in zip(self.along, other.along, strict=False))
        return max(self.distance(other), self._flat_apart(other), *along, 0.0)

    def bits(self) -> bytes:
        """Return bytes that are equal if all parts of two fingerprints are."""
        facts = repr((self.elements, self.special, self.scale, self.shape)).encode()
        return facts + self.sorted.numpy().tobytes() + self.flat.numpy().tobytes()

    def _flat_apart(self, other: Fingerprint) -> float:
        return float((self.flat - other.flat).abs().max())


def fills_its_memory(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Tell whether the elements of a tensor lie side by side, each once, in any order."""
    expected = 1
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size > 1):
        if step != expected:
            return False
        expected *= size
    return True


def _measurable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the real numbers of a tensor where they can be widened."""
    values = real_numbers(tensor.dequantize() if tensor.is_quantized else tensor.detach())
    if values.dtype is torch.bool:
        values = values.to(torch.uint8)
    # Torch computes little with 8-bit floating-point numbers.
    elif values.is_floating_point() and values.element_size() == 1:
        values = values.to(torch.float32)
    elif not values.is_floating_point() and values.dtype in _UNSIGNED:
        values = values.to(torch.float64)
    return values if values.device.type in _HAVE_FLOAT64 else values.cpu()


def _bounds(values: torch.Tensor) -> Iterable[float]:
    return map(float, values.aminmax()) if values.numel() else (0.0, 0.0)


def _blocks(values: torch.Tensor, size: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield parts of a tensor along its first dimension that fit a processor's cache."""
    most = _AT_ONCE if values.device.type == "cpu" else _AT_ONCE_ELSEWHERE
    rows = max(1, most // max(size, 1))
    for start in range(0, len(values), rows):
        yield start, values[start : start + rows]


def _without_order(values: torch.Tensor, low: float, high: float, unit: float) -> torch.Tensor:
    """Return quantiles and means of powers; of very many elements, which take long to sort, means alone."""
    if not len(values):
        return values.new_zeros(0, dtype=torch.float64)
    sums = values.new_zeros(_MEANS - 2, dtype=torch.float64)
    for _, block in _blocks(values, 1):
        part = block.to(_width(block, unit))
        square, size = part.square(), part.abs()
        first = part.sum(), part.dot(part), part.dot(square)
        more = size.sum(), square.dot(square), part.dot(size)
        sums += torch.stack([*first, *more]).to(torch.float64)
    powers = sums.new_tensor([unit**power for power in (1, 2, 3, 1, 4, 2)]) * len(values)
    means = torch.cat([sums.new_tensor([low / unit, high / unit]), sums / powers])
    if len(values) > _MOST_SORTED:
        return means
    at = torch.arange(_QUANTILES, device=values.device) * (len(values) - 1) // (_QUANTILES - 1)
    return torch.cat([values.sort().values[at].to(torch.float64) / unit, means])


def _projected(values: torch.Tensor, unit: float = 1.0, *, mixed: bool = False) -> torch.Tensor:
    """Return random projections of elements in units, in their order, or of these with their squares."""
    size, device = len(values), values.device
    root = math.sqrt(max(size, 1)) * unit

    def wide(block: torch.Tensor) -> torch.Tensor:
        return _mixed(block, unit) if mixed else block.to(torch.float64)

    if size <= _LONGEST:
        return _directions(size, device) @ wide(values) / root
    whole = size // _LONGEST * _LONGEST
    short, long = _directions(-(-size // _LONGEST), device), _directions(_LONGEST, device)
    found = (long[:, : size - whole] @ wide(values[whole:])) * short[:, -1]
    for start, block in _blocks(values[:whole].view(-1, _LONGEST), _LONGEST):
        found += ((long @ wide(block).T) * short[:, start : start + len(block)]).sum(1)
    return found / root


def _along(values: torch.Tensor, dims: int, unit: float) -> Iterator[torch.Tensor]:
    """Yield a projection of means (elements of a softmax have one sum) along each dimension."""
    if dims == 1 == values.dim() and len(values) > 1:  # the means are the elements
        yield _projected(values, unit, mixed=True)[:1]
    shape = values.shape[:dims]
    if dims == 0 or dims == 1 == values.dim() or not values.numel():
        return
    table = values.reshape(math.prod(shape[:-1]), shape[-1], -1)
    rows = values.new_empty(len(table), dtype=torch.float64)
    columns = values.new_zeros(shape[-1], dtype=torch.float64)
    for start, block in _blocks(table, table[0].numel()):
        part = _mixed(block, unit)
        part = part.squeeze(2) if part.shape[2] == 1 else part.mean(2)
        rows[start : start + len(block)] = part.sum(1)
        columns += part.sum(0)
    rows = rows.view(shape[:-1]) / (shape[-1] * unit)
    for dim, size in enumerate(shape):
        if size > 1:
            others = [other for other in range(rows.dim()) if other != dim]
            inside = rows.mean(others) if others else rows
            yield _projected(columns / (len(table) * unit) if dim == len(shape) - 1 else inside)[:1]


def _width(values: torch.Tensor, unit: float) -> torch.dtype:
    """Return the dtype in which the powers of many elements are summed up, of a block at a time."""
    is_single = values.dtype in _SINGLE and _SMALL_SINGLE < unit < 1 / _SMALL_SINGLE
    return torch.float32 if is_single else torch.float64


def _mixed(block: torch.Tensor, unit: float) -> torch.Tensor:
    """Return elements with their squares in units, times the unit."""
    part = block.to(torch.float64)
    return torch.addcmul(part, part, part, value=1 / unit)


@lru_cache(maxsize=64)
def _directions(size: int, device: torch.device) -> torch.Tensor:
    # On the CPU for all devices, so that fingerprints from two devices compare.
    generator = torch.Generator().manual_seed(size)
    return torch.randn(_PROJECTIONS, size, generator=generator, dtype=torch.float64, device="cpu").to(device)


class Found:
    """Places by the fingerprints of their values."""

    def __init__(self) -> None:
        self._places: list[list[int]] = []
        self._groups: dict[bytes, int] = {}
        """Bits of a value, such as a mask in every layer -> the number of the list of its places."""
        self._by_kind: dict[tuple[int, tuple[int, int, int]], list[tuple[float, int, Fingerprint]]]
        self._by_kind = defaultdict(list)
        self._is_sorted = True

    def add(self, fingerprint: Fingerprint, place: int) -> None:
        """Add a place, which is larger than those before."""
        group = self._groups.setdefault(fingerprint.bits(), len(self._places))
        if group < len(self._places):
            self._places[group].append(place)
            return
        kind = self._by_kind[fingerprint.elements, fingerprint.special]
        kind.append((fingerprint.scale, group, fingerprint))
        self._places.append([place])
        self._is_sorted = False

    def like(self, fingerprint: Fingerprint, tolerance: float = TOLERANCE) -> Iterator[list[int]]:
        """Yield the places with such a fingerprint, in groups of which each is in order."""
        if not self._is_sorted:
            for kind in self._by_kind.values():
                kind.sort(key=lambda each: each[:2])
            self._is_sorted = True
        kind = self._by_kind.get((fingerprint.elements, fingerprint.special), [])
        least, most = (fingerprint.scale * (1 + 2 * sign * tolerance) for sign in (-1, 1))
        first = bisect.bisect_left(kind, (least, -1), key=lambda each: each[:2])
        for at in range(first, len(kind)):
            scale, group, other = kind[at]
            if scale > most:
                break
            if fingerprint.is_like(other, tolerance):
                yield self._places[group]
