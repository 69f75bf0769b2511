"""Memory that tensors share, for records of calls and copies of inputs: one write is read in all."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import torch

from fxlab.base.torch_private import FakeTensor
from fxlab.values.tensors import address, inner_tensors, is_plain, sparse_parts, storage_of

K = TypeVar("K")


class _Extent(NamedTuple):
    """The bytes from the first to the last element of a tensor, by their addresses."""

    device: torch.device
    start: int
    end: int
    tensor: torch.Tensor


def overlapping(
    tensors: Mapping[K, torch.Tensor], others: Mapping[K, torch.Tensor] | None = None
) -> Iterator[tuple[K, K]]:
    """Yield the names of each two tensors that share an element in memory.

    With ``others``, each of these is only compared with ``tensors``. Halves of one tensor share a storage and
    no element, so no write tells them from copies. Addresses are compared: tensors made from one NumPy array
    overlap as well. The tensors must be alive.
    """
    both = {**tensors, **(others or {})}
    order = {name: place for place, name in enumerate(both)}
    found = [(name, extent) for name, tensor in both.items() for extent in _extents(tensor)]
    pairs: set[tuple[K, K]] = set()
    for cluster in _clusters(found):
        if any(name in tensors for name, _ in cluster):
            for (one, first), (other, second) in itertools.combinations(_in_common(cluster), 2):
                pair = (other, one) if order[other] < order[one] else (one, other)
                is_asked = one != other and pair[0] in tensors and pair not in pairs
                if is_asked and _share_an_element(first, second):
                    pairs.add(pair)
    yield from sorted(pairs, key=lambda pair: (order[pair[0]], order[pair[1]]))


def _clusters(found: Iterable[tuple[K, _Extent]]) -> Iterator[list[tuple[K, _Extent]]]:
    """Yield groups of intersecting extents."""
    cluster: list[tuple[K, _Extent]] = []
    end = 0
    for name, extent in sorted(found, key=lambda item: (str(item[1].device), item[1].start)):
        if cluster and (extent.device != cluster[0][1].device or extent.start >= end):
            if len(cluster) > 1:
                yield cluster
            cluster, end = [], 0
        cluster.append((name, extent))
        end = max(end, extent.end)
    if len(cluster) > 1:
        yield cluster


def _in_common(cluster: list[tuple[K, _Extent]]) -> list[tuple[K, _Extent]]:
    """Return those that share an element with any other: of a thousand columns, none."""
    # The elements of a pair are compared afterwards anyway.
    if len(cluster) < 3:
        return cluster
    picture = _Picture([extent for _, extent in cluster])
    twice = torch.zeros_like(picture.cells)
    for _, extent in cluster:
        seen, again = picture.of(extent), picture.of(extent, twice)
        again.logical_or_(seen)
        seen.fill_(True)
    return [(name, extent) for name, extent in cluster if picture.of(extent, twice).any()]


def overlapping_groups(tensors: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Return the tensors, of ordinary classes, that overlap others of the same storage, by storage."""
    plain = {id(t): t for t in tensors if is_plain(t) and t.layout is torch.strided}
    groups: dict[int, dict[int, torch.Tensor]] = {}
    for pair in overlapping(plain) if len(plain) > 1 else ():
        first, second = (plain[key] for key in pair)
        if storage_of(first) == storage_of(second):
            groups.setdefault(storage_of(first), {}).update({id(first): first, id(second): second})
    return [list(group.values()) for group in groups.values()]


def _extents(tensor: torch.Tensor) -> Iterator[_Extent]:
    for part in _parts_with_memory(tensor):
        if part.numel() and (start := address(part)):
            last = sum((size - 1) * stride for size, stride in zip(part.shape, part.stride(), strict=True))
            yield _Extent(part.device, start, start + (last + 1) * part.element_size(), part)


def _parts_with_memory(tensor: torch.Tensor) -> Iterable[torch.Tensor]:
    """Return the plain tensors that hold the data of a tensor; empty if it has no memory to ask for."""
    if isinstance(tensor, FakeTensor) or tensor.is_meta or tensor.is_nested:
        return ()
    if inner := inner_tensors(tensor):
        return (part for held in inner.values() for part in _parts_with_memory(held))
    return [tensor] if tensor.layout is torch.strided else sparse_parts(tensor)


class _Picture:
    """The memory around some extents, in cells of the smallest distance between their elements."""

    def __init__(self, extents: Sequence[_Extent]) -> None:
        self._start = min(extent.start for extent in extents)
        places = (extent.start - self._start for extent in extents)
        self._cell = math.gcd(*places, *(extent.tensor.element_size() for extent in extents))
        size = (max(extent.end for extent in extents) - self._start) // self._cell
        self.cells = torch.zeros(size, dtype=torch.bool, device="cpu")

    def of(self, extent: _Extent, cells: torch.Tensor | None = None) -> torch.Tensor:
        """Return the cells of a tensor's elements; those of a stride of 0 once."""
        each = extent.tensor.element_size() // self._cell
        dims = [
            (size, stride * each)
            for size, stride in zip(extent.tensor.shape, extent.tensor.stride(), strict=True)
            if stride and size > 1
        ]
        sizes, strides = [size for size, _ in dims], [stride for _, stride in dims]
        place = (extent.start - self._start) // self._cell
        return (self.cells if cells is None else cells).as_strided((*sizes, each), (*strides, 1), place)


def _share_an_element(a: _Extent, b: _Extent) -> bool:
    if a.start >= b.end or b.start >= a.end:
        return False
    if _is_filled(a) and _is_filled(b):
        return True
    picture = _Picture([a, b])
    picture.of(a).fill_(True)
    return bool(picture.of(b).any())


def _is_filled(extent: _Extent) -> bool:
    """Tell whether each byte of an extent is one of the tensor."""
    tensor, filled = extent.tensor, 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != filled:
            return False
        filled *= size
    return True
