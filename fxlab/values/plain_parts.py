"""Parts of an output that are no tensors, by path: records of calls hold them, verdicts compare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list

from fxlab.values.tensors import SIMPLE, NumberAttribute, is_plain, walk

_IMMUTABLE: dict[type, type] = {immutable_list: list, immutable_dict: dict}


class PlainPart(NamedTuple):
    """A part of a model's output apart from its numbers: the class and its plain contents."""

    cls: type
    value: Any = None
    """A text or other plain value."""
    keys: tuple[Any, ...] = ()
    """Those of a mapping, in their order."""

    def is_like(self, other: PlainPart) -> bool:
        """Tell whether two parts look the same to a caller; a class that was defined twice is the same."""
        names = [(cls.__module__, cls.__qualname__) for cls in (self.cls, other.cls)]
        common = [[key for key in a.keys if key in b.keys] for a, b in ((self, other), (other, self))]
        ours, theirs = (repr(v) if isinstance(v, float | complex) else v for v in (self.value, other.value))
        return names[0] == names[1] and bool(ours == theirs) and common[0] == common[1]


def plain_parts(output: Any) -> dict[str, PlainPart]:
    """Return the parts without tensors, by path: classes, texts and other plain values.

    Tensors, also parameters, and the numbers that it returns count by their class alone. The path of the
    output itself is empty.
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
