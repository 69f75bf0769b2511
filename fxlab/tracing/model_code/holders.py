"""Namespaces, slots, containers and variables around a model, which a trace reads before it and restores."""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch

from fxlab.base.exchanged import ABSENT, set_name
from fxlab.values.containers import contents_by_key, fill, is_a, is_same, slots_of

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
