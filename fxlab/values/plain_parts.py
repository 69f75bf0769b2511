"""Parts of a model's output that are no numbers: classes, texts and other plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list

from fxlab.values.tensors import SIMPLE, NumberAttribute, is_plain, walk

_IMMUTABLE: dict[type, type] = {immutable_list: list, immutable_dict: dict}


class PlainPart(NamedTuple):
    """A part of a model's output apart from the numbers in it: the class, and what is in it."""

    cls: type
    value: Any = None
    """A text or other plain value."""
    keys: tuple[Any, ...] = ()
    """Those of a mapping, in their order."""

    def is_like(self, other: PlainPart) -> bool:
        """Tell whether a caller cannot tell two apart; a class that was defined twice is the same."""
        names = [(cls.__module__, cls.__qualname__) for cls in (self.cls, other.cls)]
        common = [[key for key in a.keys if key in b.keys] for a, b in ((self, other), (other, self))]
        return names[0] == names[1] and _are_equal(self.value, other.value) and common[0] == common[1]


def plain_parts(output: Any) -> dict[str, PlainPart]:
    """Return what :func:`tensors_by_path` leaves out: classes, texts and other plain values, by path.

    Tensors, parameters too, and numbers that it returns, count by their class alone. The path of the output
    itself is empty.
    """
    return {path: _plain_part(value) for path, value in walk(output, "", set())}


def _plain_part(value: Any) -> PlainPart:
    if isinstance(value, torch.Tensor):
        return PlainPart(torch.Tensor if is_plain(value) else type(value))
    if isinstance(value, NumberAttribute):
        return PlainPart(type(value.value), value.value)
    if isinstance(value, Mapping):
        return PlainPart(_IMMUTABLE.get(type(value), type(value)), keys=tuple(value))
    cls = _IMMUTABLE.get(type(value), type(value))
    return PlainPart(cls, value if isinstance(value, (*SIMPLE, set, frozenset, range, slice)) else None)


def _are_equal(a: Any, b: Any) -> bool:
    if isinstance(a, float | complex):
        return repr(a) == repr(b)
    return bool(a == b)
