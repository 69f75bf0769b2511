"""Placeholders of a flat graph: inputs, parameters and buffers.

They are found by identity: the values that Dynamo's graph ran with are the model's parameters, or copies of
the inputs. Descriptors of AOTAutograd lead from there to later graphs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph

from fxlab.compiler.recording.recorder import WHOLE, Recording
from fxlab.compiler.recording.snapshot import Made
from fxlab.values.nested import flatten_objects, tensors_inside
from fxlab.values.tensors import known_number

_NO_NAME = re.compile(r"\W+")


@dataclass(frozen=True)
class Slot:
    """A placeholder of a graph, and the value it stands for."""

    name: str
    """The name of its node in stages."""
    path: str | None
    """Where the model holds it; ``None`` for an input."""
    value: Any


def slots_of(
    paths: Mapping[int, str],
    inputs: Mapping[str, Any],
    ran: Mapping[str, Any],
    recording: Recording,
    names: Names,
) -> list[Slot]:
    """Find the origin of the placeholders of Dynamo's graph by the values that it ran with.

    ``paths``: those of parameters and buffers, by their ``id``. ``inputs``, ``ran``: the inputs by name, and
    the copies that the model was called with. None for a graph after a break: its inputs were computed by
    earlier code. ``names``: where the nodes get their names.
    """
    given, copies = _by_name(inputs), _by_name(ran)
    named = {id(tensor): name for name, tensor in copies.items()}
    first, slots = recording.stacks[WHOLE].first, []
    placeholders = first.graph.find_nodes(op="placeholder")
    for node, value, copy in zip(placeholders, recording.values, recording.copies, strict=True):
        path: str | None = paths.get(id(value))
        wish = path or named.get(id(value), node.name)
        if id(value) in named:
            copy = given[wish]
        elif path is None and inputs and isinstance(value, torch.Tensor):
            path = f"constants.{node.name}"
        wish = _NO_NAME.sub("_", wish).strip("_") or node.name
        slots.append(Slot(names.give(first.dialect, node.name, wish), path, copy if path is None else value))
    return slots


def random_like(fake: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return random numbers of the sizes, strides and dtype of a fake tensor."""
    size, stride = ([int(known_number(n)) for n in numbers] for numbers in (fake.shape, fake.stride()))
    result = torch.empty_strided(size, stride, dtype=fake.dtype, device=fake.device)
    numbers = torch.randn(
        size, generator=generator, dtype=torch.promote_types(fake.dtype, torch.float32), device="cpu"
    )
    return result.copy_(numbers)


def _by_name(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {
        "_".join(map(str, path)): tensor for path, tensor in tensors_inside(flatten_objects(dict(inputs)))
    }


class Names:
    """The names of nodes: a node with the value of one of Dynamo's graph has its name in all stages."""

    def __init__(self) -> None:
        self._taken = Graph()
        self._known: dict[tuple[Any, ...], str] = {}

    def of(self, dialect: str, name: str, made: Mapping[str, Made]) -> str:
        """Return the name of a node, independent of the order in which matches are found."""
        key: tuple[Any, ...] = (dialect, name)
        if name in made:
            key = (made[name].pass_, self.of(dialect, made[name].anchor, made), made[name].place)
        return self._known.get(key) or self._give(key, name)

    def give(self, dialect: str, name: str, wish: str) -> str:
        """Give a node a name like another one; returns the one that was free."""
        return self._give((dialect, name), wish)

    def share(self, dialect: str, name: str, known: str) -> None:
        """Give a node the name of another, for which it stands."""
        self._known[dialect, name] = known

    def _give(self, key: tuple[Any, ...], wish: str) -> str:
        free = self._taken.create_node("placeholder", wish, name=wish).name
        self._known[key] = free
        return free
