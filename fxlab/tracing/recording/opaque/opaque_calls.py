"""Parts of a model that stay one node each, because a graph of their calls would hold for one run only.

A function or module that takes numbers out of tensors, or goes through a size in a loop, can be recorded for
the numbers of one run. Kept whole, it is called by the graph as it is, and holds for all inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from itertools import starmap
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.fx.node import has_side_effect

from fxlab.base.exchanged_code import exchanged_code
from fxlab.base.interrupts import RestoringStack, when_entered
from fxlab.base.torch_private import pytree
from fxlab.tracing.model_code.running_calls import Part, Reason
from fxlab.tracing.recording.opaque.bound_methods import NeedsModuleError
from fxlab.tracing.report import TraceError
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.fake_state import call_on_data, data_in_place, data_of, give_data, has_data
from fxlab.tracing.shapes.symbolic_sizes import SymbolicNumber, expression_of, unknown_size
from fxlab.tracing.shapes.uncounted_lists import ListOfUnknownLength, is_unread, items_of
from fxlab.tracing.torch_private import no_python_dispatcher, unset_fake_temporarily
from fxlab.values.nested import REFUSAL, Path, tensors_inside
from fxlab.values.tensors import is_floating

ANY_LIST = "a list"
"""The expected value for a list that the graph passes on as it is."""


class CannotBeWholeError(TraceError):
    """A part takes or returns a value that a graph cannot hold."""

    code = "part-not-whole"

    def __init__(self, part: Part, why: str) -> None:
        super().__init__(f"{part.__qualname__} cannot be kept whole: {why}")
        self.part = part


class WholeParts:
    """Runs parts of a model on the data that comes along with fake tensors.

    ``reasons``: the parts that stay whole, and why. ``fakes``: the inputs of the run, which data comes along
    with.
    """

    def __init__(self, reasons: Mapping[Part, Reason], fakes: FakeInputs) -> None:
        self.reasons = reasons
        self._functions = [part for part in reasons if isinstance(part, FunctionType)]
        self._mode = fakes.mode
        self._numbers = _Numbers(fakes)

    @contextmanager
    def calls_seen(self, call: Callable[..., Any]) -> Iterator[None]:
        """Route calls of functions that become one node through another function.

        ``call``: receives the function, a callable that runs it, and its positional and keyword arguments.
        """
        with RestoringStack() as stack:
            for function in self._functions:
                # Its code is exchanged, as there is no telling by which names a model knows it.
                stack.enter_context(exchanged_code(function, call))
            yield

    def run(
        self,
        part: Part,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        module: nn.Module | None = None,
    ) -> tuple[Any, bool]:
        """Run a part, and return its result, with fake tensors, and whether it has written anything.

        A size is taken to be that of an argument in the same place if the two agree, and is a symbol of its
        own otherwise. The part's questions about sizes and data are not known to the trace.

        ``call``: runs the part. ``args``, ``kwargs``: with fake tensors and symbolic numbers. ``module``: the
        module that it is, if it is one. Raises CannotBeWholeError if it gives anything but tensors, whole
        numbers and ``None``, in lists, tuples and mappings, changes a list or mapping that it was given, or
        is a method that needs its module.
        """
        given = [tensor for _, tensor in tensors_inside((args, dict(kwargs)))]
        real_args, real_kwargs = self._numbers.given((args, dict(kwargs)))
        structure = pytree.tree_structure((real_args, real_kwargs))
        no_fakes = unset_fake_temporarily(), when_entered(no_python_dispatcher)
        with RestoringStack(torch._C.DisableTorchFunction(), *no_fakes, torch.no_grad()) as stack:
            state = stack.enter_context(data_in_place(module))
            touched = [*state, *map(data_of, given)]
            before = [tensor._version for tensor in touched]
            try:
                real = call(*real_args, **real_kwargs)
            except NeedsModuleError as error:
                raise CannotBeWholeError(part, str(error)) from error
            written = before != [tensor._version for tensor in touched]
        if pytree.tree_structure((real_args, real_kwargs)) != structure:
            raise CannotBeWholeError(part, "it changes a list or mapping that it is given")
        requires_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*given, *state))

        def fake(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return self._fake_of(value, given, requires_grad)
            if value is None:
                return None
            if type(value) is int:
                return self._numbers.new(value)
            if isinstance(value, Mapping):
                items = {key: fake(item) for key, item in value.items()}
                return items if type(value) is dict else type(value)(**items)
            if type(value) in (list, tuple):
                return type(value)(fake(item) for item in value)
            raise CannotBeWholeError(part, f"it gives a {type(value).__name__}")

        return fake(real), written

    def joined(
        self, join: Callable[..., Any], items: Any, dim: int, *, adds_dimension: bool
    ) -> torch.Tensor | None:
        """Return the result of ``torch.cat`` or ``torch.stack`` for any number of items, or ``None``.

        ``items``: the items of this run. ``dim``: where they are joined. ``adds_dimension``: whether the
        result has a dimension more.
        """
        if not all(isinstance(item, torch.Tensor) and has_data(item) for item in items):
            return None
        real = call_on_data(join, (items, dim), {})
        shape: list[Any] = list(items[0].shape)
        if len(shape) + adds_dimension != real.dim():
            return None
        dim %= real.dim()
        shape[dim : dim + (not adds_dimension)] = [self._numbers.new(real.shape[dim])]
        requires_grad = torch.is_grad_enabled() and any(item.requires_grad for item in items)
        return self._fake_of_shape(real, shape, requires_grad)

    def _fake_of(self, real: torch.Tensor, given: list[torch.Tensor], requires_grad: bool) -> torch.Tensor:
        shape: list[Any] = []
        for dim, size in enumerate(real.shape):
            alike = (tensor.shape[dim] for tensor in given if tensor.dim() == real.dim())
            known = (other for other in alike if self._numbers.of(other) == size)
            shape.append(next(known, None) or self._numbers.new(size))
        return self._fake_of_shape(real, shape, requires_grad)

    def _fake_of_shape(self, real: torch.Tensor, shape: list[Any], requires_grad: bool) -> torch.Tensor:
        strides: list[Any] = [1] * real.dim()
        step: Any = 1
        for dim in sorted(range(real.dim()), key=lambda dim: (real.stride(dim), -dim)):
            strides[dim], step = step, step * shape[dim]
        with self._mode:
            fake = torch.empty_strided(shape, strides, dtype=real.dtype, device=real.device)
            give_data(fake, real)
            if requires_grad and is_floating(real):
                fake = fake.requires_grad_().clone()  # which may be written to, as a view of a leaf may not
                give_data(fake, real)
        return fake


class _Numbers:
    """The values of symbolic numbers in this run."""

    def __init__(self, fakes: FakeInputs) -> None:
        self._env = fakes.shape_env

    def of(self, number: Any) -> Any:
        """Return the value of a number in this run."""
        if not isinstance(number, SymbolicNumber):
            return number
        known = self._env.real_tensor_prop_unbacked_vals or {}
        value = expression_of(number).xreplace(known).xreplace(self._env.backed_var_to_val)
        kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(number)]
        return kind(value)

    def given(self, value: Any) -> Any:
        """Return a nested value with data in place of fake tensors, and numbers in place of symbols."""
        if isinstance(value, torch.Tensor):
            return data_of(value)
        if isinstance(value, slice):
            return slice(*map(self.of, (value.start, value.stop, value.step)))
        if isinstance(value, ListOfUnknownLength):
            return self.given(items_of(value))
        if type(value) in (list, tuple, torch.Size):
            return type(value)(self.given(item) for item in value)
        if type(value) is dict:
            return {key: self.given(item) for key, item in value.items()}
        return self.of(value)

    def new(self, value: int) -> torch.SymInt:
        """Return a symbol that stands for a number of this run."""
        return unknown_size(self._env, value)


def expected_of(value: Any, known: Container[Any]) -> Any:
    """Return the value that :func:`require_result` expects of results like this one.

    ``value``: the result of a part. ``known``: the symbols that other values of the run gave before.
    """
    if isinstance(value, torch.Tensor):
        is_known = [all(s in known for s in expression_of(size).free_symbols) for size in value.shape]
        return tuple(size if follows else ... for size, follows in zip(value.shape, is_known, strict=True))
    if isinstance(value, Mapping):
        return {key: expected_of(item, known) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [expected_of(item, known) for item in value]
    return None if value is None else ...


def unread_lists(value: Any, path: Path = ()) -> Iterator[tuple[Path, ListOfUnknownLength]]:
    """Yield the lists in a result that Python has not read, each with the way to it."""
    if is_unread(value):
        yield path, value
    elif isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from unread_lists(item, (*path, key))


def with_any_list(expected: Any, path: Path) -> Any:
    """Return the expected value of results that may have any list in one place."""
    if not path:
        return ANY_LIST
    key, *rest = path
    changed = dict(expected) if isinstance(expected, Mapping) else list(expected)
    changed[key] = with_any_list(expected[key], tuple(rest))
    return changed


@has_side_effect
def require_result(result: Any, expected: Any, name: str) -> None:
    """Raise ``AssertionError`` unless a part that stays whole gives the result that the graph expects.

    ``expected``: a tuple of sizes for a tensor, lists and dicts for containers of tensors, ``None``; ``...``
    for a number, or a size that may be any; :data:`ANY_LIST` for a list of any number of items. ``name``: the
    name of the part.
    """
    if not _is_as_expected(result, expected):
        found = [tuple(tensor.shape) for _, tensor in tensors_inside(result)]
        raise AssertionError(f"{REFUSAL} {name} giving tensors of shapes {expected} only, not {found}")


def _is_as_expected(result: Any, expected: Any) -> bool:
    if expected == ANY_LIST:
        return isinstance(result, list | tuple)
    if isinstance(expected, list):
        items = isinstance(result, list | tuple) and zip(result, expected, strict=False)
        return len(result) == len(expected) and all(starmap(_is_as_expected, items or ()))
    if isinstance(expected, dict):
        same_keys = isinstance(result, Mapping) and result.keys() == expected.keys()
        return same_keys and all(_is_as_expected(result[key], item) for key, item in expected.items())
    if isinstance(expected, tuple):
        shape = result.shape if isinstance(result, torch.Tensor) else None
        is_any = shape is not None and len(shape) == len(expected)
        return is_any and all(e is ... or n == e for n, e in zip(shape or (), expected, strict=True))
    return type(result) is int if expected is ... else result is None
