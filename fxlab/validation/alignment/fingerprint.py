"""Fingerprints of tensors that reshapes, transpositions and casts do not change."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch

_QUANTILES, _PROJECTIONS = 33, 4
TOLERANCE = 1e-9
"""The relative difference up to which two results in float64 are the same.

Two ways to compute the same differ by some 1e-13; weights that are rounded otherwise are measured apart.
"""
_LONGEST = 2**16
"""The length from which directions are products of shorter ones, which need no memory."""
_MOST_SORTED = 2**13
_LOOSE = 1e-5
"""The tolerance from which sorted elements alone are no evidence: layers with a norm have similar ones."""


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The elements of a tensor, whatever their order and dtype, and a sketch of their order."""

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
        """Take the fingerprint of a tensor, of which complex numbers count as two."""
        shape = tuple(tensor.shape)
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        wide = tensor.detach().to("cpu", torch.float64)
        values = wide.flatten()
        special = tuple(
            int(found.sum()) for found in (values.isnan(), values == math.inf, values == -math.inf)
        )
        finite = values[values.isfinite()] if any(special) else values
        scale = float(finite.abs().max()) if len(finite) else 0.0
        finite = finite / (scale or 1.0)
        wide = wide.nan_to_num(0.0, 0.0, 0.0) / (scale or 1.0)
        dims = [dim for dim, size in enumerate(shape) if size > 1]
        # Not of the elements themselves: those of a softmax have one sum everywhere.
        mixed = wide + wide.square()
        means_along = (mixed.movedim(dim, 0).reshape(shape[dim], -1).mean(1) for dim in dims)
        along = (float(_projected(mean)[0]) for mean in means_along)
        return cls(
            tensor.numel(),
            special,  # type: ignore[arg-type]
            scale,
            _without_order(finite),
            _projected(wide.flatten()),
            tuple(sorted(zip((shape[dim] for dim in dims), along, strict=True))),
            shape,
        )

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
        """Return what is equal if all of two fingerprints is."""
        facts = repr((self.elements, self.special, self.scale, self.shape)).encode()
        return facts + self.sorted.numpy().tobytes() + self.flat.numpy().tobytes()

    def _flat_apart(self, other: Fingerprint) -> float:
        return float((self.flat - other.flat).abs().max())


def _without_order(values: torch.Tensor) -> torch.Tensor:
    """Return quantiles and means of powers; of very many elements, which take long to sort, means alone."""
    if not len(values):
        return torch.zeros(0, dtype=torch.float64)
    square = values.square()
    means = [values.min(), values.max(), values.mean(), square.mean(), (values * square).mean()]
    if len(values) > _MOST_SORTED:
        return torch.stack([*means, values.abs().mean(), square.square().mean(), values.sin().mean()])
    at = torch.arange(_QUANTILES) * (len(values) - 1) // (_QUANTILES - 1)
    return torch.cat([values.sort().values[at], torch.stack(means)])


def _projected(values: torch.Tensor) -> torch.Tensor:
    root = math.sqrt(max(len(values), 1))
    if len(values) <= _LONGEST:
        return values @ _directions(len(values)) / root
    rows = -(-len(values) // _LONGEST)  # each of the longest length, the last one filled up
    values = torch.nn.functional.pad(values, (0, rows * _LONGEST - len(values))).view(rows, _LONGEST)
    return ((_directions(rows).T @ values) * _directions(_LONGEST).T).sum(1) / root


@lru_cache(maxsize=64)
def _directions(size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size)
    return torch.randn(size, _PROJECTIONS, generator=generator, dtype=torch.float64)


class Found:
    """Places by the fingerprints of what stands there."""

    def __init__(self) -> None:
        self._places: list[list[int]] = []
        self._groups: dict[bytes, int] = {}
        """By what is the same to the last bit, such as a mask in every layer, where its places are."""
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
