"""The inputs of a trace: bound to the parameters of ``forward``, checked, and made fake."""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.fx import Node

_CONSTANT = (type(None), bool, int, float, complex, str, torch.dtype, torch.device)

Path = tuple[Any, ...]
"""The keys and indices that lead from an input to a tensor inside."""


@dataclass(frozen=True)
class Argument:
    """One input of a model."""

    name: str
    """The parameter of ``forward``, or ``args_0`` and so on for what ``*args`` takes."""
    value: Any
    by_keyword: bool

    @property
    def is_constant(self) -> bool:
        """Whether there is no tensor inside, so that the trace holds the value fixed."""
        return not any(True for _ in tensors_inside(self.value))


def bound_arguments(model: nn.Module, inputs: Any) -> tuple[Argument, ...]:
    """Bind inputs to the parameters of ``model.forward``.

    Parameters
    ----------
    model
        The module.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple or list) or one tensor.

    Raises
    ------
    TypeError
        If inputs are none of these, do not fit the signature, or hold what a graph cannot take apart.
    """
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if not isinstance(inputs, Mapping | tuple | list):
        raise TypeError(
            "inputs: expected a mapping of keyword arguments, a tuple of positional arguments or one tensor, "
            f"got {type(inputs).__name__}"
        )
    signature = inspect.signature(model.forward)
    by_keyword = isinstance(inputs, Mapping)
    try:
        bound = signature.bind(**inputs) if isinstance(inputs, Mapping) else signature.bind(*inputs)
    except TypeError as error:
        raise TypeError(
            f"inputs: {error}. {type(model).__name__}.forward takes "
            f"{', '.join(signature.parameters) or 'nothing'}."
        ) from None
    arguments: list[Argument] = []
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            arguments += [Argument(key, item, True) for key, item in value.items()]
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            arguments += [Argument(f"{name}_{index}", item, False) for index, item in enumerate(value)]
        else:
            arguments.append(Argument(name, value, by_keyword))
    for argument in arguments:
        _check(argument)
    # By identity: one tensor given twice, as texts and as labels, would be one input.
    seen = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}

    def own(_: Path, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in seen:
            tensor = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        seen.add(id(tensor))
        return tensor

    return tuple(replace(argument, value=map_tensors(own, argument.value)) for argument in arguments)


def inputs_of(arguments: tuple[Argument, ...], values: Mapping[str, Any]) -> dict[str, Any] | tuple[Any, ...]:
    """Return what to call the model with, given other values for its arguments."""
    if all(argument.by_keyword for argument in arguments):
        return {argument.name: values[argument.name] for argument in arguments}
    return tuple(values[argument.name] for argument in arguments)


def tensors_inside(value: Any, path: Path = ()) -> Iterator[tuple[Path, torch.Tensor]]:
    """Yield each tensor inside nested lists, tuples and mappings, with the path that leads to it."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_inside(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from tensors_inside(item, (*path, index))


def name_of_part(name: str, path: Path) -> str:
    """Write what lies inside an input the way Python would read it off."""
    return "".join((name, *(f"[{key!r}]" for key in path)))


def part_of(node: Node, path: Path) -> Node:
    """Return a node that gives what lies inside of what another gives."""
    for key in path:
        node = node.graph.call_function(operator.getitem, (node, key))
    return node


def map_tensors(change: Callable[[Path, torch.Tensor], Any], value: Any, path: Path = ()) -> Any:
    """Return a nested value with other tensors, of the same types."""
    if isinstance(value, torch.Tensor):
        return change(path, value)
    if isinstance(value, Mapping):
        items = {key: map_tensors(change, item, (*path, key)) for key, item in value.items()}
        if type(value) is dict:
            return items
        if hasattr(value, "__dataclass_fields__"):
            return type(value)(**items)  # ModelOutput and its like
        changed: Any = copy.copy(value)
        changed.update(items)
        return changed
    if isinstance(value, list | tuple):
        parts = [map_tensors(change, item, (*path, index)) for index, item in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _check(argument: Argument) -> None:
    pending = [argument.value]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            pending.extend(value.values())
        elif isinstance(value, list | tuple):
            pending.extend(value)
        elif not isinstance(value, (torch.Tensor, *_CONSTANT)):
            raise TypeError(
                f"inputs: {argument.name} holds a {type(value).__name__}, which a graph cannot take apart. "
                "Give tensors, numbers and strings, alone or in lists, tuples and mappings, or leave it out."
            )
