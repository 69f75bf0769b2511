"""Tensors inside nested values: lists, tuples, mappings, objects that are taken apart; every room asks."""

import copy
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from torch import nn
from torch.fx import Node

from fxlab.base.torch_private import pytree

REFUSAL = "traced for"
"""How the message begins with which a graph refuses inputs that it does not hold for."""
RAISED = "raised"
"""The key in ``node.meta`` of the error of the call that failed, in the graph of a model that raises."""

Path = tuple[Any, ...]
"""The keys, indices and attributes that lead from a value to a tensor inside."""


_ATOMS = frozenset({type(None), bool, int, float, str, torch.dtype, torch.device})


class Attribute(str):
    """The name of an attribute, in a path among keys and indices."""

    __slots__ = ()


class Child(Attribute):
    """A part of an object of a class that is registered as a node of pytrees, by name or place."""

    __slots__ = ()


class ObjectParts(dict[Attribute, Any]):
    """The parts of an object, as a mapping: its attributes, such as the keys and values of a cache.

    Those of an object of a class that is registered with pytrees are its children. ``context``: what the
    registered function returns beside them; ``...`` if the parts are attributes.
    """

    def __init__(self, cls: type, parts: Mapping[Attribute, Any], context: Any = ...) -> None:
        super().__init__(parts)
        self.cls, self.context = cls, context

    @classmethod
    def of(cls, value: Any) -> "ObjectParts":
        """Take an object apart."""
        if not is_registered(value):
            return cls(type(value), {Attribute(name): item for name, item in vars(value).items()})
        children, context = _registered(type(value)).flatten_fn(value)
        children = list(children)
        told = type(context) in (list, tuple) and len(context) == len(children)
        names = context if told and all(type(name) is str for name in context) else range(len(children))
        parts = {Child(name): child for name, child in zip(names, children, strict=True)}
        return cls(type(value), cast("Mapping[Attribute, Any]", parts), context)

    def with_parts(self, parts: Mapping[Attribute, Any]) -> "ObjectParts":
        """Return the parts of an object of the same class with other parts."""
        return ObjectParts(self.cls, parts, self.context)

    def made(self) -> Any:
        """Return a new object of these parts."""
        items = {name: unflatten_objects(item) for name, item in self.items()}
        if self.context is not ...:
            return _registered(self.cls).unflatten_fn(list(items.values()), self.context)
        result: Any = object.__new__(self.cls)
        vars(result).update({str(name): item for name, item in items.items()})
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectParts, (self.cls, dict(self), self.context)


def _registered(cls: type) -> Any:
    return pytree.SUPPORTED_NODES.get(cls)


def is_registered(value: Any) -> bool:
    """Tell whether an object is taken apart as its class is registered with pytrees, and in no other way.

    Its iteration, length and comparison may be anything, as those of a table of rows are.
    """
    is_node = _registered(type(value)) is not None
    return is_node and not isinstance(value, dict | list | tuple | deque) and not is_object(value)


