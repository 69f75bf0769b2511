"""The Python that a model's code may read in a run, for traces and sessions: values that functions name.

A function reads global variables, those of functions around it and its default arguments; by a name such as
``settings.scale`` it reads attributes of files, classes and objects. A method counts if a function that
counts uses its name, or if a text in the model is its name, as for ``getattr``.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import chain
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

from fxlab.values.containers import cells_of, held_items, is_a, namespace_of, slots_of

OF_OTHERS = frozenset({"torch", "fxlab", "numpy", "builtins", *sys.stdlib_module_names} - {"__main__"})
"""Packages whose Python belongs to no model."""
PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size})
"""Classes of values without state beyond their text."""
OF_EVERY_MODULE = vars(nn.Module()).keys()
REGISTRIES = OF_EVERY_MODULE - {"training"}
"""The attributes in which a module keeps parameters, buffers, submodules and hooks."""
_AROUND_FUNCTIONS: tuple[type[Any], ...] = (
    *(MethodType, property, classmethod, staticmethod),
    *(functools.partial, functools.cached_property, functools._lru_cache_wrapper),
)
_NOT_RUN = frozenset({"__init__", "__repr__", "__getstate__", "__setstate__", "__reduce__", "__deepcopy__"})
"""Special methods of a module that its call does not run."""


def python_read(*roots: Any) -> dict[str, list[Any]]:
    """Return the values that the code of a model, or an optimizer, may read outside of it, by path.

    Several values may have one path, such as the variables of a decorator that was used more than once.
    """
    return _walked(*roots).found


def python_named(*roots: Any) -> tuple[frozenset[str], list[tuple[str, Any]]]:
    """Return the names in the code of a model, and the values by these names and in its attributes.

    ``roots``: a model, an optimizer, and functions that run with them.
    """
    walk = _walked(*roots)
    values = [(path, value) for path, values in walk.found.items() for value in values]
    return frozenset(walk.used), [*values, *attributes_of(*roots)]


def attributes_of(*roots: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a model's modules, of an optimizer, and functions, by path."""
    for root in roots:
        if not is_a(root, nn.Module):
            yield type(root).__qualname__, root
            continue
        for path, module in root.named_modules():
            own = ((name, item) for name, item in vars(module).items() if name not in OF_EVERY_MODULE or item)
            yield from ((f"{path}.{name}".lstrip("."), item) for name, item in own)


def _walked(*roots: Any) -> _Walk:
    walk = _Walk()
    for cls in classes_of(*roots):
        walk.names_of(cls, is_of_module=True)
    walk.use(("forward", "step"))
    walk.ahead.extend((path, item, False) for path, item in attributes_of(*roots))
    walk.go()
    return walk


def classes_of(*roots: Any) -> list[type]:
    """Return the classes of a model's modules, or of an optimizer, and their base classes."""
    modules = (root.modules() if is_a(root, nn.Module) else (root,) for root in roots)
    kinds = dict.fromkeys(type(each) for each in chain.from_iterable(modules))
    return [*dict.fromkeys(cls for kind in kinds for cls in kind.__mro__)]


def asks_for_tensors(model: nn.Module) -> bool:
    """Tell whether a function of a model's classes, or in its place, asks whether something is a tensor."""
    owners = (vars(cls) for cls in classes_of(model) if _is_of_model(cls.__module__))
    held = (value for own in (*owners, vars(model)) for value in own.values())
    codes = (value.__code__ for value in held if is_a(value, FunctionType))
    return any(map(_asks_for_tensors, codes))


@functools.lru_cache(maxsize=4096)
def _asks_for_tensors(code: CodeType) -> bool:
    names = {name for part in _codes(code) for name in part.co_names}
    return "is_tensor" in names or names >= {"isinstance", "Tensor"}


