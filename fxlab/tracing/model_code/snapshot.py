"""The contents of files, classes and containers around a model before a run, to which they are put back."""

from __future__ import annotations

import functools
import gc
import io
import logging
import os
import threading
import weakref
from abc import ABC
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import is_
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from fxlab.base.exchanged import ABSENT, set_name
from fxlab.models.state.model_state import is_generator, is_used_up
from fxlab.tracing.model_code.model_files import PYTHONS, file_of, is_apart, names_in, package_of
from fxlab.values.containers import contents_by_key, fill, is_a, is_same, memory_in, put_memory_back, slots_of

Environ: type[Any] = type(os.environ)
_NUMBERS = frozenset({bool, int, float, complex, str})
_IMPORTED_ONES: tuple[type[Any], ...] = (ModuleType, type, FunctionType)
MOST_SEARCHED = 20_000
"""The most objects inside a value that are searched."""


@dataclass(frozen=True)
class Slots:
    """The contents of the slots of an object."""

    owner: Any


def live_contents(holder: Any) -> Mapping[Any, Any] | None:
    """Return the contents of a holder as a mapping that goes on showing them, if it has one."""
    live: Mapping[Any, Any] | None = None
    if type(holder) is dict:
        live = holder
    elif is_a(holder, type):
        live = type.__getattribute__(holder, "__dict__")
    elif is_a(holder, ModuleType):
        live = object.__getattribute__(holder, "__dict__")
    elif is_a(holder, Environ):
        live = holder._data
    return live


def contents_of(holder: Any) -> Mapping[Any, Any]:
    """Return the contents of a holder, by key or by index."""
    if (live := live_contents(holder)) is not None:
        return live
    if isinstance(holder, Slots):
        return {slot.__name__: value for slot, value in slots_of(holder.owner)}
    if is_a(holder, CellType):
        try:
            return {"": holder.cell_contents}
        except ValueError:  # the variable has not been assigned yet
            return {}
    return contents_by_key(holder)


def attributes_in(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's attributes, if it has one."""
    try:
        own = vars(value)
    except Exception:  # most have none, and the referent of a weak proxy may be gone
        return None
    return own if type(own) is dict else None


def put_contents_back(
    holder: Any,
    now: dict[Any, Any],
    before: dict[Any, Any],
    is_of_run: Callable[[Any], bool],
    is_named: Callable[[Any, Any], bool],
) -> list[Any]:
    """Put back the contents of a holder that are of the run, or that the model names; return their places."""
    both = {**before, **now}
    changed = [key for key in both if not is_same(now.get(key, ABSENT), before.get(key, ABSENT))]
    is_owner = is_a(holder, ModuleType, type)
    if not (changed or is_owner or is_a(holder, set) or all(map(is_same, now, before))):
        changed = [*now]  # in another order
    imported = {key for key in changed if is_owner and key not in before and is_a(now[key], *_IMPORTED_ONES)}
    found = [
        key
        for key in changed
        if holds((key, now.get(key)), is_of_run) or (key not in imported and is_named(holder, key))
    ]
    if not found:
        return []
    if is_a(holder, CellType):
        holder.cell_contents = before.get("")
    elif is_a(holder, ModuleType, type, Slots, Environ):
        for key in found:
            put_name(holder, key, before.get(key, ABSENT))
    else:
        fill(holder, before.items() if is_a(holder, dict) else before.values())
    return found


def new_numbers(now: dict[Any, Any], before: dict[Any, Any]) -> list[Any]:
    """Return where there are other numbers and texts than there were, as a counter has them."""
    both = now.keys() & before.keys()
    plain = [key for key in both if type(now[key]) in _NUMBERS and type(before[key]) in _NUMBERS]
    return [key for key in plain if not is_same(now[key], before[key])]


def put_name(owner: Any, name: str, value: Any) -> None:
    """Write a name of a module or class, a slot or a variable of the environment.

    It is taken away if the value is ``ABSENT``.
    """
    if is_a(owner, Environ):
        if value is ABSENT:
            del owner[owner.decodekey(name)]
        else:
            owner[owner.decodekey(name)] = owner.decodevalue(value)
    elif not isinstance(owner, Slots):
        set_name(owner, name, value)
    elif value is ABSENT:
        object.__delattr__(owner.owner, name)
    else:
        object.__setattr__(owner.owner, name, value)


def holds(value: Any, is_of_run: Callable[[Any], bool]) -> bool:
    """Tell whether something of a run can be reached from a value, other than through code."""
    seen: set[int] = set()
    ahead = deque([value])
    while ahead and len(seen) < MOST_SEARCHED:
        value = ahead.popleft()
        if is_a(value, ModuleType, type) or id(value) in seen:
            continue
        seen.add(id(value))
        if is_a(value, torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool):
            if is_of_run(value):
                return True
        elif is_a(value, FunctionType):
            ahead += value.__closure__ or (), value.__defaults__, value.__kwdefaults__, value.__dict__
        else:
            ahead += gc.get_referents(value)
    return False


_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, ModuleType})
_APART_CLASSES: tuple[type[Any], ...] = (
    *(nn.Module, type, ModuleType, logging.Logger),
    threading.Thread,  # changes while a model runs, as the one that watches progress bars
    io.IOBase,  # what is printed stays so; another thread empties the buffers of a notebook's output
    type(vars(ABC)["_abc_impl"]),  # where an abstract class remembers the answers of isinstance
)
"""Classes that are not searched, or are searched in a way of their own."""
_OF_PYTHON_ITSELF = frozenset({"builtins", "functools"})
"""Where methods, tuples, properties, partial functions and the like are, which hold more than attributes."""
_OF_IMPORTS = frozenset({"__builtins__", "__loader__", "__spec__"})
"""The attributes that the import system writes into a file. The loader of a test leads to all tests."""

