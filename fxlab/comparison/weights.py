"""Find the weights of one model in another for ``compare``, under any name and in any form."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import nn

from fxlab.base.exchanged import cached_property
from fxlab.models.state.tensor_state import named_tensors, place_of
from fxlab.values.row_digests import row_digests
from fxlab.values.tensors import bits_of, dense, is_plain, real_numbers, unit_of

SAME = "equal", "transposed", "reshaped", "merged", "part"
"""Forms in which all numbers are there: ``merged`` of several, or a ``part`` of one."""
WITHIN = "within one shape"
"""The detail of a square weight that is transposed, which no shape reveals."""
WRONG = "reordered", "scaled", "wrong layer", "other values"
"""Forms in which a weight may equal another one."""
ODD = (*WRONG, "permuted", "rounded", "not tied", "only in the candidate", "only in the reference")
"""Forms that a port has to account for."""
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
"""A step of a path that is a number, as that of a layer."""
_MOST_PERMUTED = 5
"""The number of dimensions up to which all their orders are tried."""
_SMALLEST = 4
"""The number of elements from which equal values under two names are evidence."""
_NEAR = 1e-6
"""The relative difference up to which one weight is a multiple of another."""
_ROUNDINGS = 4
"""The number of units in the last place of the largest element that rounding explains."""


@dataclass(frozen=True)
class Weight:
    """A parameter or buffer of the candidate, and its counterpart in the reference."""

    candidate: str
    """Its name; empty if the candidate has none for those of the reference."""
    reference: tuple[str, ...]
    """The names in the reference."""
    status: str
    """One of :data:`SAME`, or of :data:`ODD`."""
    detail: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it is one whole parameter of the reference, in any form."""
        return self.status in SAME and self.status != "part" and len(self.reference) == 1

    @property
    def is_odd(self) -> bool:
        """Whether a port has to account for it."""
        return self.status in ODD or self.detail == WITHIN

    def __str__(self) -> str:
        name = self.candidate or ", ".join(self.reference)
        of = f" ({', '.join(self.reference)})" if self.candidate and self.reference else ""
        return f"{name}: {self.status}{of}{f', {self.detail}' if self.detail else ''}"


