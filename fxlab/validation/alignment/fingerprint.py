"""Fingerprints of tensors that reshapes, transpositions and casts do not change."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
_QUANTILES = 33
_TOLERANCE = 1e-7
"""The relative difference up to which two results in float64 are the same.

Two ways to compute the same differ by some 1e-13, and a mistake that matters in float32 by more than 1e-7.
"""
_BUCKETS = 1e4
"""Buckets of each power of two of the largest number; a fingerprint is looked for in three of them."""


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The elements of a tensor, whatever their order and dtype."""

    elements: int
    special: tuple[int, int, int]
    """The numbers of elements that are NaN, infinite and minus infinite."""
    scale: float
    """The largest magnitude of the others."""
    quantiles: torch.Tensor
    """Of the others, in units of this magnitude, from the smallest to the largest."""
    means: torch.Tensor
    """The means of the first three powers of the same."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Fingerprint:
        """Take the fingerprint of a tensor, of which complex numbers count as two."""
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        values = tensor.detach().to("cpu", torch.float64).flatten()
        special = tuple(
            int(found.sum()) for found in (values.isnan(), values == math.inf, values == -math.inf)
        )
        values = values[values.isfinite()].sort().values
        scale = float(values.abs().max()) if len(values) else 0.0
        values = values / (scale or 1.0)
        at = torch.linspace(0, max(len(values) - 1, 0), _QUANTILES).round().long()
        powers = [values, values.square(), values**3]
        means = torch.stack([power.mean() for power in powers]) if len(values) else torch.zeros(3)
        quantiles = values[at] if len(values) else torch.zeros(_QUANTILES)
        return cls(tensor.numel(), special, scale, quantiles, means)  # type: ignore[arg-type]

    def is_like(self, other: Fingerprint) -> bool:
        """Tell whether the elements are the same, up to the rounding of float64."""
        if (self.elements, self.special) != (other.elements, other.special):
            return False
        if abs(self.scale - other.scale) > _TOLERANCE * max(self.scale, other.scale):
            return False
        ours, theirs = (torch.cat([each.quantiles, each.means]) for each in (self, other))
        return bool((ours - theirs).abs().max() <= _TOLERANCE)


class Found(Generic[T]):
    """Things by their fingerprints."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[int, tuple[int, int, int], int], list[tuple[Fingerprint, T]]] = defaultdict(
            list
        )

    def add(self, fingerprint: Fingerprint, thing: T) -> None:
        """Add one."""
        self._by_key[self._key(fingerprint, 0)].append((fingerprint, thing))

    def like(self, fingerprint: Fingerprint) -> Iterator[T]:
        """Yield those with such a fingerprint."""
        for beside in (-1, 0, 1):
            for other, thing in self._by_key.get(self._key(fingerprint, beside), ()):
                if fingerprint.is_like(other):
                    yield thing

    @staticmethod
    def _key(fingerprint: Fingerprint, beside: int) -> tuple[int, tuple[int, int, int], int]:
        bucket = math.floor(math.log2(fingerprint.scale) * _BUCKETS) if fingerprint.scale else 0
        return fingerprint.elements, fingerprint.special, bucket + beside
