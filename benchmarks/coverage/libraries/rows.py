"""One model of a library, and the inputs that it is tried on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import nn

Dim: TypeAlias = int | str
"""A size that stays, the name of one that is varied, or a product of such: ``"batch*frames"``."""

STEPS = {"height": 32, "width": 32, "depth": 16}
"""How far sizes are moved from where the model was traced; all others by one."""


@dataclass(frozen=True)
class Values:
    """A tensor among the inputs of a model."""

    shape: tuple[Dim, ...]
    below: Dim | None = None
    """Whole numbers from zero on, below this one; numbers of a normal distribution if there is none."""
    dtype: torch.dtype | None = None
    ascending: bool = False
    """Whether the numbers are sorted and all occur, as those that say to which graph a node belongs."""

    def made(self, sizes: Mapping[str, int], generator: torch.Generator) -> torch.Tensor:
        """Return the tensor for sizes with the given names."""
        shape = [_size(dim, sizes) for dim in self.shape]
        if self.below is None:
            return torch.randn(shape, generator=generator).to(self.dtype or torch.float32)
        below = _size(self.below, sizes)
        if self.ascending:
            return torch.arange(shape[0]) * below // shape[0]
        return torch.randint(below, shape, generator=generator).to(self.dtype or torch.int64)


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes
    ----------
    name : str
        What it is called in the table.
    build : callable
        Makes it, with random weights.
    inputs : Any
        :class:`Values` for tensors, in lists, tuples and mappings; anything else is handed on.
    sizes : Mapping of str to int
        The sizes that it is traced on, by the names that the inputs' shapes use.
    steps : Mapping of str to int
        How far a size of this model is moved, where that is not what :data:`STEPS` says.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Any
    sizes: Mapping[str, int]
    steps: Mapping[str, int] = field(default_factory=dict)

    def made(self, sizes: Mapping[str, int], seed: int = 0) -> Any:
        """Return inputs of some sizes."""
        return _made(self.inputs, sizes, torch.Generator().manual_seed(seed))

    def others(self) -> Iterator[tuple[str, Any]]:
        """Yield other inputs, each with its name: other values, other sizes one by one, and all at once."""
        yield "other values", self.made(self.sizes, seed=1)
        steps = {name: self.steps.get(name, STEPS.get(name, 1)) for name in self.sizes}
        for name, size in self.sizes.items():
            for other in dict.fromkeys((size + steps[name], size - steps[name])):
                if other > 0:
                    yield f"{name} {other}", self.made({**self.sizes, name: other}, seed=2)
        if len(self.sizes) > 1:
            larger = {name: size + steps[name] for name, size in self.sizes.items()}
            yield "all sizes", self.made(larger, seed=3)


def images(*, channels: int = 3, name: str = "x") -> Mapping[str, Values]:
    """Return the inputs of a model of images."""
    return {name: Values(("batch", channels, "height", "width"))}


def of_side(side: int, batch: int = 2) -> Mapping[str, int]:
    """Return the sizes of square images."""
    return {"batch": batch, "height": side, "width": side}


def _made(spec: Any, sizes: Mapping[str, int], generator: torch.Generator) -> Any:
    if isinstance(spec, Values):
        return spec.made(sizes, generator)
    if isinstance(spec, Mapping):
        return {key: _made(item, sizes, generator) for key, item in spec.items()}
    if isinstance(spec, list | tuple):
        return type(spec)(_made(item, sizes, generator) for item in spec)
    return spec


def _size(dim: Dim, sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[name] for name in dim.split("*")) if isinstance(dim, str) else dim
