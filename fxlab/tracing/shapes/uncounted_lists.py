"""Lists whose length data decide, as of a batch's images, that a recorded graph passes on as a whole.

Models take packed images apart with ``features.split(sizes.tolist())`` and put them together again with
``torch.cat``. As long as Python does not read the lists in between, the graph holds for any number of items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import torch
from torch.fx import Node

from fxlab.tracing.shapes.fake_state import call_on_data, environment_of, give_data, has_data
from fxlab.tracing.shapes.symbolic_sizes import expression_of, unknown_size
from fxlab.tracing.torch_private import FakeTensor, constrain_range_for_size
from fxlab.values.tensors import is_floating

Count = Callable[[Any], bool]
"""Fixes the size that says how many items there are; tells whether it is the model that has read them."""


class ListOfUnknownLength:
    """A list or tuple that notices when Python reads it.

    ``node``: its node. ``size``: the number of its items, or the list that has as many. ``parted``: the
    tensor that the items are the parts of, and along which dimension.
    """

    node: Node
    size: Any
    parted: tuple[torch.Tensor, int] | None = None
    _count: Count | None = None

    def read(self) -> None:
        """Specialize the graph for this number of items."""
        if self._count is not None and self._count(self.size):
            self._count = None

    def __radd__(self, other: Any) -> Any:
        self.read()
        return other + items_of(self)


def _reading(method: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        for each in (self, *args):
            if isinstance(each, ListOfUnknownLength):
                each.read()
        return method(self, *args, **kwargs)

    return read


_NOT_READING = ("__new__", "__init__", "__getattribute__", "__class_getitem__", "__sizeof__")


def _readers(kind: type) -> dict[str, Any]:
    methods = {name: method for name, method in vars(kind).items() if name not in _NOT_READING}
    return {name: _reading(method) for name, method in methods.items() if callable(method)}


class _List(ListOfUnknownLength, list[Any]):
    vars().update(_readers(list))


class _Tuple(ListOfUnknownLength, tuple[Any, ...]):
    vars().update(_readers(tuple))


def uncounted(items: list[Any] | tuple[Any, ...], size: Any, count: Count) -> ListOfUnknownLength:
    """Return a list or tuple that calls ``count`` with its size before Python reads it."""
    result = _List(items) if isinstance(items, list) else _Tuple(items)
    result.size, result._count = size, count
    return result


def is_unread(value: Any) -> TypeGuard[ListOfUnknownLength]:
    """Tell whether a value is a list of which Python knows neither the length nor an item."""
    return isinstance(value, ListOfUnknownLength) and value._count is not None


def items_of(value: Any) -> Any:
    """Return a list or tuple of the usual kind, without reading it."""
    return list(list.__iter__(value)) if isinstance(value, list) else tuple(tuple.__iter__(value))


def all_read(value: Any) -> Any:
    """Return arguments of a call which goes through the lists among them."""
    if isinstance(value, ListOfUnknownLength):
        value.read()
        return items_of(value)
    if type(value) in (list, tuple):
        return type(value)(map(all_read, value))
    return {key: all_read(item) for key, item in value.items()} if type(value) is dict else value


def uncounted_result(
    name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], count: Count
) -> ListOfUnknownLength | torch.Tensor | None:
    """Return the result of a call if nothing in it goes through a list, or ``None``.

    ``name``: the name of the call. ``args``, ``kwargs``: its arguments, with fake tensors. ``count``: called
    when Python reads the result.
    """
    if name == "tolist":
        return _numbers_in(args[0], count)
    if kwargs.keys() - {"dim"}:
        return None
    if name == "split" and len(args) in (2, 3) and is_unread(args[1]):
        return _parts_of(args[0], args[1], kwargs.get("dim", 0) if len(args) == 2 else args[2], count)
    if name == "cat" and len(args) in (1, 2) and is_unread(args[0]):
        return _put_together(args[0], kwargs.get("dim", 0) if len(args) == 1 else args[1])
    return None


def _numbers_in(tensor: torch.Tensor, count: Count) -> ListOfUnknownLength | None:
    is_whole = not (is_floating(tensor) or tensor.dtype == torch.bool)
    if not isinstance(tensor, FakeTensor) or not tensor.dim() or not is_whole:
        return None
    size: Any
    size, *others = tensor.shape
    data = call_on_data(torch.Tensor.tolist, (tensor,), {}) if has_data(tensor) else None
    is_known = data is not None or (isinstance(size, torch.SymInt) and size.node.has_hint())
    if expression_of(size).is_number or not is_known or not all(expression_of(n).is_number for n in others):
        return None
    env = environment_of(tensor)

    def numbers(shape: list[int], values: Any) -> Any:
        if not shape:
            return unknown_size(env, values)
        return [numbers(shape[1:], None if values is None else values[i]) for i in range(shape[0])]

    first = size.node.hint if data is None else len(data)
    return uncounted(numbers([first, *others], data), size, count)


def _parts_of(
    tensor: torch.Tensor, sizes: ListOfUnknownLength, dim: int, count: Count
) -> ListOfUnknownLength | None:
    if not isinstance(tensor, FakeTensor) or not -tensor.dim() <= dim < tensor.dim():
        return None
    dim %= tensor.dim()
    numbers = items_of(sizes)
    if not all(isinstance(number, torch.SymInt) for number in numbers):
        return None
    # The graph's own call raises if they do not add up.
    parts = [_like(tensor, (*tensor.shape[:dim], number, *tensor.shape[dim + 1 :])) for number in numbers]
    for number in numbers:
        constrain_range_for_size(number)
    if has_data(tensor):
        known = environment_of(tensor).real_tensor_prop_unbacked_vals
        counts = [int(known[expression_of(number)]) for number in numbers]
        data = call_on_data(torch.Tensor.split, (tensor, counts, dim), {})
        for part, piece in zip(parts, data, strict=True):
            give_data(part, piece)
    result = uncounted(tuple(parts), sizes.size, count)
    result.parted = tensor, dim
    return result


def _put_together(parts: ListOfUnknownLength, dim: int) -> torch.Tensor | None:
    if parts.parted is None or parts.parted[1] != dim % parts.parted[0].dim():
        return None
    tensor, dim = parts.parted
    if tensor.dim() > 3:  # which may lie in memory with the channels last
        return None
    result = _like(tensor.contiguous(), tensor.shape).clone()  # no view: it may be written to
    if has_data(tensor):
        give_data(result, call_on_data(torch.cat, (items_of(parts), dim), {}))
    return result


def _like(tensor: torch.Tensor, shape: tuple[Any, ...]) -> torch.Tensor:
    with torch.no_grad():
        result = tensor.new_empty_strided(shape, tensor.stride())
    if torch.is_grad_enabled() and tensor.requires_grad:
        result = torch.ops.aten.alias(result.requires_grad_())
    return result
