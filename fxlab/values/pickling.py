"""Values that can be pickled, and the protocols they need, for pickles of graphs and the journal."""

import pickle
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch.fx.immutable_collections import immutable_dict, immutable_list

from fxlab.base.torch_private import FakeTensor

_CONSTANTS = frozenset({str, int, float, bool, complex, bytes, type(None)})
_LISTS = frozenset({tuple, list, immutable_list})
_DICTS = frozenset({dict, immutable_dict})
_DEEPEST = 20
"""The depth to which containers are searched; deeper or endless ones are pickled instead."""


class _Sink:
    def write(self, data: object) -> int:
        """Discard data."""
        return len(memoryview(cast(bytes, data)))


@dataclass(frozen=True)
class _Pickled:
    """Unpickles to the value whose pickle it holds."""

    content: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.content,)


def is_picklable(value: object, protocol: int | None = None) -> bool:
    """Tell whether a value can be pickled, by a protocol or the newest; uses no memory for tensors."""
    if _is_plain(value):
        return True
    if isinstance(value, FakeTensor):  # which holds its mode
        return False
    try:
        pickle.Pickler(_Sink(), protocol).dump(value)
    except Exception:  # an object that refuses to be pickled may raise any exception
        return False
    return True


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Tell whether a value consists of constants, and of named classes and functions."""
    kind = type(value)
    if kind in _CONSTANTS:
        return True
    if depth < _DEEPEST and kind in _LISTS:
        return all(_is_plain(part, depth + 1) for part in value)
    if depth < _DEEPEST and kind in _DICTS:
        return all(_is_plain(part, depth + 1) for item in value.items() for part in item)
    return kind in (type, types.FunctionType) and _is_found(value)


def _is_found(value: Any) -> bool:
    """Tell whether a module has a class or function under its name, as pickle asks."""
    found: Any = sys.modules.get(value.__module__ or "")
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def for_protocol(value: Any, protocol: int) -> Any:
    """Return a value, or a stand-in that unpickles to it: protocol 2, say, cannot hold a memory format."""
    if is_picklable(value, protocol) or not is_picklable(value):
        return value
    return _Pickled(pickle.dumps(value))


def picklable_meta(meta: Mapping[str, Any], protocol: int) -> dict[str, Any]:
    """Return the picklable entries of a node's ``meta``, in a form that the protocol can hold.

    Modules whose calls led to the node are named as :func:`torch.export.export` names them: the source of
    their classes may be absent where the pickle is loaded.
    """
    stacks = {key: meta[key] for key in ("nn_module_stack", "fwd_nn_module_stack") if meta.get(key)}
    named = {key: {place: _named(value) for place, value in stack.items()} for key, stack in stacks.items()}
    entries = {**meta, **named}.items()
    return {key: for_protocol(value, protocol) for key, value in entries if is_picklable(value)}


def _named(entry: Any) -> Any:
    """Return the path and the class of a module call, a class outside of torch by its name."""
    *path, owner = entry if isinstance(entry, tuple) else (entry,)
    if isinstance(owner, type) and owner.__module__.partition(".")[0] != "torch":
        owner = f"{owner.__module__}.{owner.__qualname__}"
    return (*path, owner) if path else owner
