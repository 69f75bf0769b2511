"""Containers that a model holds, read and written by methods of the built-in classes, for traces and state.

Classes of a model may refuse writes, count reads or answer in other ways, as a frozen configuration does. Nor
is an object asked for its class, since its answer may be wrong.
"""

import sys
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import starmap
from types import CellType, FunctionType, MemberDescriptorType, SimpleNamespace
from typing import Any, TypeGuard, TypeVar

import numpy as np
from torch import nn

_BUILT_IN: tuple[type[Any], ...] = (OrderedDict, dict, list, set, deque)
_Class = TypeVar("_Class")
_PLAIN = (bool, int, float, complex, str)
_MOST_MEMORY = 1 << 24
_NOT_OF_MODELS = {"torch", *sys.stdlib_module_names} - {"__main__", "argparse", "collections", "weakref"}
"""Packages whose objects are more than their attributes: locks, files, loggers."""


def is_a(value: Any, *classes: type[_Class]) -> TypeGuard[_Class]:
    """Tell whether a value is an instance of a class, regardless of its ``__class__``."""
    return issubclass(type(value), classes)


def contents(value: Any) -> Any:
    """Return a copy of the contents of a list, dict, set or deque; ``None`` for anything else."""
    if (built_in := _built_in(value)) is None:
        return None
    return list(built_in.items(value)) if issubclass(built_in, dict) else list(built_in.__iter__(value))


def held_items(value: Any) -> list[Any] | None:
    """Return what :func:`contents` does, and the items of a tuple, however its class reads them."""
    return list(tuple.__iter__(value)) if is_a(value, tuple) else contents(value)


def put_back(value: Any, before: Any) -> None:
    """Restore the contents of a container from :func:`contents`, unless it still has them."""
    if before is None or has_contents(value, before):
        return
    fill(value, before)


def fill(value: Any, items: Iterable[Any]) -> None:
    """Replace the items of a container, by pairs of key and item for a dict."""
    built_in: Any = _built_in(value)
    built_in.clear(value)
    for item in items:
        if issubclass(built_in, dict):
            built_in.__setitem__(value, *item)
        elif built_in is set:
            built_in.add(value, item)
        else:
            built_in.append(value, item)


def has_contents(value: Any, before: Any) -> bool:
    """Tell whether a container still has the former result of :func:`contents`."""
    built_in: Any = _built_in(value)
    if built_in.__len__(value) != len(before):
        return False
    if not before:  # most of the dozen dicts of a module
        return True
    now = contents(value)
    pairs = zip(now, before, strict=True)
    if is_a(value, dict):
        return all(item is old_item and is_same(key, old) for (key, item), (old, old_item) in pairs)
    return all(starmap(is_same, pairs))


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two values are the same object, or equal plain values.

    A symbolic number is not compared: that would count as a decision of the model.
    """
    if one is other:
        return True
    plain = next((cls for cls in _PLAIN if is_a(one, cls)), None)
    return plain is not None and type(one) is type(other) and plain.__eq__(one, other) is True


def contents_by_key(value: Any) -> dict[Any, Any]:
    """Return the contents of a container by key or index; those of a set, which has no order, by item."""
    items = contents(value)
    if is_a(value, set):
        return {item if type(item) in _PLAIN else (id(item),): item for item in items}
    return dict(items if is_a(value, dict) else enumerate(items))


def replaceable_items(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield keys and values of a dict, indices and items of a list or deque."""
    kept = contents(value)
    if kept is not None and not is_a(value, set):
        yield from kept if is_a(value, dict) else enumerate(kept)


def replace_item(value: Any, key: Any, item: Any) -> None:
    """Put another item into a container, at a key or index of :func:`replaceable_items`."""
    built_in: Any = _built_in(value)
    built_in.__setitem__(value, key, item)


def namespace_of(value: Any) -> dict[str, Any]:
    """Return the dictionary of an object's attributes, or an empty one."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def slots_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the slots of an object that are filled, and their values."""
    for cls in type(value).__mro__:
        names = type.__getattribute__(cls, "__dict__")
        for slot in names.values() if "__slots__" in names else ():
            if type(slot) is MemberDescriptorType:
                try:
                    yield slot, slot.__get__(value)
                except AttributeError:  # nothing was assigned to it
                    continue


def cells_of(function: FunctionType) -> dict[str, tuple[CellType, Any]]:
    """Return the assigned variables around a function, and their values."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned yet
            found[name] = cell, cell.cell_contents
    return found


def memory_in(value: Any) -> bytes | None:
    """Return the bytes of an array, ``bytearray`` or other memory that Python may write.

    ``None`` for anything else, and for more than 16 MB, which would take too long to copy.
    """
    try:
        with memoryview(value) as memory:
            has_objects = "O" in memory.format or memory.nbytes > _MOST_MEMORY
            return None if memory.readonly or has_objects else memory.tobytes()
    except (TypeError, ValueError, BufferError):  # it has none, or one of dates, or is released
        return None


def put_memory_back(value: Any, before: bytes) -> None:
    """Restore the bytes of an array or other memory from :func:`memory_in`."""
    if is_a(value, bytearray):
        value[:] = before
    elif is_a(value, array):
        value[:] = array(value.typecode, before)
    elif is_a(value, np.ndarray):
        value[...] = np.frombuffer(before, value.dtype).reshape(value.shape)
    else:
        np.frombuffer(value, np.uint8)[:] = np.frombuffer(before, np.uint8)


def _built_in(value: Any) -> type[Any] | None:
    # A plain loop: every run of a model comes here, for each container of each module.
    kind = type(value)
    if kind is dict or kind is OrderedDict or kind is list:
        return kind
    if issubclass(kind, _BUILT_IN):
        for built_in in _BUILT_IN:
            if issubclass(kind, built_in):
                return built_in
    return None


def holds_attributes(value: Any) -> bool:
    """Tell whether a value is a model's own object, whose attributes a run may change.

    Objects made in another way, such as members of an enumeration or extensions in C, hold more.
    """
    cls: Any = type(value)
    if cls is SimpleNamespace:
        return True
    is_plain = cls.__new__ is object.__new__ and cls.__reduce_ex__ is object.__reduce_ex__
    return is_plain and _package(cls) not in _NOT_OF_MODELS and not is_a(value, nn.Module)


def _package(cls: type) -> str:
    module: Any = type.__getattribute__(cls, "__module__")
    return module.partition(".")[0] if type(module) is str else ""
