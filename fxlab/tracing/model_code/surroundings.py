"""The Python around a model: searched for tensors of a run when it has ended, and put back.

A model may store results outside its modules: in a dictionary of a file, in an attribute of a class, in the
variables of a decorator, in :func:`functools.lru_cache`. A fake tensor that stays there would reach the next
run of the model, and every other reader.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import sys
import threading
import weakref
from abc import ABC
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass
from operator import is_
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from fxlab.author_frames import is_installed
from fxlab.exchanged import ABSENT, set_name
from fxlab.models.model_state import SavedTensor, has_values, is_generator, is_used_up
from fxlab.models.python_read import attributes_of, classes_of, python_named
from fxlab.tracing.model_code.model_files import file_of, files_of, names_in
from fxlab.values.containers import (
    contents,
    contents_by_key,
    fill,
    is_a,
    is_same,
    memory_in,
    put_memory_back,
    slots_of,
)

_NUMBERS = frozenset({bool, int, float, complex, str})
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, ModuleType})
_APART_CLASSES: tuple[type[Any], ...] = (
    *(torch.Tensor, nn.Module, ModuleType, type, logging.Logger),
    threading.Thread,  # changes while a model runs, as the one that watches progress bars
    type(vars(ABC)["_abc_impl"]),  # where an abstract class remembers the answers of isinstance
)
"""Classes that are not searched, or are searched by a function of their own."""
_Environ: type[Any] = type(os.environ)
_IMPORTED_ONES: tuple[type[Any], ...] = (ModuleType, type, FunctionType)
_PYTHONS = sys.stdlib_module_names - {"__main__"}
_APART = {"torch", "fxlab", "numpy", "builtins", *_PYTHONS}
"""Packages whose files hold nothing of a model."""
_OF_PYTHON_ITSELF = frozenset({"builtins", "functools"})
"""Where methods, tuples, properties, partial functions and the like are, which hold more than attributes."""
_OF_IMPORTS = frozenset({"__builtins__", "__loader__", "__spec__"})
"""The attributes that the import system writes into a file. The loader of a test leads to all tests."""
_MOST_COPIED = 1 << 18
"""The most elements of a tensor outside of the model that is copied."""
_MOST_SEARCHED = 20_000
"""The most objects inside a value that are searched."""

Cached = functools._lru_cache_wrapper


def files_around(model: nn.Module, *others: Any) -> list[ModuleType]:
    """Return the Python files that the code of a model can reach by names, as far as they know torch.

    These are the files of its classes, the files of the names that these import, and so on. ``others``: an
    optimizer or functions that run with it.
    """
    found: dict[int, ModuleType] = {}
    ahead = [*files_of(model), *(file for file in map(_written_in, others) if file is not None)]
    while ahead:
        file = ahead.pop()
        if id(file) not in found and (next_to := _next_to(file)) is not None:
            found[id(file)] = file
            ahead += next_to
    return list(found.values())


def _next_to(file: ModuleType) -> list[ModuleType] | None:
    """Return the files of the names that a file imports, ``None`` if it knows nothing of torch."""
    if not is_a(file, ModuleType) or _is_apart(name := _name_in(file)):
        return None
    names = names_in(file)
    if name not in _IMPORTED or _IMPORTED[name][0] != len(names):
        files = {id(other): other for other in map(_written_in, names.values()) if other is not None}
        packages = {_package(_name_in(other)) for other in files.values()}
        others = [other for other in files.values() if not _is_apart(_name_in(other))]
        _IMPORTED[name] = len(names), others if "torch" in packages else None
    return _IMPORTED[name][1]


_IMPORTED: dict[str, tuple[int, list[ModuleType] | None]] = {}
"""The results of :func:`_next_to`, with the number of names that there were: a file changes little."""


_ONE_AT_A_TIME = threading.RLock()
_CURRENT: list[tuple[nn.Module, Surroundings]] = []


@contextmanager
def run_alone(model: nn.Module) -> Iterator[Surroundings]:
    """Let no other thread record a model until the block ends, and keep the Python around this one.

    Torch itself is changed while a model is recorded, and the age of a tensor tells whether it is of the run.
    """
    with _ONE_AT_A_TIME:
        found = next((around for of, around in _CURRENT if of is model), None)
        _CURRENT.append((model, found or Surroundings(model)))
        try:
            yield _CURRENT[-1][1]
        finally:
            _CURRENT.pop()


@dataclass(frozen=True)
class _Slots:
    """The contents of the slots of an object."""

    owner: Any


class _Snapshot:
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
            self._held.append((name, owner, _live(owner), names))
            if is_a(owner, type):
                self._own([*type.__getattribute__(owner, "__mro__"), type(owner), *names.values()])
            for key, value in names.items():
                if is_a(value, Cached) or _goes_on(value):
                    self.caches.append((owner, key, value))
                kind = type(value)
                if kind is FunctionType and _holds_nothing(value):
                    self._bare.append((f"{name}{key}", value))
                elif kind not in _PLAIN and key not in _OF_IMPORTS:
                    self._keep(f"{name}{key}", value)

    def _own(self, values: Iterable[Any]) -> None:
        """Add the files among some values, and the classes of a model."""
        for value in values:
            is_owner = is_a(value, ModuleType) or (is_a(value, type) and not _is_apart(file_of(value)))
            if is_owner and id(value) not in self._known:
                self._known.add(id(value))
                self.owners.append(value)

    def is_current(self) -> bool:
        """Tell whether all is still as it was; the caches of functions may have new entries."""
        if any(value.__dict__ for _, value in self._bare) or any(self._changed()):
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
            now = _contents_of(holder) if live is None else live
            if len(now) != len(before) or not all(map(is_, now.values(), before.values())):
                yield name, holder, dict(now), before

    def put_back(self, is_of_run: Callable[[Any], bool], is_named: Callable[[Any, Any], bool]) -> list[str]:
        """Put back what is of a run, and what the model names; return the places that have changed."""
        found = []
        for name, holder, now, before in self._changed():
            numbers = _new_numbers(now, before)
            changed = [*_put_back(holder, now, before, is_of_run, is_named), *numbers]
            keys = (os.fsdecode(key) if type(key) is bytes else key for key in changed)
            found += [f"{name}{key}" if name.endswith(".") else name for key in keys]
        for name, value, memory in self._memory:
            if memory_in(value) != memory and is_named(value, ""):
                put_memory_back(value, memory)
                found.append(name)
        for name, value in self._bare:
            if own := value.__dict__:
                found += [f"{name}.{key}" for key in _put_back(own, dict(own), {}, is_of_run, is_named)]
        for name, function, misses in self._cached:
            if function.cache_info().misses != misses and _holds(function, is_of_run):
                function.cache_clear()
                found.append(name)
        return found

    def _keep(self, name: str, value: Any) -> None:
        """Keep the contents of a value, and their contents in turn, as far as that is not too much."""
        ahead, seen = deque([(name, value)]), self._seen
        most = len(seen) + _MOST_SEARCHED
        while ahead and len(seen) < most:
            name, value = ahead.popleft()
            kind = type(value)
            if kind in _PLAIN or id(value) in seen:
                continue
            if issubclass(kind, type):
                self._own((value,))
                continue
            if issubclass(kind, _APART_CLASSES):
                self.tensors += [value] if issubclass(kind, torch.Tensor | nn.Module) else []
                if issubclass(kind, torch.Tensor):
                    seen.add(id(value))
                    self._keep_attributes(name, value, ahead)
                continue
            seen.add(id(value))
            self._own((kind,))
            if (memory := memory_in(value)) is not None:
                self._memory.append((name, value, memory))
                continue
            if issubclass(kind, Cached):
                self._cached.append((name, value, value.cache_info().misses))
                value = value.__wrapped__
            if issubclass(kind, _Environ):
                self._hold(f"{name}.", value, ahead)
                continue
            own = _namespace(value)
            has_slots = "__slots__" in vars(kind) and _package(file_of(kind)) not in _PYTHONS
            if is_a(value, FunctionType):
                ahead.extend(_around(name, value))
            elif issubclass(kind, CellType) or contents(value) is not None:
                self._hold(name, value, ahead)
            elif is_a(value, weakref.ref):
                ahead.append((name, value()))
            elif is_a(value, tuple) or not (own or has_slots) or file_of(kind) in _OF_PYTHON_ITSELF:
                ahead.extend((name, item) for item in gc.get_referents(value))
            if own is not None:
                self._hold(f"{name}.", own, ahead)
            if has_slots:
                self._hold(f"{name}.", _Slots(value), ahead)

    def _keep_attributes(self, name: str, tensor: torch.Tensor, ahead: deque[tuple[str, Any]]) -> None:
        if own := _namespace(tensor):
            self._hold(f"{name}.", own, ahead)
        elif own is not None:
            self._bare.append((name, tensor))

    def _hold(self, name: str, holder: Any, ahead: deque[tuple[str, Any]]) -> None:
        before = dict(_contents_of(holder))
        is_cell = is_a(holder, CellType)
        if is_cell or is_a(holder, dict, list, deque):
            self.caches += [
                (holder, key, value)
                for key, value in before.items()
                if _goes_on(value) or (is_cell and is_a(value, Cached))
            ]
        self._held.append((name, holder, _live(holder), before))
        ahead.extend(
            (f"{name}{key}" if is_a(holder, dict) else name, item)
            for key, item in before.items()
            if type(item) not in _PLAIN
        )


class Surroundings:
    """The contents of the files around a model when this was made, and of the attributes of its modules.

    ``others``: an optimizer or functions that run with the model. ``owners``: the files around it, and the
    classes in them. ``caches``: the functions with a cache that they hold, or the variables of decorators:
    where, its name there, and the function.
    """

    def __init__(self, model: nn.Module, *others: Any) -> None:
        self._roots = model, *others
        files = files_around(*self._roots)
        named = (value for file in files for value in names_in(file).values() if is_a(value, type))
        classes = {id(cls): cls for cls in (*named, *classes_of(*self._roots)) if not _is_apart(file_of(cls))}
        owners: list[Any] = [*files, *classes.values()]
        installed = _snapshot_of_installed([owner for owner in owners if _is_installed(owner)])
        lasting = installed, _Snapshot(owners, installed.owners)
        self.owners = [owner for snapshot in lasting for owner in snapshot.owners]
        self.caches = [cache for snapshot in lasting for cache in snapshot.caches]
        values = ("os.environ", os.environ), *attributes_of(*self._roots)
        self._snapshots = *lasting, _Snapshot((), self.owners, values)

        self._saved = [SavedTensor.of(tensor) for tensor in self._tensors_outside() if has_values(tensor)]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors outside of the model that its code may reach, and those of such modules."""
        found = [value for snapshot in self._snapshots for value in snapshot.tensors]
        modules = (value for value in found if isinstance(value, nn.Module))
        held = (tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
        return [*held, *(value for value in found if isinstance(value, torch.Tensor))]

    def _tensors_outside(self) -> Iterator[torch.Tensor]:
        """Yield the small ones among these that the model does not hold itself."""
        modules = (root for root in self._roots if is_a(root, nn.Module))
        held = {id(tensor) for module in modules for tensor in (*module.parameters(), *module.buffers())}
        yield from (t for t in self.tensors if id(t) not in held and t.numel() <= _MOST_COPIED)

    def put_back(self, is_of_run: Callable[[Any], bool]) -> list[str]:
        """Put back what a run has changed; return the places.

        These are the holders of tensors or symbolic numbers of the run; all that the functions of the model
        name, except for what was imported; and other numbers and texts with a new value, which stay, as
        another thread may have set them. ``is_of_run``: tells whether a tensor or number is one of the run.
        """

        @functools.cache
        def named() -> tuple[frozenset[str], set[int]]:
            names, values = python_named(*self._roots)
            return names, _Snapshot(values=values).holders()

        def is_named(holder: Any, key: Any) -> bool:
            names, holders = named()
            if is_a(holder, ModuleType, type):
                return key in names
            if is_a(holder, _Environ):
                return not names.isdisjoint(("environ", "putenv", "unsetenv"))
            return id(holder.owner if is_a(holder, _Slots) else holder) in holders

        for saved in self._saved:
            saved.put_back()
        found = [where for each in self._snapshots for where in each.put_back(is_of_run, is_named)]
        return list(dict.fromkeys(found))

    def variables_set_in(self, context: Context) -> list[str]:
        """Return the names of context variables that a run in a copy of the present context has set.

        Others than those around the model may be of libraries that the recorder uses.
        """
        now = copy_context()
        changed = [each for each, value in context.items() if value is not now.get(each, ABSENT)]
        known = (each.holders() for each in self._snapshots if changed)
        return [each.name for holders in known for each in changed if id(each) in holders]


_OF_INSTALLED: dict[tuple[int, ...], _Snapshot] = {}
"""The last snapshots of installed packages, by their files and classes, which change little between runs."""
_MOST_SNAPSHOTS = 4


def _snapshot_of_installed(owners: list[Any]) -> _Snapshot:
    key = tuple(map(id, owners))
    snapshot = _OF_INSTALLED.pop(key, None)
    if snapshot is None or not snapshot.is_current():
        snapshot = _Snapshot(owners)
    _OF_INSTALLED[key] = snapshot
    if len(_OF_INSTALLED) > _MOST_SNAPSHOTS:
        del _OF_INSTALLED[next(iter(_OF_INSTALLED))]
    return snapshot


def _is_installed(owner: Any) -> bool:
    """Tell whether a file or class is of an installed package, and not of a person's own code."""
    file = owner if is_a(owner, ModuleType) else sys.modules.get(file_of(owner))
    path = names_in(file).get("__file__") if is_a(file, ModuleType) else None
    return type(path) is str and is_installed(path)


def _goes_on(value: Any) -> bool:
    """Tell whether a value gives something else each time; a graph refuses torch's generators by itself."""
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


def _namespace(value: Any) -> dict[str, Any] | None:
    try:
        own = vars(value)
    except Exception:  # most have none, and the referent of a weak proxy may be gone
        return None
    return own if type(own) is dict else None


def _live(holder: Any) -> Mapping[Any, Any] | None:
    """Return the contents of a holder as a mapping that goes on showing them, if it has one."""
    live: Mapping[Any, Any] | None = None
    if type(holder) is dict:
        live = holder
    elif is_a(holder, type):
        live = type.__getattribute__(holder, "__dict__")
    elif is_a(holder, ModuleType):
        live = object.__getattribute__(holder, "__dict__")
    elif is_a(holder, _Environ):
        live = holder._data
    return live


def _contents_of(holder: Any) -> Mapping[Any, Any]:
    """Return the contents of a holder, by key or by index."""
    if (live := _live(holder)) is not None:
        return live
    if isinstance(holder, _Slots):
        return {slot.__name__: value for slot, value in slots_of(holder.owner)}
    if is_a(holder, CellType):
        try:
            return {"": holder.cell_contents}
        except ValueError:  # the variable has not been assigned yet
            return {}
    return contents_by_key(holder)


def _put_back(
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
        if _holds((key, now.get(key)), is_of_run) or (key not in imported and is_named(holder, key))
    ]
    if not found:
        return []
    if is_a(holder, CellType):
        holder.cell_contents = before.get("")
    elif is_a(holder, ModuleType, type, _Slots, _Environ):
        for key in found:
            put_name(holder, key, before.get(key, ABSENT))
    else:
        fill(holder, before.items() if is_a(holder, dict) else before.values())
    return found


def _new_numbers(now: dict[Any, Any], before: dict[Any, Any]) -> list[Any]:
    """Return where there are other numbers and texts than there were, as a counter has them."""
    both = now.keys() & before.keys()
    plain = [key for key in both if type(now[key]) in _NUMBERS and type(before[key]) in _NUMBERS]
    return [key for key in plain if not is_same(now[key], before[key])]


def put_name(owner: Any, name: str, value: Any) -> None:
    """Write a name of a module or class, a slot or a variable of the environment.

    It is taken away if the value is ``ABSENT``.
    """
    if is_a(owner, _Environ):
        if value is ABSENT:
            del owner[owner.decodekey(name)]
        else:
            owner[owner.decodekey(name)] = owner.decodevalue(value)
    elif not isinstance(owner, _Slots):
        set_name(owner, name, value)
    elif value is ABSENT:
        object.__delattr__(owner.owner, name)
    else:
        object.__setattr__(owner.owner, name, value)


def _holds(value: Any, is_of_run: Callable[[Any], bool]) -> bool:
    """Tell whether something of a run can be reached from a value, other than through code."""
    seen: set[int] = set()
    ahead = deque([value])
    while ahead and len(seen) < _MOST_SEARCHED:
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


def _written_in(value: Any) -> ModuleType | None:
    """Return the file that a value is, or in which it or its class is written."""
    if is_a(value, ModuleType):
        return value
    if is_a(value, FunctionType):
        name: Any = value.__module__
    else:
        name = file_of(value if is_a(value, type) else type(value))
    return sys.modules.get(name) if type(name) is str else None


def _package(name: Any) -> str:
    return name.partition(".")[0] if type(name) is str else ""


def _is_apart(name: str) -> bool:
    """Tell whether a file is torch's or Python's own, or fxlab's."""
    return _package(name) in _APART


def _name_in(file: ModuleType) -> str:
    name = names_in(file).get("__name__")
    return name if type(name) is str else "builtins"


def _name_of(owner: Any) -> str:
    if isinstance(owner, type):
        return f"{file_of(owner)}.{owner.__qualname__}."
    return f"{_name_in(owner)}."
