"""Tensors inside nested values: lists, tuples, mappings, and objects that are taken apart."""

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Node

REFUSAL = "traced for"
"""How the message begins with which a graph refuses inputs that it does not hold for."""

Path = tuple[Any, ...]
"""The keys, indices and attributes that lead from a value to a tensor inside."""


class Attribute(str):
    """The name of an attribute, in a path among keys and indices."""

    __slots__ = ()


class ObjectParts(dict[Attribute, Any]):
    """The attributes of an object, such as a cache of keys and values, as a mapping."""

    def __init__(self, cls: type, parts: Mapping[Attribute, Any]) -> None:
        super().__init__(parts)
        self.cls = cls

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectParts, (self.cls, dict(self))


def class_of(value: Any) -> type:
    """Return the class of a value, or of the object whose parts it is."""
    return value.cls if isinstance(value, ObjectParts) else type(value)


def is_object(value: Any) -> bool:
    """Tell whether a value is an object that consists of its attributes, and is no code."""
    cls: Any = type(value)
    if isinstance(value, nn.Module | type | Mapping) or callable(value):
        return False
    # Objects made in another way hold more: numbers, texts, members of an enumeration, extensions in C.
    is_plain = cls.__new__ is object.__new__ and cls.__reduce_ex__ is object.__reduce_ex__
    return bool(is_plain and hasattr(value, "__dict__") and cls.__module__.partition(".")[0] != "torch")


def parted(value: Any) -> Any:
    """Return a value with its objects, and those in its dicts, lists and tuples, taken apart."""
    return _parted(value, frozenset())


def _parted(value: Any, inside: frozenset[int]) -> Any:
    if id(value) in inside:
        return value  # an object that holds itself
    inside |= {id(value)}
    if type(value) is dict:
        return {key: _parted(item, inside) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_parted(item, inside) for item in value)
    if not is_object(value):
        return value
    return ObjectParts(type(value), {Attribute(n): _parted(item, inside) for n, item in vars(value).items()})


