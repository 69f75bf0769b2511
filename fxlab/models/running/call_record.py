"""A record of one call of a model for comparisons: all that a caller can observe besides the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from fxlab.models.running.running import Generators
from fxlab.values.memory import overlapping
from fxlab.values.plain_parts import PlainPart, plain_parts
from fxlab.values.tensors import tensors_by_path

DRAWS_OTHERWISE = "fxlab.draws_otherwise"
"""The entry of ``meta`` of a graph of Inductor, which draws random numbers in another way than torch."""
ALIASED_LATER = "fxlab.aliased_later"
"""Key of ``graph_module.meta``: the paths of outputs that become views of inputs after the graph has run."""

Kind: TypeAlias = Literal["output", "input", "state"]


class Place(NamedTuple):
    """The place of a tensor among outputs, inputs, or tensors of the model."""

    kind: Kind
    path: str

    def __str__(self) -> str:
        return "the output" if self == ("output", "output") else f"{self.kind} {self.path}"


class Layout(NamedTuple):
    """Facts about a tensor other than its numbers."""

    shape: tuple[int, ...]
    layout: torch.layout
    strides: tuple[int, ...]


@dataclass(frozen=True)
class CallRecord:
    """The record of one call, from seeded random number generators on."""

    parts: dict[str, PlainPart]
    """Classes and plain values in the output, by path."""
    layouts: dict[str, Layout]
    """The memory layouts of the tensors in the output, by path."""
    shared: frozenset[tuple[Place, Place]]
    """Outputs, each with a place that shares its memory: an output, an input or a tensor of the model."""
    generators: Generators
    """The states of the random number generators afterwards."""
    draws: bool
    """Whether it has drawn random numbers."""

    @classmethod
    def of(
        cls,
        output: Any,
        arguments: Mapping[str, Any],
        state: Mapping[str, torch.Tensor],
        generators: Generators,
    ) -> CallRecord:
        """Record a call that has just ended; ``generators``: the states of the generators before it."""
        # Questions about memory are no calls of the model, and modes must not see them.
        with torch._C.DisableTorchFunction():
            outputs = {Place("output", path): tensor for path, tensor in tensors_by_path(output).items()}
            given = {Place("input", path): tensor for path, tensor in tensors_by_path(arguments).items()}
            held = {Place("state", path): tensor for path, tensor in state.items()}
            shared = frozenset(overlapping(outputs, given | held))
            layouts = {
                place.path: Layout(tuple(t.shape), t.layout, t.stride() if t.layout is torch.strided else ())
                for place, t in outputs.items()
                if not t.is_nested
            }
        now = Generators.now()
        return cls(plain_parts(output), layouts, shared, now, not now.are(generators))

    def with_names(self, name: Callable[[Place], Place]) -> CallRecord:
        """Return the record with other names for inputs and tensors of the model."""
        return replace(self, shared=frozenset((one, name(other)) for one, other in self.shared))

    def of_numbers_alone(self) -> CallRecord:
        """Return the record without places of outputs, to compare it with a call of another model."""
        return replace(self, parts={}, layouts={}, shared=frozenset())
