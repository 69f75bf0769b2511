"""A module, and all that its Python reads, at one moment: sessions and traces ask what has changed since."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from operator import attrgetter
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.fx import Graph, GraphModule

from fxlab.base.author_frames import is_installed
from fxlab.models.state.python_read import PLAIN, REGISTRIES, python_read
from fxlab.models.state.tensor_state import SMALL, TensorState, named_tensors
from fxlab.values.containers import held_items, holds_attributes, is_a, memory_in, namespace_of, slots_of

_MOST_READ = 1 << 24
"""The most bytes of a NumPy array that are read for comparison."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_OF_GRAPHS = REGISTRIES | vars(GraphModule(nn.Module(), Graph())).keys() | {"meta"}
_MARKS = ("_dynamo_", "_is_torch_compile")
"""The beginnings of attributes that ``torch.compile`` puts on modules and tensors."""
_DEEPEST = 4
"""The depth to which containers and objects are searched."""


class ModuleState:
    """The tensors, modes and settings of a module and its submodules; ``before``: those noted earlier."""

    def __init__(self, module: nn.Module, before: ModuleState | None = None) -> None:
        self._module = module
        known = before._tensors if before else {}
        self._tensors: dict[str, TensorState] = {n: _noted(t, known.get(n)) for n, t in named_tensors(module)}
        self._settings = _settings(module)

    def changed(self) -> list[str]:
        """Return the paths of tensors that were replaced or written, and of modules that were set."""
        now = dict(named_tensors(self._module))
        paths = [path for path, state in self._tensors.items() if not state.is_of(now.get(path))]
        paths += now.keys() - self._tensors.keys()
        return paths + _different(self._settings, _settings(self._module))

    def own_of(self, module: nn.Module) -> dict[str, TensorState]:
        """Note the tensors of another module that are none of these, by path."""
        known = {id(state.tensor) for state in self._tensors.values()}
        named = named_tensors(module)
        return {path: _noted(tensor) for path, tensor in named if id(tensor) not in known}


def _noted(tensor: torch.Tensor, before: TensorState | None = None) -> TensorState:
    return before if before and before.is_of(tensor) else TensorState.of(tensor, keep_small=True)


class ModelNoted:
    """All that Python can read of a model at one moment, except its mode and the data of its tensors.

    ``others``: functions and objects that run with it, such as its loss.
    """

    def __init__(self, model: nn.Module, *others: Any) -> None:
        self._model, self._others = model, others
        self._own, self._read = self._now()

    def changed(self) -> list[str]:
        """Return the paths of attributes, hooks, modules and tensors that have changed.

        A value that could not be read before, such as a file that was imported since, is no change by itself.
        """
        own, read = self._now()
        changed = (path for path, old in self._read.items() if not _still_read(path, old, read.get(path, ())))
        return [*_different(self._own, own), *changed]

    def changed_but_for(self, set_in_runs: Iterable[str]) -> list[str]:
        """Return what has changed but for attributes that runs set, and objects that hold these."""
        paths = self.changed()
        inside = {path for path in paths for name in set_in_runs if name.startswith((f"{path}.", f"{path}["))}
        objects = {id(self._at(path)) for path in inside}
        return [path for path in paths if path not in set_in_runs and id(self._at(path)) not in objects]

    def _at(self, path: str) -> object:
        """Return the value at a path of the model; the path itself if it leads elsewhere."""
        try:
            return attrgetter(path)(self._model)
        except AttributeError:
            return path

    def _now(self) -> tuple[dict[str, object], dict[str, tuple[object, ...]]]:
        """Return the state of its modules and tensors, and the values that their code reads elsewhere."""
        modules = dict(self._model.named_modules())
        settings = _settings(self._model).items()
        found = {path: value for path, value in settings if path.rpartition(".")[2] != "training"}
        tensors = dict(named_tensors(self._model))
        for path, tensor in tensors.items():
            attributes = namespace_of(tensor).items()
            found |= {f"{path}.{n}": _setting(item, 1) for n, item in attributes if not n.startswith(_MARKS)}
        found |= {path: _Identity(value) for path, value in (tensors | modules).items()}
        for other in self._others:
            held = other.__self__ if is_a(other, MethodType) else other
            own = _settings(held) if is_a(held, nn.Module) else {"": _setting(held, _DEEPEST)}
            found |= {f"{type(held).__qualname__}.{path}".rstrip("."): value for path, value in own.items()}
        return found, python_noted(self._model, *self._others)


