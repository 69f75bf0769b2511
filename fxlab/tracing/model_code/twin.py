"""A twin of a model to record in its place, so that changes made by the run do not reach the model."""

from __future__ import annotations

import dis
import functools
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from fxlab.models.state.model_state import (
    METHODS,
    copy_of_generator,
    generator_state,
    is_generator,
    is_used_up,
)
from fxlab.values.containers import (
    contents,
    contents_by_key,
    fill,
    holds_attributes,
    is_a,
    is_same,
    namespace_of,
    slots_of,
)

_OF_EVERY_MODULE = vars(nn.Module()).keys()
_HELD = ("_parameters", "_buffers", "_modules")
_CONTAINERS: tuple[type[Any], ...] = (dict, list, set, deque)
_BUILT_IN = frozenset({dict, OrderedDict, list, set})
_ATOMS: tuple[type[Any], ...] = (
    *(type(None), bool, int, float, complex, str, bytes, type),
    *(torch.dtype, torch.device, torch.Tensor),
)


class Twin:
    """A copy of the modules, containers and objects of a model, with other tensors in place of its own.

    Modules, lists, dictionaries and objects that can be reached from the model are copied; bound methods,
    partial functions, closures and weak references lead to the copies. Everything else is shared: contents of
    extensions in C, locks, classes, functions without such variables. ``replacement``: returns the stand-in
    of a tensor that a module holds, as attribute or in a list or dict; it is called once per tensor. Tensors
    that lie deeper are shared. ``stand_in``: makes the stand-in of an iterator or file, which can neither be
    copied nor shared. ``model``: the twin.
    """

    def __init__(
        self,
        model: nn.Module,
        replacement: Callable[[torch.Tensor], torch.Tensor],
        stand_in: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self._replacement, self._stand_in = replacement, stand_in
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        # By identity; copied values are held, so that no other object takes their identity.
        self._copies: dict[int, tuple[Any, Any]] = {}
        self._unfilled: deque[Callable[[], None]] = deque()
        self._places: dict[int, tuple[Any, Any]] = {}
        self.model: nn.Module = self.of(model)

    def of(self, value: Any) -> Any:
        """Return the stand-in of a value in the twin: the value itself where nothing in it is copied."""
        found = self._copied(value)
        while self._unfilled:  # without recursion, as models may be nested deeply
            self._unfilled.popleft()()
        return found

    def known(self, module: nn.Module) -> nn.Module:
        """Return the twin of one of the model's modules, any other module itself."""
        twin: nn.Module
        _, twin = self._copies.get(id(module), (None, module))
        return twin

    def tensors(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield each tensor that was replaced, and its stand-in."""
        yield from self._tensors.values()

    def changed(self) -> list[str]:
        """Return the attributes, items and generators of the model that differ in the twin, by their paths.

        The data of tensors, and other hooks and buffers in the place of former ones are left out.
        """
        found = []
        for value, twin in [*self._copies.values()]:
            if (
                twin is value
                or is_used_up(value)
                or is_a(twin, tuple, functools.partial, FunctionType, *METHODS)
            ):
                continue
            holder, key = self._places.get(id(value), (None, None))
            if key in _OF_EVERY_MODULE and is_a(holder, nn.Module):
                if key in _HELD:
                    own = (
                        name
                        for name in {**value, **twin}
                        if (value.get(name) is None) != (twin.get(name) is None)
                        or (key != "_buffers" and not self._is_same(value, twin, name))
                    )
                    found += [_joined(self._path(holder), name, False) for name in own]
                elif key.endswith("_hooks") and value.keys() != twin.keys():
                    found.append(_joined(self._path(holder), key, False))
                continue
            if is_generator(value):
                found += [] if generator_state(value) == generator_state(twin) else [self._path(value)]
                continue
            before = _held_by({*map(self._standing_for, contents(value))} if is_a(value, set) else value)
            now = _held_by(twin)
            names = [name for name in {**before, **now} if not self._is_same(before, now, name)]
            if names:
                path = self._path(value)
                is_container = is_a(value, CellType, *_CONTAINERS)
                found += [path] if is_container else [_joined(path, name, False) for name in names]
        return sorted(filter(None, found))

    def _is_same(self, before: dict[Any, Any], now: dict[Any, Any], name: Any) -> bool:
        if name not in before or name not in now:
            return False
        was = before[name]
        return now[name] is was or now[name] is self._standing_for(was) or is_same(was, now[name])

    def _standing_for(self, value: Any) -> Any:
        return self._tensors.get(id(value), self._copies.get(id(value), (value, value)))[1]

    def _path(self, value: Any) -> str:
        """Return the path from the model to a copied value."""
        if id(value) not in self._places:
            return ""
        holder, key = self._places[id(value)]
        is_of_modules = self._places.get(id(holder), ("", ""))[1] == "_modules"
        is_item = is_a(holder, tuple, *_CONTAINERS) and not is_of_modules
        return _joined(self._path(holder), key, is_item)

    def _item(self, value: Any, is_held: bool, place: tuple[Any, Any]) -> Any:
        is_tensor = is_held and is_a(value, torch.Tensor)
        return self._tensor(value) if is_tensor else self._copied(value, place=place)

    def _copied(self, value: Any, is_held: bool = False, place: tuple[Any, Any] | None = None) -> Any:
        """Return the stand-in of a value; a container that a module holds has other tensors."""
        if is_a(value, *_ATOMS):
            return value
        if (known := self._copies.get(id(value))) is not None:
            return known[1]
        if place is not None:
            self._places[id(value)] = place
        self._copies[id(value)] = value, value  # until it is known to be copied: it may hold itself
        is_empty = type(value) in _BUILT_IN and not value  # as most of those that a module has
        found = type(value)() if is_empty else self._copy(value, is_held)
        self._copies[id(value)] = value, found
        return found

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = tensor, self._replacement(tensor)
        return self._tensors[id(tensor)][1]

    def _copy(self, value: Any, is_held: bool) -> Any:
        if is_used_up(value):
            return self._stand_in(value)
        if is_a(value, nn.Module):
            return self._of_object(value, holds_tensors=True)
        if is_a(value, *_CONTAINERS):
            return self._of_container(value, is_held)
        if is_a(value, tuple):
            items = [self._copied(item, place=(value, at)) for at, item in enumerate(tuple.__iter__(value))]
            is_same = all(map(_is, items, tuple.__iter__(value)))
            return value if is_same else tuple.__new__(type(value), items)
        if is_a(value, MethodType):
            owner = self._copied(value.__self__, place=(value, "__self__"))
            return value if owner is value.__self__ else MethodType(self._copied(value.__func__), owner)
        if is_a(value, *METHODS):  # of C
            is_function = is_a(value.__self__, ModuleType)
            owner = value.__self__ if is_function else self._copied(value.__self__, place=(value, "__self__"))
            return value if owner is value.__self__ else getattr(owner, value.__name__)
        if is_a(value, functools.partial):
            return self._of_partial(value)
        if is_a(value, FunctionType):
            return self._of_function(value)
        if is_a(value, weakref.ref):
            return self._of_reference(value)
        if is_generator(value):
            return value.clone_state() if is_a(value, torch.Generator) else copy_of_generator(value)
        if holds_attributes(value):
            return self._of_object(value)
        return value

    def _of_object(self, value: Any, *, holds_tensors: bool = False) -> Any:
        try:
            twin: Any = SimpleNamespace() if type(value) is SimpleNamespace else object.__new__(type(value))
        except TypeError:  # an extension in C, such as a scripted module, whose attributes are not all
            return value
        self._copies[id(value)] = value, twin

        def fill_attributes() -> None:
            own = namespace_of(twin)
            for name, item in namespace_of(value).items():
                is_tensor = holds_tensors and is_a(item, torch.Tensor)
                own[name] = (
                    self._tensor(item) if is_tensor else self._copied(item, holds_tensors, (value, name))
                )
            for slot, item in slots_of(value):
                slot.__set__(twin, self._copied(item, place=(value, slot.__name__)))

        self._unfilled.append(fill_attributes)
        return twin

    def _of_container(self, value: Any, is_held: bool) -> Any:
        kind = type(value)
        try:
            make: Any = kind.__new__
            twin: Any = deque(maxlen=value.maxlen) if kind is deque else make(kind)
        except Exception:  # its class may ask for more than there is to give
            return value
        if is_a(value, defaultdict):
            twin.default_factory = self._copied(value.default_factory, place=(value, "default_factory"))
        self._copies[id(value)] = value, twin

        def fill_items() -> None:
            for name, item in namespace_of(value).items():
                namespace_of(twin)[name] = self._copied(item)
            items = contents(value)
            if is_a(value, dict):
                fill(
                    twin,
                    [(self._copied(key), self._item(item, is_held, (value, key))) for key, item in items],
                )
            else:
                holds = is_held and not is_a(value, set)
                fill(twin, [self._item(item, holds, (value, at)) for at, item in enumerate(items)])

        self._unfilled.append(fill_items)
        return twin

    def _of_partial(self, value: functools.partial[Any]) -> Any:
        before = value.func, *value.args, *value.keywords.values()
        names = "func", *(f"args[{at}]" for at in range(len(value.args))), *value.keywords
        parts = zip(names, before, strict=True)
        func, *given = (self._copied(item, place=(value, name)) for name, item in parts)
        if all(map(_is, (func, *given), before)):
            return value
        args, keywords = given[: len(value.args)], given[len(value.args) :]
        return functools.partial(func, *args, **dict(zip(value.keywords, keywords, strict=True)))

    def _of_function(self, value: FunctionType) -> Any:
        """Copy a function if it assigns variables from outside, or these or its attributes are copied."""
        cells, written = value.__closure__ or (), _written_variables(value.__code__)
        around = [
            self._cell(cell, (value, name), name in written)
            for name, cell in zip(value.__code__.co_freevars, cells, strict=True)
        ]
        if all(map(_is, around, cells)) and not vars(value):
            return value
        own = {name: self._copied(item) for name, item in vars(value).items()}
        if all(map(_is, around, cells)) and all(map(_is, own.values(), vars(value).values())):
            return value
        code, names = value.__code__, value.__globals__
        twin = FunctionType(code, names, value.__name__, value.__defaults__, tuple(around))
        twin.__kwdefaults__, twin.__qualname__ = value.__kwdefaults__, value.__qualname__
        twin.__module__, twin.__doc__ = value.__module__, value.__doc__
        vars(twin).update(own)
        return twin

    def _cell(self, cell: CellType, place: tuple[Any, str], is_written: bool) -> CellType:
        try:
            before = cell.cell_contents
        except ValueError:  # the variable has not been assigned yet
            return cell
        if id(cell) not in self._copies:
            self._places[id(cell)] = place
            self._copies[id(cell)] = cell, cell
            now = self._copied(before, place=place)
            if now is not before:
                self._copies[id(cell)] = cell, CellType(now)
        if is_written and self._copies[id(cell)][1] is cell:
            self._copies[id(cell)] = cell, CellType(before)
        copied: CellType = self._copies[id(cell)][1]
        return copied

    def _of_reference(self, value: weakref.ref[Any]) -> Any:
        target = value()
        if not is_a(target, nn.Module):
            return value
        twin = self._copied(target)
        return value if twin is target else weakref.ref(twin)


@functools.lru_cache(maxsize=4096)
def _written_variables(code: CodeType) -> frozenset[str]:
    """Return the variables around a function that it, or a function in it, assigns."""
    if not code.co_freevars:
        return frozenset()
    inner = (_written_variables(part) for part in code.co_consts if is_a(part, CodeType))
    own = (step.argval for step in dis.get_instructions(code) if step.opname == "STORE_DEREF")
    return frozenset(own).union(*inner).intersection(code.co_freevars)


def _held_by(value: Any) -> dict[Any, Any]:
    """Return the items of a container, the attributes of an object or module, the value of a variable."""
    if is_a(value, CellType):
        return {"": value.cell_contents}
    if is_a(value, *_CONTAINERS):
        return contents_by_key(value)
    own = {slot.__name__: item for slot, item in slots_of(value)} | namespace_of(value)
    return {k: v for k, v in own.items() if k not in _OF_EVERY_MODULE} if is_a(value, nn.Module) else own


def _joined(path: str, key: Any, is_item: bool) -> str:
    """Return a path one step further; modules have those by which torch knows them."""
    if key == "_modules" and not is_item:
        return path
    if is_item and not (type(key) is str and key.isidentifier()):
        return f"{path}[{key!r:.40}]"
    return f"{path}.{key}" if path else str(key)


def _is(one: Any, other: Any) -> bool:
    return one is other
