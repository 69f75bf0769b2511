"""Outputs of a model's own classes, as nodes of the recorded graph that build them."""

from __future__ import annotations

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import base_types

from fxlab.tracing.shapes.uncounted_lists import ListOfUnknownLength, is_unread, items_of

_PLAIN = (type(None), *base_types)


@dataclasses.dataclass(frozen=True, eq=False)
class ObjectOf:
    """The target of a node that builds an object with given attributes, such as a cache of keys and values.

    ``cls``: the object's class; its constructor is not called. ``names``: the attributes, in their order.
    ``constants``: those attributes that hold no tensor. Each object gets a copy.
    """

    cls: Any
    names: tuple[str, ...]
    constants: Mapping[str, Any]

    @property
    def __name__(self) -> str:
        return str(self.cls.__name__)

    def __call__(self, **attributes: Any) -> Any:
        """Return a new object with these attributes."""
        result: Any = self.cls.__new__(self.cls)
        values = copy.deepcopy(dict(self.constants)) | attributes
        vars(result).update((name, values[name]) for name in self.names)
        return result


@dataclasses.dataclass(frozen=True, eq=False)
class MappingOf:
    """The target of a node that builds a mapping which has attributes besides its items.

    ``cls``: its class, which receives the items. ``constants``: those attributes that hold no tensor; each
    mapping gets a copy. ``factory``: makes the values of missing keys, for a ``defaultdict``.
    """

    cls: Any
    constants: Mapping[str, Any]
    factory: tuple[Any, ...] = ()

    @property
    def __name__(self) -> str:
        return str(self.cls.__name__)

    def __call__(self, items: Mapping[Any, Any], attributes: Mapping[str, Any]) -> Any:
        """Return a new mapping with these items and attributes."""
        has_fields = hasattr(self.cls, "__dataclass_fields__")
        result = self.cls(**items) if has_fields else self.cls(*self.factory, items)
        if more := copy.deepcopy(dict(self.constants)) | dict(attributes):
            vars(result).update(more)
        return result


def output_argument(output: Any, graph: Graph, argument_of: Callable[[Any], Any]) -> Any:
    """Return the argument of the graph's output node, with nodes for the objects inside.

    ``output``: the model's result: tensors and numbers, nested in lists, tuples, mappings, dataclasses and
    plain objects. ``graph``: the graph where objects are built, at its insert point. ``argument_of``: tensor
    or symbolic number -> its node. Raises TypeError if something inside is none of these.
    """
    made: dict[int, Any] = {}

    def build(value: Any) -> Any:
        if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
            return argument_of(value)
        if isinstance(value, (*_PLAIN, Node)):
            return value
        if isinstance(value, ListOfUnknownLength):
            return value.node if is_unread(value) else build(items_of(value))
        if type(value) in (list, tuple):
            return type(value)(build(item) for item in value)
        if type(value) is dict and all(isinstance(key, str | int | float | bool) for key in value):
            return {key: build(item) for key, item in value.items()}
        if isinstance(value, torch.Size):
            return graph.call_function(torch.Size, ([build(item) for item in value],))
        if type(value) in (set, frozenset) and all(isinstance(item, _PLAIN) for item in value):
            return graph.call_function(type(value), ([*value],))
        if id(value) not in made:
            made[id(value)] = _object_node(value, graph, build)
        return made[id(value)]

    return build(output)


def _object_node(value: Any, graph: Graph, build: Callable[[Any], Any]) -> Any:
    cls = type(value)
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return graph.call_function(cls, tuple(build(item) for item in value))
    if isinstance(value, tuple) and cls.__module__ == "torch.return_types":
        return graph.call_function(cls, (tuple(build(item) for item in value),))
    attributes = getattr(value, "__dict__", {})
    if isinstance(value, dict):
        items = {key: build(item) for key, item in value.items()}
        # The fields of a ModelOutput, of which those that are set are its items, are attributes too.
        fields: Mapping[str, Any] = getattr(cls, "__dataclass_fields__", {})
        more = {name: item for name, item in attributes.items() if name not in fields}
        factory = (value.default_factory,) if isinstance(value, defaultdict) else ()
        if more or factory:
            changing = {name: build(item) for name, item in more.items() if _holds_numbers(item)}
            constants = {name: item for name, item in more.items() if name not in changing}
            return graph.call_function(MappingOf(cls, constants, factory), (items, changing))
        return graph.call_function(cls, (), items) if fields else graph.call_function(cls, (items,))
    if dataclasses.is_dataclass(value) and not _makes_more_than_fields(value):
        return graph.call_function(cls, (), {name: build(getattr(value, name)) for name in _given(value)})
    if callable(value) or not hasattr(value, "__dict__") or isinstance(value, list | tuple | set):
        raise TypeError(
            f"The model returns a {cls.__module__}.{cls.__qualname__}, which a graph cannot build. Return "
            "tensors, numbers, lists, tuples, dicts, dataclasses or objects with attributes."
        )
    changing = {name: build(item) for name, item in attributes.items() if _holds_numbers(item)}
    constants = {name: item for name, item in attributes.items() if name not in changing}
    return graph.call_function(ObjectOf(cls, tuple(attributes), constants), (), changing)


def _given(value: Any) -> list[str]:
    """Return the fields of a dataclass that its constructor takes."""
    return [field.name for field in dataclasses.fields(value) if field.init]


def _makes_more_than_fields(value: Any) -> bool:
    """Tell whether a dataclass has attributes that its constructor would not make, or make otherwise."""
    has_own_code = hasattr(type(value), "__post_init__")
    return hasattr(value, "__dict__") and (has_own_code or [*vars(value)] != _given(value))


def _holds_numbers(value: Any) -> bool:
    """Tell whether a tensor, a symbolic number or a node that gives one is inside."""
    if isinstance(
        value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool | Node | ListOfUnknownLength
    ):
        return True
    if isinstance(value, list | tuple | set):
        return any(map(_holds_numbers, value))
    if isinstance(value, dict):
        return any(map(_holds_numbers, value.values()))
    return not isinstance(value, type) and hasattr(value, "__dict__") and _holds_numbers(vars(value))