def python_noted(*owners: Any) -> dict[str, tuple[object, ...]]:
    """Return keys of the values that the code of a model or optimizer reads outside of it, by path."""
    return {path: tuple(_setting(v, _DEEPEST) for v in read) for path, read in python_read(*owners).items()}


def _still_read(path: str, before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    """Tell whether all values under a path are still there; additions do not matter."""
    if before == now:
        return True
    # Registries of an installed package grow when others import more of it.
    package = sys.modules.get(path.partition(".")[0])
    may_grow = is_installed(getattr(package, "__file__", None) or "")
    left = [*now]
    for old in before:
        found = next((each for each in left if old == each or (may_grow and _has_grown(old, each))), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _has_grown(before: Any, now: Any) -> bool:
    is_dict = isinstance(before, tuple) and isinstance(before[0], type) and issubclass(before[0], dict)
    return is_dict and isinstance(now, tuple) and before[0] is now[0] and {*before[1]} <= {*now[1]}


def _different(before: dict[str, object], now: dict[str, object]) -> list[str]:
    return [path for path in {**before, **now} if before.get(path) != now.get(path)]


def _settings(module: nn.Module) -> dict[str, object]:
    """Return the mode, the attributes and the hooks of each module, and its class's ``forward``."""
    known: dict[int, object] = {}  # a configuration is an attribute of many modules

    def noted(value: Any) -> object:
        if id(value) not in known:
            known[id(value)] = _setting(value, _DEEPEST)
        return known[id(value)]

    found: dict[str, object] = {}
    for path, child in module.named_modules():
        start = f"{path}." if path else ""
        if not is_a(child, GraphModule):  # torch generates that of a graph again
            found[f"{start}forward()"] = inspect.getattr_static(type(child), "forward", None)
        ignored = _OF_GRAPHS if is_a(child, GraphModule) else REGISTRIES
        for name, value in vars(child).items():
            is_mark = name in ignored or name.startswith(_MARKS)
            if not is_mark and not is_a(value, torch.Tensor, nn.Module):
                found[f"{start}{name}"] = noted(value)
        found |= {f"{start}{name}": _setting(value, 1) for name in _HOOKS if (value := vars(child)[name])}
    return found


def _setting(value: Any, depth: int) -> object:
    """Return a key that is equal while a value is: numbers, texts and containers, others by identity."""
    kind = type(value)
    if kind in PLAIN:
        return kind, repr(value) if kind in (float, complex) else value
    if is_a(value, np.ndarray) and not value.dtype.hasobject:
        bits = value.tobytes() if value.nbytes <= _MOST_READ else b""
        return _Identity(value), str(value.dtype), value.shape, bits if len(bits) <= SMALL else hash(bits)
    if is_a(value, ContextVar):
        return _Identity(value), _setting(value.get(None), depth and depth - 1)
    if depth:
        if is_a(value, functools.partial):
            value = kind, value.func, value.args, value.keywords
        items = held_items(value)
        if items is not None:
            if is_a(value, dict):
                return kind, tuple((_setting(k, 0), _setting(v, depth - 1)) for k, v in items)
            return kind, tuple(_setting(item, depth - 1) for item in items)
        if holds_attributes(value):
            slots = {slot.__name__: item for slot, item in slots_of(value)}
            own = slots | namespace_of(value)
            fields = tuple((name, _setting(item, depth - 1)) for name, item in own.items())
            return _Identity(value), fields
    memory = None if is_a(value, FunctionType, type) else memory_in(value)
    return _Identity(value) if memory is None else (_Identity(value), memory)


class _Identity:
    """Equal to itself alone, and holds its object, so that no other object gets the same ``id``."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)
