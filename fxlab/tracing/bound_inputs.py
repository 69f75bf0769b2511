"""The inputs of a trace, for its runs and checks: bound to the parameters of ``forward``, also resized."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

import torch
from torch import nn

from fxlab.models.running.arguments import given_arguments
from fxlab.values import nested
from fxlab.values.tensors import refuse_fake

_CONSTANT = (type(None), bool, int, float, complex, str, torch.dtype, torch.device)
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}

Size: TypeAlias = tuple[str, nested.Path, int]
"""A dimension of an input: the argument, the way to the tensor inside, and the dimension."""


@dataclass(frozen=True)
class Argument:
    """One input of a model."""

    name: str
    """The parameter of ``forward``, or ``args_0`` and so on for the items of ``*args``."""
    value: Any
    by_keyword: bool
    default: Any = inspect.Parameter.empty
    """The model's own default."""
    shared: Any = None
    """The value as it was given, if a tensor in it is one of another input as well."""
    is_extra: bool = False
    """Whether it is an item of ``**kwargs``, whose order the model can read."""

    @property
    def placeholder_default(self) -> tuple[Any, ...]:
        """Return the model's own default as the ``args`` of a placeholder, empty if a graph cannot have it.

        The held value is never the default, as a call without it would compute another function. A tensor
        has no default either, as the nodes were recorded for one.
        """
        return (self.default,) if self.is_constant and _is_constant(self.default) else ()

    @property
    def is_constant(self) -> bool:
        """Whether there is neither tensor nor object inside, so that the trace holds the value fixed."""
        return not nested.has_parts(self.value)


def bound_arguments(model: nn.Module, inputs: Any) -> tuple[Argument, ...]:
    """Bind inputs to the parameters of ``model.forward``; for a model on the meta device, without their data.

    Raises TypeError if inputs are none of these, do not fit the signature, or hold an object that a graph
    cannot take apart; ValueError if they are fake tensors, which have no numbers.
    """
    args, kwargs = given_arguments(inputs)
    signature = inspect.signature(model.forward)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        names = ", ".join(signature.parameters) or "nothing"
        takes = f"inputs: {error}. {type(model).__name__}.forward takes {names}."
        if isinstance(inputs, Mapping):
            takes += (
                " A mapping has arguments by name; one that is an argument itself is given as (mapping,)."
            )
        elif len(args) > 1 and all(type(value) is int for value in args):
            takes += f" A shape is no input; a tensor of it is: torch.randn{tuple(args)}."
        raise TypeError(takes) from None
    arguments: list[Argument] = []
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            arguments += [Argument(key, item, True, is_extra=True) for key, item in value.items()]
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            arguments += [Argument(f"{name}_{index}", item, False) for index, item in enumerate(value)]
        else:
            arguments.append(Argument(name, value, name in kwargs, signature.parameters[name].default))
    arguments = [replace(argument, value=nested.flatten_objects(argument.value)) for argument in arguments]
    for argument in arguments:
        _check(argument)
    # By identity: one tensor given twice, as texts and as labels, would be one input.
    held = [*model.parameters(), *model.buffers()]
    seen = {id(tensor) for tensor in held}
    on_meta = bool(held) and all(tensor.is_meta for tensor in held)

    def own(argument: Argument) -> Argument:
        shared = None

        def untied(_: nested.Path, tensor: torch.Tensor) -> torch.Tensor:
            nonlocal shared
            refuse_fake(tensor)
            if id(tensor) in seen:
                shared = argument.value
                tensor = tensor.detach().clone().requires_grad_(tensor.requires_grad)
            seen.add(id(tensor))
            return tensor.to("meta") if on_meta else tensor

        return replace(argument, value=nested.map_tensors(untied, argument.value), shared=shared)

    return tuple(map(own, arguments))