class _Tensor:
    """A weight under all the names that it has. Its numbers are widened when they are asked for."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self.names, self.tensor = [name], tensor

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def values(self) -> torch.Tensor:
        """The numbers in float64: complex ones, and integers that it would round, are two along a new dim."""
        numbers = real_numbers(self.tensor.detach()).cpu()
        values = numbers.to(torch.float64)
        if numbers.dtype in (torch.int64, torch.uint64) and bool((values.abs() >= 2.0**53).any()):
            bits = numbers.view(torch.int64)
            return torch.stack([bits >> 32, bits & 0xFFFFFFFF], -1).to(torch.float64)
        return values

    @cached_property
    def measures(self) -> tuple[int, float, float, float]:
        """The number of elements, the smallest, the largest, and the mean of their squares."""
        values = self.values
        return values.numel(), float(values.min()), float(values.max()), float(values.square().mean())

    @property
    def peak(self) -> float:
        """The largest magnitude over the root of the mean square, which a multiple shares; NaN of zeros."""
        _, low, high, square = self.measures
        return max(-low, high) / math.sqrt(square) if square else math.nan

    @cached_property
    def constant(self) -> tuple[int, float] | None:
        """The number of elements and the value, if all have one."""
        values = self.values.flatten()
        return (len(values), float(values[:1].sum())) if bool((values == values[:1]).all()) else None

    def is_same(self, other: _Tensor) -> bool:
        """Tell whether it is the same tensor, or has the same numbers in the same shape."""
        if place_of(self.tensor) == place_of(other.tensor):
            return True
        if self.tensor.shape != other.tensor.shape:
            return False
        if self.tensor.dtype == other.tensor.dtype:  # there is no need to widen them
            ours, theirs = (real_numbers(each.tensor.detach()).cpu() for each in (self, other))
            # NaN is not equal to itself, but its bits are.
            return torch.equal(ours, theirs) or torch.equal(bits_of(ours), bits_of(theirs))
        return torch.equal(self.values, other.values)


class _Weights:
    """All weights of a model, found by their values."""

    def __init__(self, model: nn.Module | Mapping[str, torch.Tensor]) -> None:
        found: dict[object, _Tensor] = {}
        for name, tensor in named_tensors(model) if isinstance(model, nn.Module) else model.items():
            if not is_plain(tensor):
                with suppress(Exception):  # it is of a class that cannot be widened, as of sharded weights
                    tensor = tensor.dequantize().as_subclass(torch.Tensor)
            if not is_plain(tensor) or tensor.is_meta:
                continue
            tensor = dense(tensor)
            # Empty tensors have no memory of their own, so that all would seem to be one.
            place = place_of(tensor) if tensor.numel() else id(tensor)
            if place in found:
                found[place].names.append(name)
            else:
                found[place] = _Tensor(name, tensor)
        self.by_place, self.all = found, [*found.values()]
        self.by_name = {name: tensor for tensor in self.all for name in tensor.names}

    @cached_property
    def by_range(self) -> dict[tuple[int, float, float], list[_Tensor]]:
        """Weights whose elements are not all the same, by their number, the smallest and the largest."""
        found: dict[tuple[int, float, float], list[_Tensor]] = defaultdict(list)
        for tensor in self.all:
            if tensor.tensor.numel() >= _SMALLEST and tensor.constant is None:
                found[tensor.measures[:3]].append(tensor)
        return found

    @cached_property
    def by_peak(self) -> dict[torch.Size, list[_Tensor]]:
        """The same weights by shape, sorted by their peaks, so that a search does not try all."""
        found: dict[torch.Size, list[_Tensor]] = defaultdict(list)
        for tensor in itertools.chain.from_iterable(self.by_range.values()):
            if math.isfinite(tensor.peak):
                found[tensor.tensor.shape].append(tensor)
        return {shape: sorted(tensors, key=lambda tensor: tensor.peak) for shape, tensors in found.items()}

    @cached_property
    def parts(self) -> _Parts:
        return _Parts(self.all)

    @cached_property
    def constants(self) -> set[tuple[int, float]]:
        return {tensor.constant for tensor in self.all if tensor.constant is not None}

    def equal_to(self, tensor: _Tensor) -> tuple[_Tensor, str] | None:
        """Return the weight with the same numbers, and in which form it is there."""
        same = (self.by_place.get(place_of(tensor.tensor)), self.by_name.get(tensor.name))
        # The same memory or name is tried first, as a search among all weights costs more.
        known = next((other for other in same if other is not None and tensor.is_same(other)), None)
        if known is not None:
            return known, "equal"
        forms = [
            (other, form)
            for other in (self.by_range.get(tensor.measures[:3], ()) if tensor.constant is None else ())
            if math.isclose(other.measures[3], tensor.measures[3])
            for form in _forms(tensor.values, other.values)
        ]
        order = (*SAME, *ODD)

        def fit(each: tuple[_Tensor, str]) -> tuple[int, bool]:
            return order.index(each[1]), _numbers(tensor.name) != _numbers(each[0].name)

        return min(forms, key=fit, default=None)

    def multiple_of(self, tensor: _Tensor) -> tuple[_Tensor, float] | None:
        """Return a weight of which another is a multiple, element by element, and how large."""
        if tensor.constant is not None or not math.isfinite(tensor.peak):
            return None
        alike = self.by_peak.get(tensor.tensor.shape, [])
        ends = (tensor.peak * (1 + sign * 10 * _NEAR) for sign in (-1, 1))
        low, high = (bisect_left(alike, end, key=lambda other: other.peak) for end in ends)
        for other in alike[low:high]:
            times = math.sqrt(tensor.measures[3] / other.measures[3])
            # A weight that is one times another is an equal weight, which is found before.
            for factor in (-times,) if _is_near(times, 1.0) else (times, -times):
                bounds = sorted(factor * bound for bound in other.measures[1:3])
                is_near = all(map(_is_near, bounds, tensor.measures[1:3]))
                if is_near:
                    apart = (tensor.values - factor * other.values).abs().max()
                    if float(apart) <= _NEAR * max(map(abs, bounds)):
                        return other, factor
        return None


def _is_near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_NEAR)


def find_weights(
    reference: nn.Module | Mapping[str, torch.Tensor], candidate: nn.Module | Mapping[str, torch.Tensor]
) -> list[Weight]:
    """Find the counterpart of each weight of a model in another.

    Values decide, and names where values leave a choice. Names of weights that are equal tell how the layers
    of one model are numbered in the other: an equal weight with another number is of a wrong layer, and a
    weight that is nowhere is compared with the one at its place.

    ``reference``, ``candidate``: the models, or their weights by name.
    """
    ours, theirs = _Weights(reference), _Weights(candidate)
    equal = {tensor.name: found for tensor in theirs.all if (found := ours.equal_to(tensor))}
    places = _places({name: other.name for name, (other, _) in equal.items()})
    rows = list[Weight]()
    for tensor in theirs.all:
        name = _place_of(tensor.name, places) or tensor.name
        place = ours.by_name.get(name)
        if tensor.name in equal:
            other, form = equal[tensor.name]
            if place is not None and place is not other and not place.is_same(other):
                detail = f"{place.name} stands at its place"
                rows.append(Weight(tensor.name, (other.name,), "wrong layer", detail))
            else:
                detail = WITHIN if form == "transposed" and other.tensor.shape == tensor.tensor.shape else ""
                rows.append(Weight(tensor.name, (other.name,), form, detail))
        elif holders := ours.parts.of(tensor):
            rows.append(Weight(tensor.name, holders, "part" if len(holders) == 1 else "merged"))
        elif place is None and tensor.constant in ours.constants:
            rows.append(Weight(tensor.name, (), "equal"))
        else:
            rows.append(_changed(tensor, place, ours))
    rows += _untied(ours.all, theirs.all, equal)
    used = {name for row in rows for name in row.reference}
    left = [
        tensor
        for tensor in ours.all
        if used.isdisjoint(tensor.names)
        and not theirs.equal_to(tensor)
        and not theirs.parts.of(tensor)
        and tensor.constant not in theirs.constants
    ]
    return rows + [Weight("", (tensor.name,), "only in the reference") for tensor in left]


def _forms(values: torch.Tensor, other: torch.Tensor) -> Iterator[str]:
    """Yield the form in which one weight equals another, if it does."""
    if values.dim() == other.dim() <= _MOST_PERMUTED:
        for order in itertools.permutations(range(values.dim())):
            turned = other.permute(order)
            if turned.shape == values.shape and torch.equal(turned, values):
                yield "equal" if [*order] == sorted(order) else "transposed"
                return
    if torch.equal(values.flatten(), other.flatten()):
        yield "equal" if values.shape == other.shape else "reshaped"
    elif torch.equal(values.flatten().sort().values, other.flatten().sort().values):
        yield "permuted" if _has_rows_of(values, other) else "reordered"


def _has_rows_of(values: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether one weight has the rows, or the columns, of another in another order."""
    if values.dim() < 2 or other.dim() < 2:
        return values.dim() == other.dim()
    ours, theirs = (
        [sorted(row_digests(turned.flatten(1))) for turned in (each, each.transpose(0, 1))]
        for each in (values, other)
    )
    return any(rows in theirs for rows in ours)


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBER.findall(name)))


