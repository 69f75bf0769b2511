"""New weights of a transformed module, and the effect of rounding them to their dtype."""

from collections.abc import Iterable, Iterator

import torch
from torch.fx import GraphModule

from fxlab.validation.module_tensors import place_of, tensors_of
from fxlab.values.tensors import bits_of

TRIES = 3
"""How often new values are rounded anew: their effect is random, and this is to average over."""


class NewValues:
    """The numbers in parameters, buffers and constants of a module that another module does not have.

    A pass that moves weights about, such as one that stacks them, makes no new values. One that computes
    weights, such as one that folds a batch norm, does, and has to round them.

    Parameters
    ----------
    original
        The module whose values are known. Those of a matrix are known by whole rows and by whole columns,
        those of tensors with more dimensions by what lies at an index of the first, those of a vector by the
        whole vector, wherever in a new vector or matrix it is.
    transformed
        The module to look through.

    Examples
    --------
    >>> from torch import nn
    >>> a = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2, bias=False)))
    >>> b = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2, bias=False)))
    >>> len(NewValues(a, a)), len(NewValues(a, b))
    (0, 4)
    """

    def __init__(self, original: GraphModule, transformed: GraphModule) -> None:
        before, after = (_by_place(module) for module in (original, transformed))
        replaced = [tensor for place, tensor in before.items() if place not in after]
        parts = {part for tensor in replaced for part in _part_hashes(tensor)}
        vectors = {(t.dtype, _bytes(t)) for t in replaced if t.dim() == 1 and t.numel() > 1}
        self._new: dict[tuple[object, ...], torch.Tensor] = {}
        for place, tensor in after.items():
            if place in before or not tensor.is_floating_point():
                continue
            new = _new_parts(tensor, parts) if tensor.dim() > 1 else _new_elements(tensor, vectors)
            if new.any():
                self._new[place] = new

    def __len__(self) -> int:
        """How many numbers are new."""
        return sum(int(new.sum()) for new in self._new.values())

    def __contains__(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor of the transformed module has new values."""
        return place_of(tensor) in self._new

    def rounded_anew(self, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return a tensor in float64, its new values moved as rounding them once more would move them."""
        new = self._new.get(place_of(tensor))
        wide = tensor.detach().to(torch.float64, copy=True)
        return wide if new is None else torch.where(new.to(wide.device), moved(tensor, generator), wide)


class VectorsGone:
    """The vectors of a module that another one has neither the values nor the names of.

    Such are the statistics of a batch norm that was folded. A fold that rounds after each step does to its
    new values about what rounding these does; the matrix that they were folded into is rounded with it.

    Parameters
    ----------
    original
        The module that has them.
    transformed
        The module that does not.
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
        """How many vectors are gone."""
        return len(self._places)

    def rounded_anew(self, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return a tensor in float64, moved as rounding it once more would move it if it is one of them."""
        is_gone = place_of(tensor) in self._places
        return self._values.rounded_anew(tensor, generator) if is_gone else tensor.double()


def _named(module: GraphModule) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def moved(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor in float64, each number moved at random by up to half a unit in its last place.

    That is what rounding to the tensor's dtype does to numbers in between (a uniform error, as is usual for
    significands; Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 2.8).
    """
    wide = tensor.detach().to("cpu", torch.float64)
    random = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) - 0.5
    if tensor.dtype == torch.float64:
        # There is nothing in between: a whole unit, as seldom as gives the same variance (1/12).
        random = random.sign() * (random.abs() < 1 / 24)
    # frexp gives a significand in [1/2, 1); eps is the spacing of numbers in [1, 2).
    unit = torch.ldexp(torch.full_like(wide, torch.finfo(tensor.dtype).eps / 2), wide.frexp()[1])
    return torch.where(wide.isfinite() & (wide != 0), wide + random * unit, wide).to(tensor.device)


def _by_place(module: GraphModule) -> dict[tuple[object, ...], torch.Tensor]:
    """Return the tensors of a module; those of subclasses have no numbers to round anew."""
    plain = (torch.Tensor, torch.nn.Parameter)
    return {place_of(tensor): tensor for tensor in tensors_of(module) if type(tensor) in plain}


def _new_parts(tensor: torch.Tensor, known: set[int]) -> torch.Tensor:
    new = torch.ones(tensor.shape, dtype=torch.bool)
    for dim in _part_dims(tensor):
        known_here = torch.tensor([_hash(part) in known for part in tensor.unbind(dim)], dtype=torch.bool)
        new.movedim(dim, 0)[known_here] = False
    return new


def _new_elements(tensor: torch.Tensor, known: Iterable[tuple[torch.dtype, bytes]]) -> torch.Tensor:
    """Tell which elements of a vector (or number) are in no place where a whole known vector stands."""
    new = torch.ones(tensor.numel(), dtype=torch.bool)
    data, size = _bytes(tensor), tensor.element_size()
    for dtype, vector in known:
        start = data.find(vector) if dtype == tensor.dtype else -1
        while start >= 0:
            aligned = start % size == 0
            if aligned:
                new[start // size : (start + len(vector)) // size] = False
            start = data.find(vector, start + (len(vector) if aligned else 1))
    return new.reshape(tensor.shape)


def _part_hashes(tensor: torch.Tensor) -> Iterator[int]:
    if tensor.dim() == 1:
        yield _hash(tensor)
    for dim in _part_dims(tensor):
        yield from map(_hash, tensor.unbind(dim))


def _part_dims(tensor: torch.Tensor) -> range:
    return range({0: 0, 1: 0, 2: 2}.get(tensor.dim(), 1))


def _hash(tensor: torch.Tensor) -> int:
    return hash((tensor.dtype, _bytes(tensor)))


def _bytes(tensor: torch.Tensor) -> bytes:
    return bits_of(tensor).cpu().numpy().tobytes()