def with_places(model: Any, inputs: Any) -> Any:
    """Return inputs by name, and by place where ``rest`` stands for the items of ``*rest``."""
    if not isinstance(inputs, Mapping):
        return inputs
    parameters = inspect.signature(getattr(model, "forward", model)).parameters
    rest = next((n for n, p in parameters.items() if p.kind is p.VAR_POSITIONAL and n in inputs), None)
    if rest is None:
        return inputs
    before = [*parameters][: [*parameters].index(rest)]
    values = [inputs.get(name, parameters[name].default) for name in before]
    if any(value is inspect.Parameter.empty for value in values):  # one is missing, which binding says
        return inputs
    named = {name: value for name, value in inputs.items() if name not in (*before, rest)}
    return dict(enumerate([*values, *inputs[rest]])) | named


def inputs_of(arguments: tuple[Argument, ...], values: Mapping[str, Any]) -> dict[Any, Any]:
    """Return the inputs to call the model with, by name or place, given other values for its arguments."""
    return {
        argument.name if argument.by_keyword else place: nested.unflatten_objects(values[argument.name])
        for place, argument in enumerate(arguments)
    }


def mapped_tensors(
    arguments: tuple[Argument, ...], change: Callable[[str, nested.Path, torch.Tensor], Any]
) -> dict[str, Any]:
    """Return the values of arguments, by name, with a replacement of each tensor.

    ``change``: given the name of the argument, the way to the tensor inside, and the tensor.
    """

    def of(argument: Argument) -> Any:
        return nested.map_tensors(lambda path, tensor: change(argument.name, path, tensor), argument.value)

    return {argument.name: of(argument) for argument in arguments}


def name_of_size(size: Size) -> str:
    """Write a size the way Python would read it off the input."""
    name, path, dim = size
    return f"{nested.name_of_part(name, path)}.shape[{dim}]"


def resized(
    arguments: tuple[Argument, ...], sizes: Mapping[Size, int], *, from_end: bool = False
) -> dict[str, Any]:
    """Return inputs of other sizes, filled by repeating the data of the given ones.

    ``sizes``: the sizes that change. ``from_end``: whether to repeat from the end backward: the front of a
    text may hold the places of an image.
    """

    def resize(name: str, path: nested.Path, tensor: torch.Tensor) -> torch.Tensor:
        given = tensor
        for dim, old in enumerate(tensor.shape):
            new = sizes.get((name, path, dim), old)
            if new != old and old:
                index = torch.arange(new, device=tensor.device)
                repeated = old - 1 - index % old if from_end else index % old
                tensor = tensor.index_select(dim, torch.where(index < old, index, repeated))
            elif new != old:
                tensor = tensor.new_zeros(*tensor.shape[:dim], new, *tensor.shape[dim + 1 :])
        return tensor if tensor is given else _like_in_memory(tensor, given)

    with torch.no_grad():
        return mapped_tensors(arguments, resize)


def _like_in_memory(tensor: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """Return a new tensor with the channels last, and with a gradient, where a given one has them so."""
    layout = _CHANNELS_LAST.get(given.dim(), torch.contiguous_format)
    is_first = given.layout is not torch.strided or given.is_contiguous()
    if not is_first and given.is_contiguous(memory_format=layout):
        tensor = tensor.contiguous(memory_format=layout)
    return tensor.requires_grad_(given.requires_grad)


def _is_constant(value: Any) -> bool:
    """Tell whether a value is one that code can write and nothing can change."""
    if type(value) is tuple:
        return all(map(_is_constant, value))
    return type(value) in _CONSTANT


def _check(argument: Argument) -> None:
    if keyword.iskeyword(argument.name) or not argument.name.isidentifier():
        raise TypeError(
            f"inputs: {argument.name!r} can name no parameter in Python, so none of a graph. Rename it."
        )
    pending = [argument.value]
    while pending:
        value = pending.pop()
        if isinstance(value, nested.ObjectParts):
            pending.extend(part for part in value.values() if not isinstance(part, type))
        elif isinstance(value, Mapping | list | tuple):
            pending.extend(part for _, part in nested.parts_inside(value))
        elif not isinstance(value, (torch.Tensor, Enum, slice, *_CONSTANT)):
            raise TypeError(
                f"inputs: {argument.name} holds a {type(value).__name__}, which a graph cannot take apart. "
                "Give tensors, numbers, strings and members of enumerations, alone or in lists, tuples, "
                "mappings and objects with attributes, or leave it out."
            )
