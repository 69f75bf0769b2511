"""Calls of a model, bound to the parameters of its ``forward``, and the kinds that graphs are traced for."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from fxlab.node_info import dtype_name
from fxlab.values.nested import Attribute, Path, is_object

_CONSTANTS = (type(None), bool, float, complex, str, torch.dtype, torch.device)
_TENSORS = (torch.Tensor, nn.Parameter, nn.Buffer)


class NoKindError(Exception):
    """A call that no graph is traced for, with the reason."""


class Number(NamedTuple):
    """An integer among the arguments, which a graph holds or, where calls differ in it, follows."""

    path: Path
    value: int


@dataclass(frozen=True)
class Call:
    """One call of a model."""

    arguments: dict[str, Any]
    """The arguments that were given, by the parameters of ``forward`` or by keyword."""
    places: tuple[Any, ...] | None
    """The same by place, for a ``forward`` that takes some by place only."""
    kind: Hashable
    """Names, classes, dtypes and constants: what a graph cannot follow."""
    numbers: tuple[Number, ...]
    """The integers that lie where another could take their place."""
    tensors: tuple[torch.Tensor, ...]

    @property
    def pattern(self) -> Hashable:
        """The places of sizes of zero or one, which torch treats as exceptions."""
        return tuple(min(size, 2) for tensor in self.tensors for size in tensor.shape)

    def versions(self) -> tuple[int, ...]:
        """Return how often torch has written into each tensor."""
        return tuple(-1 if tensor.is_inference() else tensor._version for tensor in self.tensors)

    def words(self) -> str:
        """Say the arguments in words."""
        return (
            ", ".join(f"{name}: {_words(value)}" for name, value in self.arguments.items()) or "no arguments"
        )


def bound_call(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """Bind the arguments of a call, and tell its kind.

    Raises
    ------
    TypeError
        If the signature does not take them.
    NoKindError
        If there is something among them that graphs are not traced for.
    """
    bound = signature.bind(*args, **kwargs)
    arguments: dict[str, Any] = {}
    by_place = False
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(value)
            continue
        if kind is inspect.Parameter.VAR_POSITIONAL:
            arguments.update((f"{name}_{index}", item) for index, item in enumerate(value))
        else:
            arguments[name] = value
        by_place |= kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)
    if by_place and bound.kwargs:
        raise NoKindError("some arguments are taken by place only and others by keyword")
    description = _Description()
    parts = tuple((name, description.of(arguments[name], (name,))) for name in sorted(arguments))
    return Call(
        arguments,
        bound.args if by_place else None,
        (parts, by_place),
        tuple(description.numbers),
        tuple(description.tensors),
    )


@dataclass
class _Description:
    """Tells the kind of a value, and notes the numbers and tensors inside."""

    numbers: list[Number] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    inside: list[int] = field(default_factory=list)

    def of(self, value: Any, path: Path, *, replaceable: bool = True) -> Hashable:
        cls = type(value)
        if cls in _TENSORS:
            self.tensors.append(value)
            return cls, value.dtype, value.device, value.ndim, value.requires_grad, value.layout
        if cls is int:
            if not replaceable:
                return int, value
            self.numbers.append(Number(path, value))
            return int
        if cls in (float, complex):
            return cls, repr(value)
        if cls in _CONSTANTS:
            return cls, value
        if isinstance(value, torch.Tensor):
            raise NoKindError(f"{path[0]} holds a {cls.__name__}, and graphs are traced for plain tensors")
        if id(value) in self.inside:
            raise NoKindError(f"{path[0]} holds an object that holds itself")
        self.inside.append(id(value))
        try:
            return self._of_items(value, path)
        finally:
            self.inside.pop()

    def _of_items(self, value: Any, path: Path) -> Hashable:
        cls = type(value)
        if isinstance(value, Mapping):
            # The items of a mapping of another class may be fields, which are set in another way.
            own = cls is dict
            return cls, tuple(
                (key, self.of(item, (*path, key), replaceable=own)) for key, item in value.items()
            )
        if isinstance(value, list | tuple):
            own = cls is list
            return cls, tuple(
                self.of(item, (*path, index), replaceable=own) for index, item in enumerate(value)
            )
        if is_object(value):
            attributes = ((Attribute(name), item) for name, item in vars(value).items())
            return cls, tuple((name, self.of(item, (*path, name))) for name, item in attributes)
        raise NoKindError(f"{path[0]} holds a {cls.__name__}, which a graph cannot take apart")


def is_changeable(value: Any) -> bool:
    """Tell whether a model may put something else into an argument, as into a cache of keys and values."""
    return type(value) in (list, dict) or is_object(value)


def _words(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{dtype_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    return type(value).__name__