Cached = functools._lru_cache_wrapper
_HOLDERS: tuple[type[Any], ...] = (CellType, dict, list, set, deque)
_SEARCHED: Any = (torch.Tensor, *_APART_CLASSES, Cached, Environ, FunctionType, *_HOLDERS, weakref.ref, tuple)


class Snapshot:
    """The contents of some files, classes and values, and of all that can be reached from there.

    A class that no file names, such as one of a function, is found by its objects. ``apart_from``: files and
    classes that another snapshot has. ``owners``: those that this one has. ``caches``: functions with a
    cache, and iterators, neither of which a run may use: the holder, the name there, and the object.
    ``tensors``: the tensors and modules that were found, which may be written.
    """

    def __init__(
        self,
        owners: Iterable[Any] = (),
        apart_from: Iterable[Any] = (),
        values: Iterable[tuple[str, Any]] = (),
    ) -> None:
        self.owners: list[Any] = []
        self.caches: list[tuple[Any, Any, Any]] = []
        self.tensors: list[torch.Tensor | nn.Module] = []
        self._known = {*map(id, apart_from)}
        self._memory: list[tuple[str, Any, bytes]] = []
        self._held: list[tuple[str, Any, Mapping[Any, Any] | None, dict[Any, Any]]] = []
        self._cached: list[tuple[str, Any, int]] = []
        self._bare: list[tuple[str, Any]] = []
        self._seen: set[int] = set()
        self._own(owners)
        for name, value in values:
            self._keep(name, value)
        for owner in self.owners:  # which grow meanwhile
            name, names = _name_of(owner), names_in(owner)
            self._held.append((name, owner, live_contents(owner), names))
            if is_a(owner, type):
                self._own([*type.__getattribute__(owner, "__mro__"), type(owner), *names.values()])
            for key, value in names.items():
                if (kind := type(value)) in _PLAIN:  # as the many names and numbers of a table
                    continue
                if kind is FunctionType and _holds_nothing(value):
                    self._bare.append((f"{name}{key}", value))
                    continue
                if is_a(value, Cached) or _goes_on(value):
                    self.caches.append((owner, key, value))
                if key not in _OF_IMPORTS:
                    self._keep(f"{name}{key}", value)

    def _own(self, values: Iterable[Any]) -> None:
        """Add the files among some values, and the classes of a model."""
        for value in values:
            if id(value) not in self._known:
                self._known.add(id(value))
                if is_a(value, ModuleType) or (is_a(value, type) and not is_apart(file_of(value))):
                    self.owners.append(value)

    def is_current(self) -> bool:
        """Tell whether all is still as it was; the caches of functions may have new entries."""
        if any(attributes_in(value) for _, value in self._bare) or any(self._changed()):
            return False
        if not all(memory_in(value) == memory for _, value, memory in self._memory):
            return False
        self._cached = [(name, function, function.cache_info().misses) for name, function, _ in self._cached]
        return True

    def holders(self) -> set[int]:
        """Return the identities of all holders that were found."""
        return self._seen.union(id(holder) for _, holder, *_ in self._held)

    def _changed(self) -> Iterator[tuple[str, Any, dict[Any, Any], dict[Any, Any]]]:
        """Yield the places, holders and contents, now and before, of what is not as it was."""
        for name, holder, live, before in self._held:
            now = contents_of(holder) if live is None else live
            if len(now) != len(before) or not all(map(is_, now.values(), before.values())):
                yield name, holder, dict(now), before

    def put_back(self, is_of_run: Callable[[Any], bool], is_named: Callable[[Any, Any], bool]) -> list[str]:
        """Put back what is of a run, and what the model names; return the places that have changed."""
        found = []
        for name, holder, now, before in self._changed():
            numbers = new_numbers(now, before)
            changed = [*put_contents_back(holder, now, before, is_of_run, is_named), *numbers]
            keys = (os.fsdecode(key) if type(key) is bytes else key for key in changed)
            found += [f"{name}{key}" if name.endswith(".") else name for key in keys]
        for name, value, memory in self._memory:
            if memory_in(value) != memory and is_named(value, ""):
                put_memory_back(value, memory)
                found.append(name)
        for name, value in self._bare:
            if own := attributes_in(value):
                found += [
                    f"{name}.{key}" for key in put_contents_back(own, dict(own), {}, is_of_run, is_named)
                ]
        for name, function, misses in self._cached:
            if function.cache_info().misses != misses and holds(function, is_of_run):
                function.cache_clear()
                found.append(name)
        return found

    def _keep(self, name: str, value: Any) -> None:
        """Keep the contents of a value, and their contents in turn, as far as that is not too much."""
        ahead, seen = deque([(name, value)]), self._seen
        most = len(seen) + MOST_SEARCHED
        while ahead and len(seen) < most:
            name, value = ahead.popleft()
            kind: Any = type(value)
            if kind in _PLAIN or id(value) in seen:
                continue
            base, has_slots = _searched_as(kind)
            self.tensors += [value] if base in (torch.Tensor, nn.Module) else []
            if base in _APART_CLASSES:
                self._own((value,) if base is type else ())
                continue
            seen.add(id(value))
            self._own((kind,))
            if base is object and (memory := memory_in(value)) is not None:
                self._memory.append((name, value, memory))
                continue
            if base is Cached:
                self._cached.append((name, value, value.cache_info().misses))
                value = value.__wrapped__
                base = FunctionType if is_a(value, FunctionType) else tuple
            if base is Environ:
                self._hold(f"{name}.", value, ahead)
                continue
            own = attributes_in(value)
            is_bare = base is not torch.Tensor and not (own or has_slots)
            if base is FunctionType:
                ahead.extend(_around(name, value))
            elif base in _HOLDERS:
                self._hold(name, value, ahead)
            elif base is weakref.ref:
                ahead.append((name, value()))
            elif base is tuple or is_bare or file_of(kind) in _OF_PYTHON_ITSELF:
                ahead.extend((name, item) for item in gc.get_referents(value))
            if own:
                self._hold(f"{name}.", own, ahead)
            elif own is not None:
                self._bare.append((name, value))
            if has_slots:
                self._hold(f"{name}.", Slots(value), ahead)

    def _hold(self, name: str, holder: Any, ahead: deque[tuple[str, Any]]) -> None:
        before = dict(contents_of(holder))
        is_cell = is_a(holder, CellType)
        if is_cell or is_a(holder, dict, list, deque):
            self.caches += [
                (holder, key, value)
                for key, value in before.items()
                if type(value) not in _PLAIN and (_goes_on(value) or (is_cell and is_a(value, Cached)))
            ]
        self._held.append((name, holder, live_contents(holder), before))
        ahead.extend(
            (f"{name}{key}" if is_a(holder, dict) else name, item)
            for key, item in before.items()
            if type(item) not in _PLAIN
        )