class _Walk:
    """``found``: values by path. ``used``: names. ``ahead``: paths and values, and whether to note them."""

    def __init__(self) -> None:
        self.found: defaultdict[str, list[Any]] = defaultdict(list)
        self.ahead: deque[tuple[str, Any, bool]] = deque()
        self.used: set[str] = set()
        self._unused: defaultdict[str, list[tuple[str, Any, bool]]] = defaultdict(list)
        self._seen: set[int] = set()
        self._owners: set[int] = set()

    def use(self, names: Iterable[str]) -> None:
        """Reach the values with one of these names in a file or class."""
        for name in names:
            if name not in self.used:
                self.used.add(name)
                self.ahead += self._unused.pop(name, ())

    def names_of(self, owner: Any, is_of_module: bool = False) -> None:
        """Reach the names in a file or class that are used, now or later.

        ``is_of_module``: whether it is the class of a module, all of which is read, as ``getattr`` may do.
        """
        # Past a metaclass or __getattribute__ of the model, whose code must not run here.
        read = type.__getattribute__ if is_a(owner, type) else object.__getattribute__
        own = read(owner, "__dict__")
        written_in = own.get("__module__" if is_a(owner, type) else "__name__")
        if id(owner) in self._owners or not _is_of_model(written_in):
            return
        self._owners.add(id(owner))
        path = read(owner, "__qualname__") if is_a(owner, type) else written_in
        for name, value in list(own.items()):
            is_special = name.startswith("__")
            is_run = is_special and is_a(owner, type) and is_a(value, FunctionType)
            is_found = is_of_module and not is_special
            if is_found:
                self.found[f"{path}.{name}"].append(value)
            if name in self.used or (is_run and not (is_of_module and name in _NOT_RUN)):
                self.ahead.append((f"{path}.{name}", value, not is_found))
            else:
                self._unused[name].append((f"{path}.{name}", value, not is_found))

    def go(self) -> None:
        """Reach everything."""
        while self.ahead:
            path, value, is_read = self.ahead.popleft()
            if is_read:
                self.found[path].append(value)
            if type(value) is str:
                self.use((value,))  # which getattr may take
            elif type(value) not in PLAIN and id(value) not in self._seen:
                self._seen.add(id(value))
                self._look_into(path, value)

    def _look_into(self, path: str, value: Any) -> None:
        if is_a(value, FunctionType):
            if _is_of_model(value.__module__):
                self._read_by(value)
        elif is_a(value, type, ModuleType):
            self.names_of(value)
            self.names_of(type(value))
        elif is_a(value, *_AROUND_FUNCTIONS):
            # Each keeps its functions under other names, some in C alone.
            self.ahead.extend((path, part, False) for part in gc.get_referents(value))
        elif not is_a(value, nn.Module):
            kind = type(value)
            self.names_of(kind)
            if _is_of_model(kind.__module__) or held_items(value) is not None:
                self.ahead.extend((path, item, False) for item in _held_by(value))

    def _read_by(self, function: FunctionType) -> None:
        codes, path = [*_codes(function.__code__)], function.__qualname__
        named = [name for code in codes for name in code.co_names]
        texts = (text for code in codes for text in code.co_consts if type(text) is str)
        self.use((*named, *texts))
        around = function.__globals__
        read = ((f"{function.__module__}.{name}", around[name], True) for name in named if name in around)
        self.ahead.extend(read)
        self.ahead += ((f"{path}.{name}", value, True) for name, (_, value) in cells_of(function).items())
        defaults = *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()
        self.ahead.extend((f"{path}()", value, True) for value in defaults)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of nested functions."""
    yield code
    for constant in code.co_consts:
        if is_a(constant, CodeType):
            yield from _codes(constant)


def _held_by(value: Any) -> list[Any]:
    items = held_items(value) or []
    flat = [part for item in items for part in item] if is_a(value, dict) else items
    held = [*flat, *namespace_of(value).values(), *(item for _, item in slots_of(value))]
    return [item for item in held if type(item) is str or type(item) not in PLAIN]


def _is_of_model(written_in: object) -> bool:
    return type(written_in) is str and written_in.partition(".")[0] not in OF_OTHERS