def put_together(value: Any) -> Any:
    """Undo :func:`parted`, with new objects."""
    if isinstance(value, ObjectParts):
        result: Any = object.__new__(value.cls)
        vars(result).update({str(name): put_together(item) for name, item in value.items()})
        return result
    if type(value) is dict:
        return {key: put_together(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(put_together(item) for item in value)
    return value


def tensors_inside(value: Any, path: Path = ()) -> Iterator[tuple[Path, torch.Tensor]]:
    """Yield each tensor inside nested lists, tuples and mappings, with the path that leads to it."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_inside(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from tensors_inside(item, (*path, index))


def texts_inside(value: Any, inside: frozenset[int] = frozenset()) -> Iterator[str]:
    """Yield each text inside nested lists, tuples, mappings and objects, with keys and attributes."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return  # it leads to torch's whole knowledge of sizes, which takes seconds to walk
    inside |= {id(value)}
    parts: Iterable[Any] = ()
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        parts = value.items()
    elif type(value) in (list, tuple) or hasattr(type(value), "_fields"):
        parts = value
    elif not isinstance(value, list | tuple | torch.Tensor | nn.Module | type) and not callable(value):
        parts = vars(value).items() if hasattr(value, "__dict__") else ()
    for part in parts:
        if id(part) not in inside:  # an object may hold itself
            yield from texts_inside(part, inside)


def map_tensors(
    change: Callable[[Path, torch.Tensor], Any],
    value: Any,
    path: Path = (),
    other: Callable[[Any], Any] | None = None,
) -> Any:
    """Return a nested value with other tensors, of the same types; ``other`` replaces its other leaves."""
    if isinstance(value, torch.Tensor):
        return change(path, value)
    if isinstance(value, ObjectParts):
        own = {name: map_tensors(change, item, (*path, name), other) for name, item in value.items()}
        return ObjectParts(value.cls, own)
    if isinstance(value, Mapping):
        items = {key: map_tensors(change, item, (*path, key), other) for key, item in value.items()}
        if type(value) is dict:
            return items
        if hasattr(type(value), "__dataclass_fields__"):
            return type(value)(**items)  # ModelOutput and its like
        changed: Any = copy.copy(value)
        for key, item in items.items():  # as Counter.update adds
            changed[key] = item
        return changed
    if isinstance(value, list | tuple):
        parts = [map_tensors(change, item, (*path, index), other) for index, item in enumerate(value)]
        # Named tuples may have a constructor of their own, as packed sequences do.
        named: Any = type(value)
        return tuple.__new__(named, parts) if hasattr(value, "_fields") else named(parts)
    return value if other is None else other(value)


def has_parts(value: Any) -> bool:
    """Tell whether there is a tensor inside, or an object that was taken apart."""
    if isinstance(value, torch.Tensor | ObjectParts):
        return True
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(map(has_parts, items))


def name_of_part(name: str, path: Path) -> str:
    """Write a part of a value as Python would read it."""
    return "".join((name, *(f".{key}" if isinstance(key, Attribute) else f"[{key!r}]" for key in path)))


def part_of(node: Node, path: Path) -> Node:
    """Return a node that computes a part of another node's value."""
    for step in steps_of(path):
        node = taken(node, step)
    return node


def steps_of(path: Path) -> list[Path]:
    """Return the steps of a path that have nodes: a single one if it leads through an object."""
    is_through_object = any(isinstance(key, Attribute) for key in path)
    return [path] if is_through_object else [(key,) for key in path]


def taken(node: Node, step: Path) -> Node:
    """Return a node that takes one of :func:`steps_of` a path."""
    if not isinstance(step[-1], Attribute) and len(step) == 1:
        return node.graph.call_function(operator.getitem, (node, step[0]))
    return node.graph.create_node("call_function", PartOf(step), (node,), name="_".join(map(str, step)))


@dataclass(frozen=True)
class PartOf:
    """The target of a node that takes a tensor out of an object, all at once."""

    path: Path
    only_reads = True

    @property
    def __name__(self) -> str:
        return str(self.path[-1])

    def __call__(self, value: Any) -> Any:
        """Return the value at the end of the path."""
        for key in self.path:
            value = getattr(value, key) if isinstance(key, Attribute) else value[key]
        return value


@dataclass(frozen=True)
class TensorOf:
    """Stands for a tensor, perhaps with a dtype and a number of dimensions."""

    dtype: torch.dtype | None = None
    dimensions: int | None = None

    def required(self) -> Iterator[tuple[str, Any, str]]:
        """Yield each requirement: the name of an attribute, its value, and words for a tensor that has it."""
        if self.dtype is not None:
            yield "dtype", self.dtype, f"of dtype {self.dtype}"
        if self.dimensions is not None:
            yield "ndim", self.dimensions, f"with ndim = {self.dimensions}"


def is_same_constant(value: Any, other: Any) -> bool:
    """Tell whether a model can tell two plain values apart: ``2`` and ``2.0``, ``0.0`` and ``-0.0``."""
    if type(value) is not type(other):
        return False
    return repr(value) == repr(other) if isinstance(value, float | complex) else bool(value == other)


@dataclass(frozen=True, eq=False)
class RequireParts:
    """The target of a node that raises ``AssertionError`` unless an input has certain parts.

    ``name``: the name of the input. ``parts``: the result of :func:`parted`, with :class:`TensorOf` in place
    of tensors.
    """

    name: str
    parts: Any
    only_reads = True

    @property
    def __name__(self) -> str:
        return "require_parts"

    def __call__(self, value: Any) -> bool:
        """Compare, and raise; return ``True`` for an assertion, which keeps the node from being unused."""
        self._require(value, self.parts, ())
        return True

    def _require(self, value: Any, parts: Any, path: Path) -> None:
        items: Iterable[tuple[Any, Any, Any]] = ()
        if isinstance(parts, TensorOf):
            is_same, words = isinstance(value, torch.Tensor), "as a tensor"
            for name, expected, of_such in parts.required() if is_same else ():
                if getattr(value, name) != expected:
                    is_same, words = False, of_such
                    break
        elif isinstance(parts, ObjectParts):
            words = f"of class {parts.cls.__name__}"
            if is_same := type(value) is parts.cls:
                items = ((name, getattr(value, name, None), part) for name, part in parts.items())
        elif isinstance(parts, Mapping):
            is_alike = isinstance(value, Mapping)
            keys = ", ".join(map(repr, parts))
            words = f"with the keys {keys}" if is_alike else f"as a {type(parts).__name__}"
            if is_same := is_alike and list(value) == list(parts):
                items = ((key, value[key], part) for key, part in parts.items())
        elif isinstance(parts, list | tuple):
            is_alike = type(value) is type(parts)
            words = f"of {len(parts)} items" if is_alike else f"as a {type(parts).__name__}"
            if is_same := is_alike and len(value) == len(parts):
                items = zip(range(len(parts)), value, parts, strict=True)
        else:
            is_same, words = is_same_constant(value, parts), f"= {parts!r}"
        if not is_same:
            raise AssertionError(f"{REFUSAL} {name_of_part(self.name, path)} {words} only")
        for key, item, part in items:
            self._require(item, part, (*path, key))