@functools.lru_cache(maxsize=4096)
def _searched_as(kind: type) -> tuple[type, bool]:
    """Return the class by which objects of a class are searched, and whether they have slots to search."""
    has_slots = "__slots__" in vars(kind) and package_of(file_of(kind)) not in PYTHONS
    return next((base for base in _SEARCHED if issubclass(kind, base)), object), has_slots


def _goes_on(value: Any) -> bool:
    """Return whether reading the value changes it (iterators). Generators of torch are refused elsewhere."""
    return is_used_up(value) or (is_generator(value) and not is_a(value, torch.Generator))


def _around(name: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables that a function has from outside, and its default arguments."""
    yield from zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield from ((f"{name}.__defaults__", item) for item in function.__defaults__ or ())
    yield from ((f"{name}.__kwdefaults__", item) for item in (function.__kwdefaults__ or {}).values())


def _holds_nothing(function: FunctionType) -> bool:
    """Tell whether a function has nothing but its code, as most have; attributes may be added to it."""
    defaults = *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()
    is_plain = all(type(default) in _PLAIN for default in defaults)
    return is_plain and function.__closure__ is None and not function.__dict__


def _name_of(owner: Any) -> str:
    if isinstance(owner, type):
        return f"{file_of(owner)}.{owner.__qualname__}."
    return f"{names_in(owner).get('__name__')}."
