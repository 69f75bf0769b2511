"""Marks of a model: whether a graph that was traced still stands for it is told by comparing them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import torch
from torch import nn

from fxlab.values.containers import is_a

_PLAIN = frozenset((bool, int, float, complex, str, type(None), torch.dtype, torch.device))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_DEEPEST = 4
"""How many configurations may lie one in another."""


class ModelMarks(NamedTuple):
    """A model at one moment, without its data."""

    made_of: tuple[Hashable, ...]
    """Modules, tensors and their memory, hooks, plain attributes and configurations."""
    modes: tuple[bool, ...]
    """Which modules are in training mode."""
    versions: tuple[int, ...]
    """How often torch has written into each tensor."""


def marks_of(model: nn.Module, own_names: frozenset[str] | None = None) -> ModelMarks:
    """Look through a model; takes about a microsecond for each module and tensor.

    What is written through ``tensor.data`` or NumPy is not seen, as torch does not count it.

    Parameters
    ----------
    model
        The model.
    own_names
        The attributes of the model itself that count, all if ``None``. Who uses a model may note things on it
        that its ``forward`` does not know, as ``generate`` does.
    """
    made_of: list[Hashable] = []
    modes: list[bool] = []
    versions: list[int] = []
    seen: set[int] = set()
    pending: list[Any] = [model]
    while pending:
        module = pending.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        attributes = vars(module)
        modes.append(attributes["training"])
        made_of.append(id(module))
        for name, value in attributes.items():
            if type(value) in _PLAIN:
                if name != "training" and (module is not model or own_names is None or name in own_names):
                    made_of.append((name, type(value), value))
            elif isinstance(value, torch.Tensor):
                _note(value, made_of, versions)
        for holder in (attributes["_parameters"], attributes["_buffers"]):
            for value in holder.values():
                if value is not None:
                    _note(value, made_of, versions)
        made_of += ((hooks, *map(id, attributes[hooks].values())) for hooks in _HOOKS if attributes[hooks])
        config = attributes.get("config")
        if config is not None and id(config) not in seen:
            seen.add(id(config))
            made_of.extend(_settings(config))
        pending.extend(child for child in attributes["_modules"].values() if child is not None)
    return ModelMarks(tuple(made_of), tuple(modes), tuple(versions))


def _note(tensor: torch.Tensor, made_of: list[Hashable], versions: list[int]) -> None:
    versions.append(-1 if tensor.is_inference() else tensor._version)
    made_of += (id(tensor), tensor.requires_grad, _address(tensor))


def _address(tensor: torch.Tensor) -> Hashable:
    try:
        return tensor.data_ptr()
    except RuntimeError:  # there is none: a wrapper around other tensors, or one without data
        return None


def _settings(config: Any, depth: int = 0) -> list[Hashable]:
    """Return the plain values of a configuration, and of those inside."""
    found: list[Hashable] = []
    attributes: Any = config if is_a(config, dict) else getattr(config, "__dict__", {})
    for name, value in attributes.items():
        if type(value) in _PLAIN:
            found.append((name, value))
        elif isinstance(value, list | tuple):
            found.append((name, repr(value)))
        elif depth < _DEEPEST and (is_a(value, dict) or hasattr(value, "__dict__")) and not callable(value):
            found += [name, *_settings(value, depth + 1)]
    return found