def parts_inside(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the items of a list, tuple or mapping with their indices or keys; nothing of any other value.

    Lists and tuples whose class reads its items in a way of its own are left alone.
    """
    kind = type(value)
    if kind is tuple or kind is list:
        return enumerate(value)
    if issubclass(kind, dict):
        return dict.items(value)
    if issubclass(kind, (list, tuple)):
        built_in = list if issubclass(kind, list) else tuple
        # Lists of unknown length are not read by this.
        return enumerate(built_in.__iter__(value)) if _reads_as_built_in(kind) else ()
    if is_registered(value):
        return ObjectParts.of(value).items()
    return value.items() if isinstance(value, Mapping) else ()


@cache
def _reads_as_built_in(kind: Any) -> bool:
    built_in = list if issubclass(kind, list) else tuple
    is_own = kind.__module__.partition(".")[0] == "fxlab"
    readers = ("__iter__", "__len__", "__getitem__")
    return is_own or all(getattr(kind, name) is getattr(built_in, name) for name in readers)


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


def flatten_objects(value: Any) -> Any:
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
    if not is_object(value) and not is_registered(value):
        return value
    parts = ObjectParts.of(value)
    return parts.with_parts({name: _parted(item, inside) for name, item in parts.items()})


def unflatten_objects(value: Any) -> Any:
    """Undo :func:`flatten_objects`, with new objects."""
    if isinstance(value, ObjectParts):
        return value.made()
    if type(value) is dict:
        return {key: unflatten_objects(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(unflatten_objects(item) for item in value)
    return value


def tensors_inside(value: Any, path: Path = ()) -> Iterator[tuple[Path, torch.Tensor]]:
    """Yield each tensor inside nested lists, tuples and mappings, with the path that leads to it."""
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    kind = type(value)  # a plain way for the arguments of calls, of which there are very many
    if kind in _ATOMS:
        return
    for key, item in enumerate(value) if kind is tuple or kind is list else parts_inside(value):
        yield from tensors_inside(item, (*path, key))


def texts_inside(value: Any, inside: frozenset[int] = frozenset()) -> Iterator[str]:
    """Yield each text inside nested lists, tuples, mappings and objects, with keys and attributes."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return  # it leads to torch's whole knowledge of sizes, which takes seconds to walk
    inside |= {id(value)}
    parts: Iterable[Any] = ()
    if isinstance(value, str):
        yield value
    elif inside_of := dict(parts_inside(value)):
        parts = inside_of.items() if isinstance(value, Mapping) else inside_of.values()
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
    items = {key: map_tensors(change, item, (*path, key), other) for key, item in parts_inside(value)}
    if type(value) is dict:
        return items
    if isinstance(value, ObjectParts):
        return value.with_parts(items)
    if is_registered(value):
        return ObjectParts.of(value).with_parts(items).made()
    if isinstance(value, Mapping):
        if hasattr(type(value), "__dataclass_fields__"):
            return type(value)(**items)  # ModelOutput and its like
        return _mapping_like(value, items)
    if isinstance(value, list | tuple) and _reads_as_built_in(type(value)):
        # Named tuples may have a constructor of their own, as packed sequences do.
        named: Any = type(value)
        return tuple.__new__(named, items.values()) if hasattr(value, "_fields") else named(items.values())
    return value if other is None else other(value)


def _mapping_like(value: Any, items: Mapping[Any, Any]) -> Any:
    """Return a copy of a mapping with other items, which shares nothing that can be written with it."""
    before = dict(parts_inside(value))
    try:
        copied: Any = copy.deepcopy(value, {id(before[key]): item for key, item in items.items()})
    except Exception:  # its class refuses copies, in whatever way, and may take a mapping
        return type(value)(dict(items))
    for key, item in items.items():  # as Counter.update adds
        if copied[key] is not item and item is not before[key]:
            copied[key] = item
    return copied


def has_parts(value: Any) -> bool:
    """Tell whether there is a tensor inside, or an object that was taken apart."""
    if isinstance(value, torch.Tensor | ObjectParts):
        return True
    return any(has_parts(item) for _, item in parts_inside(value))


def name_of_part(name: str, path: Path) -> str:
    """Write a part of a value as Python would read it."""
    return "".join((name, *(f".{key}" if isinstance(key, Attribute) else f"[{key!r}]" for key in path)))


def part_of(node: Node, path: Path) -> Node:
    """Return a node that computes a part of another node's value."""
    for step in steps_of(path):
        node = add_getitem(node, step)
    return node


def steps_of(path: Path) -> list[Path]:
    """Return the steps of a path that have nodes: a single one if it leads through an object."""
    is_through_object = any(isinstance(key, Attribute) for key in path)
    return [path] if is_through_object else [(key,) for key in path]


def add_getitem(node: Node, step: Path) -> Node:
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
            if isinstance(key, Child):
                value = ObjectParts.of(value)[key]
            else:
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

    ``name``: the name of the input. ``parts``: the result of :func:`flatten_objects`, with
    :class:`TensorOf` for tensors.
    """

    name: str
    parts: Any
    only_reads = True
    __name__ = "require_parts"

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
                given = ObjectParts.of(value)
                is_same = is_same_constant(given.context, parts.context)
                items = ((name, given.get(name), part) for name, part in parts.items())
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