def _places(equal: Mapping[str, str]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Learn from equal weights which names stand for which: without numbers, with the shift of these."""
    votes: dict[str, Counter[tuple[str, tuple[int, ...]]]] = defaultdict(Counter)
    shifts: Counter[tuple[int, ...]] = Counter()
    for name, other in equal.items():
        numbers, theirs = _numbers(name), _numbers(other)
        if len(numbers) == len(theirs):
            shift = tuple(b - a for a, b in zip(numbers, theirs, strict=True))
            votes[_blank(name)][_blank(other), shift] += 1
            shifts[shift] += 1
    return {
        blank: max(counter, key=lambda each: (counter[each], shifts[each[1]], not any(each[1])))
        for blank, counter in votes.items()
    }


def _blank(name: str) -> str:
    return _NUMBER.sub("#", name)


def _place_of(name: str, places: Mapping[str, tuple[str, tuple[int, ...]]]) -> str | None:
    """Return the name that a weight of the candidate has to have in the reference."""
    template, shift = places.get(_blank(name), ("", ()))
    numbers = iter(a + by for a, by in zip(_numbers(name), shift, strict=False))
    return re.sub("#", lambda _: str(next(numbers, "#")), template) or None


def _changed(tensor: _Tensor, place: _Tensor | None, ours: _Weights) -> Weight:
    """Describe a weight without an equal, compared with the one at its place."""
    values = tensor.values
    if (multiple := ours.multiple_of(tensor)) is not None:
        return Weight(tensor.name, (multiple[0].name,), "scaled", f"{multiple[1]:.6g} times as large")
    others = None if place is None else place.values
    if place is None or others is None or others.numel() != values.numel():
        return Weight(tensor.name, (), "only in the candidate")
    turned = [others.reshape(values.shape)]
    if others.dim() == 2 and others.T.shape == values.shape:
        turned.append(others.T)
    other = min(turned, key=lambda each: float((values - each).square().sum()))
    is_same = (values == other) | (values.isnan() & other.isnan())
    difference = (values - other).abs().where(~is_same, 0.0)  # of equal infinities as well
    if bool(is_same.all()):
        return Weight(tensor.name, (place.name,), "equal")
    unit = max(unit_of(each.tensor.dtype) for each in (tensor, place))
    largest = other.abs().nan_to_num(0.0, 0.0).max()
    if bool((difference <= _ROUNDINGS * unit * largest).all()):
        return Weight(tensor.name, (place.name,), "rounded", f"by up to {float(difference.max()):.2g}")
    elements = is_same.reshape(*tensor.tensor.shape, -1).all(-1)  # those in two parts count once
    words = f"{int((~elements).sum())} of {elements.numel()} elements"
    apart = float(difference.square().mean().sqrt() / other.square().mean().sqrt())
    if math.isfinite(apart):  # neither NaN, nor a reference that is zero
        words += f", {apart:.2g} of their size"
    return Weight(tensor.name, (place.name,), "other values", words)


def in_words(weights: Iterable[Weight]) -> list[str]:
    """Return weights in words; those of exchanged layers are told at once."""
    layers: dict[tuple[str, str], None] = {}
    rest = []
    for weight in weights:
        place = weight.detail.partition(" ")[0]
        if weight.status == "wrong layer" and (pair := _layers(place, weight.reference[0])):
            layers[pair] = None
        else:
            rest.append(str(weight))
    told = []
    for own, other in layers:
        if (other, own) not in layers:
            told.append(f"{own} has the weights of {other}")
        elif own < other:
            told.append(f"{own} and {other} are exchanged")
    return told + rest


def _layers(place: str, other: str) -> tuple[str, str] | None:
    """Return the paths of two layers, down to the number in which the names of two weights differ."""
    numbers = list(zip(_NUMBER.finditer(place), _NUMBER.finditer(other), strict=False))
    if _blank(place) != _blank(other):
        return None
    return next(((place[: a.end()], other[: b.end()]) for a, b in numbers if a[0] != b[0]), None)


def _untied(
    ours: list[_Tensor], theirs: list[_Tensor], equal: Mapping[str, tuple[_Tensor, str]]
) -> Iterator[Weight]:
    """Yield weights that are one tensor in the reference and several in the candidate."""
    tied = {id(tensor) for tensor in ours if len(tensor.names) > 1}
    holders: dict[int, list[str]] = defaultdict(list)
    for tensor in theirs:
        if tensor.name in equal and id(equal[tensor.name][0]) in tied:
            holders[id(equal[tensor.name][0])].append(tensor.name)
    for names in holders.values():
        if len(names) > 1:
            detail = "one tensor in the reference, so that they are trained together"
            yield Weight(", ".join(names), (), "not tied", detail)


class _Parts:
    """Weights by their rows and columns, and vectors by the parts that they are joined of."""

    def __init__(self, tensors: list[_Tensor]) -> None:
        self._holders: dict[int, str] = {}
        self._vectors: dict[int, dict[str, torch.Tensor]] = defaultdict(dict)
        for tensor in tensors:
            if tensor.constant is not None:
                continue
            values = tensor.values
            if values.dim() == 1:
                self._vectors[len(values)][tensor.name] = values
            for turned in [values, values.transpose(0, 1)] if values.dim() > 1 else []:
                for row in _rows(turned):
                    self._holders.setdefault(row, tensor.name)

    def of(self, tensor: _Tensor) -> tuple[str, ...]:
        """Return the weights that hold all rows, all columns, or all of a vector one after the other."""
        if tensor.constant is not None:
            return ()
        values = tensor.values
        if values.dim() == 1:
            return self._of_vector(values)
        for turned in [values, values.transpose(0, 1)] if values.dim() > 1 else []:
            rows = [self._holders.get(row) for row in _rows(turned)]
            if rows and None not in rows:
                return tuple(dict.fromkeys(name for name in rows if name is not None))
        return ()

    def _of_vector(self, values: torch.Tensor) -> tuple[str, ...]:
        size = len(values)
        multiples = (each for each in self._vectors if each > size >= _SMALLEST and each % size == 0)
        for name, vector in (item for each in multiples for item in self._vectors[each].items()):
            if bool((vector.reshape(-1, size) == values).all(1).any()):
                return (name,)
        sizes = [each for each in self._vectors if _SMALLEST <= each < size]
        shorter = {name: v for each in sizes for name, v in self._vectors[each].items()}
        found, at = list[str](), 0
        while at < size:
            fits = [n for n, v in shorter.items() if torch.equal(values[at : at + len(v)], v)]
            if not fits:
                return ()
            found.append(fits[0])
            at += len(shorter[fits[0]])
        return tuple(dict.fromkeys(found))


def _rows(values: torch.Tensor) -> list[int]:
    """Return a digest of each slice of the first dimension, if that is evidence."""
    rows = values.flatten(1)
    if rows.shape[1] < _SMALLEST:
        return []
    differ = (rows != rows[:, :1]).any(1).tolist()
    return [row for row, is_evidence in zip(row_digests(rows), differ, strict=True) if is_evidence]
