"""Dicts, lists and objects among the inputs that the model's Python has changed, which no graph does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fxlab.tracing.shapes.uncounted_lists import is_unread
from fxlab.values.containers import is_same
from fxlab.values.nested import ObjectParts, class_of, is_object, parts_inside

_CONTAINERS = (dict, list, tuple)


def changed_inputs(given: Mapping[str, Any], inputs: Mapping[Any, Any], output: Any) -> Iterator[str]:
    """Yield the paths of dicts, lists and objects that a run has changed, and has not returned.

    ``given``: name -> value, with its objects taken apart. ``inputs``: the copies made of them for the run,
    in this order. ``output``: the model's result: an object in there is seen by its caller.
    """
    returned: set[int] = set()
    _reach(output, returned)
    for name, value in zip(given, inputs.values(), strict=True):
        yield from _changed(name, given[name], value, returned)


def _changed(path: str, before: Any, now: Any, returned: set[int]) -> Iterator[str]:
    if type(before) not in (*_CONTAINERS, ObjectParts) or id(now) in returned:
        return
    is_of_object = isinstance(before, ObjectParts)
    held, current = _held_by(before), _held_by(ObjectParts.of(now) if is_of_object else now)
    if held.keys() != current.keys() or not all(_is_same(held[key], current[key]) for key in held):
        yield path
        return
    for key, item in held.items():
        yield from _changed(
            f"{path}.{key}" if is_of_object else f"{path}[{key!r:.40}]", item, current[key], returned
        )


def _held_by(value: Any) -> dict[Any, Any]:
    return dict(enumerate(value)) if isinstance(value, list | tuple) else {**value}


def _is_same(before: Any, now: Any) -> bool:
    """Tell whether an item has stayed the same; containers that were copied for the run are searched."""
    is_made = type(before) in (*_CONTAINERS, ObjectParts)
    return class_of(before) is type(now) if is_made else is_same(before, now)


def _reach(value: Any, seen: set[int]) -> None:
    if id(value) in seen or is_unread(value):
        return
    items = vars(value).items() if is_object(value) else parts_inside(value)
    for _, item in items:
        seen.add(id(value))
        _reach(item, seen)
