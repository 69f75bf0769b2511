"""New weights of a transformed module, vectors that are gone, and what rounding them does: for verdicts."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch.fx import GraphModule

from fxlab.models.state.tensor_state import place_of, tensors_of
from fxlab.values.row_digests import row_digests
from fxlab.values.tensors import bits_of, is_plain, real_numbers, same_bits, to_float64, wide_device

_BLOCK = 2**20
"""How many numbers are moved at once."""

TRIES = 3
"""How often new values are rounded again: the effect is random, and this averages over it."""


class NewValues:
    """The numbers in parameters, buffers and constants of a module that another module does not have.

    A pass that moves weights about, such as one that stacks them, makes no new values. One that computes
    weights, such as one that folds a batch norm, does, and has to round them. Values of a matrix are known by
    whole rows and columns, those of tensors with more dimensions by the slices of the first, those of a
    vector by the whole vector, at any place in a new vector or matrix.
    """

    def __init__(self, original: GraphModule, transformed: GraphModule) -> None:
        before, after = (
            {place_of(tensor): tensor for tensor in tensors_of(module) if is_plain(tensor)}
            for module in (original, transformed)
        )
        new = [place for place, tensor in after.items() if place not in before and tensor.is_floating_point()]
        if new:
            same = _unchanged(original, transformed)
            new = [place for place in new if place not in same]
        self._new: dict[tuple[object, ...], _NewParts] = {}
        if not new:
            return
        replaced = [tensor for place, tensor in before.items() if place not in after]
        parts = {part for tensor in replaced for part in _part_digests(tensor)}
        vectors = {(t.dtype, _bytes(t)) for t in replaced if t.dim() == 1 and t.numel() > 1}
        for place in new:
            found = _NewParts.of(after[place], parts, vectors)
            if found.count:
                self._new[place] = found

    def __len__(self) -> int:
        """The number of new values."""
        return sum(new.count for new in self._new.values())

    def __contains__(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor of the transformed module has new values."""
        return place_of(tensor) in self._new

    def rounded_anew(self, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return a tensor in float64, its new values moved as rounding them once more would move them."""
        new = self._new.get(place_of(tensor))
        wide = to_float64(tensor.detach(), copy=True)
        if new is None:
            return wide
        mask = new.mask().to(wide.device)
        return torch.where(mask, moved(tensor, generator), wide, out=wide)


class VectorsGone:
    """The vectors of a module of which another one has neither the values nor the names.

    Such are the statistics of a batch norm that was folded. A fold that rounds after each step changes its
    new values about as much as rounding these would; the matrix that they were folded into is rounded with
    it. ``original``: the module that has them. ``transformed``: the module that does not.
    """

    def __init__(self, original: GraphModule, transformed: GraphModule) -> None:
        kept = {(name, tensor.shape) for name, tensor in _named(transformed)}
        values = NewValues(transformed, original)
        self._values = values
        self._places = {
            place_of(tensor)
            for name, tensor in _named(original)
            if tensor.dim() < 2 and tensor in values and (name, tensor.shape) not in kept
        }

    def __len__(self) -> int:
        """The number of vectors that are gone."""
        return len(self._places)

    def rounded_anew(self, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return a tensor in float64, moved as rounding it once more would move it if it is one of them."""
        is_gone = place_of(tensor) in self._places
        return self._values.rounded_anew(tensor, generator) if is_gone else to_float64(tensor.detach())


def _named(module: GraphModule) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def moved(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor in float64, each number moved at random by up to half a unit in its last place.

    Rounding to the tensor's dtype moves numbers in between as much (a uniform error, as is usual for
    significands; Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 2.8).
    """
    if tensor.is_complex():
        return torch.view_as_complex(moved(real_numbers(tensor), generator))
    wide = to_float64(tensor.detach().cpu(), copy=True).contiguous()
    for block in torch.split(wide.view(-1), _BLOCK):  # in blocks, to take little memory besides the result
        random = torch.rand(block.shape, generator=generator, dtype=torch.float64, device="cpu") - 0.5
        if tensor.dtype == torch.float64:
            # There is nothing in between: a whole unit, as seldom as gives the same variance (1/12).
            random = random.sign() * (random.abs() < 1 / 24)
        # frexp gives a significand in [1/2, 1); eps is the spacing of numbers in [1, 2).
        unit = torch.ldexp(torch.full_like(block, torch.finfo(tensor.dtype).eps / 2), block.frexp()[1])
        block.copy_(torch.where(block.isfinite() & (block != 0), block + random * unit, block))
    return wide.to(wide_device(tensor.device))


def _unchanged(original: GraphModule, transformed: GraphModule) -> set[tuple[object, ...]]:
    """Return the places of tensors that are equal to those of the same name."""
    named = dict(_named(original))
    return {
        place_of(tensor)
        for name, tensor in _named(transformed)
        if name in named and is_plain(tensor) and is_plain(named[name]) and same_bits(tensor, named[name])
    }


@dataclass(frozen=True)
class _NewParts:
    """The elements of a tensor that are new: those at which all of its dimensions have something new."""

    shape: tuple[int, ...]
    flags: tuple[torch.Tensor, ...]
    """For its first dimensions, which indices are new: booleans of one dimension."""

    @classmethod
    def of(
        cls, tensor: torch.Tensor, parts: set[int], vectors: Iterable[tuple[torch.dtype, bytes]]
    ) -> "_NewParts":
        """Find them, besides the known parts and vectors."""
        if tensor.dim() < 2:
            return cls(tuple(tensor.shape), (_new_elements(tensor, vectors).reshape(-1),))
        flags = [
            torch.tensor(
                [part not in parts for part in row_digests(tensor, dim)], dtype=torch.bool, device="cpu"
            )
            for dim in _part_dims(tensor)
        ]
        return cls(tuple(tensor.shape), tuple(flags))

    @property
    def count(self) -> int:
        """Their number."""
        return math.prod(int(flags.sum()) for flags in self.flags) * math.prod(self.shape[len(self.flags) :])

    def mask(self) -> torch.Tensor:
        """Return booleans of the shape of the tensor."""
        if not self.shape:
            return self.flags[0].reshape(())
        result = torch.ones((), dtype=torch.bool, device="cpu")
        for dim, flags in enumerate(self.flags):
            result = result & flags.reshape(-1, *(1,) * (len(self.shape) - dim - 1))
        return result.expand(self.shape)


def _new_elements(tensor: torch.Tensor, known: Iterable[tuple[torch.dtype, bytes]]) -> torch.Tensor:
    """Tell which elements of a vector (or number) are in no place where a whole known vector stands.

    A vector that is a part of a known one has none, such as the bias of one of several merged linears.
    """
    new = torch.ones(tensor.numel(), dtype=torch.bool, device="cpu")
    data, size = _bytes(tensor), tensor.element_size()
    for vector in (vector for dtype, vector in known if dtype == tensor.dtype):
        if tensor.numel() > 1 and any(True for _ in _places_in(vector, data, size)):
            return torch.zeros(tensor.shape, dtype=torch.bool, device="cpu")
        for place in _places_in(data, vector, size):
            new[place : place + len(vector) // size] = False
    return new.reshape(tensor.shape)


def _places_in(data: bytes, part: bytes, size: int) -> Iterator[int]:
    """Yield the elements, of so many bytes each, at which a part begins."""
    start = data.find(part)
    while start >= 0:
        is_aligned = start % size == 0
        if is_aligned:
            yield start // size
        start = data.find(part, start + (len(part) if is_aligned else 1))


def _part_digests(tensor: torch.Tensor) -> Iterator[int]:
    if tensor.dim() == 1:
        yield from row_digests(tensor[None])
    for dim in _part_dims(tensor):
        yield from row_digests(tensor, dim)


def _part_dims(tensor: torch.Tensor) -> range:
    return range({0: 0, 1: 0, 2: 2}.get(tensor.dim(), 1))


def _bytes(tensor: torch.Tensor) -> bytes:
    return bits_of(tensor).cpu().numpy().tobytes()
