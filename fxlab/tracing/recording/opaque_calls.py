"""Parts of a model that stay one node each, because a graph of their calls would hold for one run only.

A function or module that takes numbers out of tensors, or goes through a size in a loop, can be recorded for
the numbers of one run. Kept whole, it is called by the graph as it is, and holds for all inputs.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Container, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import starmap
from types import FunctionType
from typing import Any, NoReturn, Protocol, TypeVar

import torch
from torch import nn
from torch.fx.node import has_side_effect

from fxlab.base.exchanged import exchanged_code
from fxlab.base.interrupts import RestoringStack, when_entered
from fxlab.base.torch_private import pytree
from fxlab.tracing.messages import first_line, place_of
from fxlab.tracing.model_code.given_model import attribute_of
from fxlab.tracing.model_code.running_code import Part, Reason, parts_raising
from fxlab.tracing.recording.graph_builder import FEW_OPERATIONS, MOST_OPERATIONS, SizeError
from fxlab.tracing.report import Obstacle, TraceError
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.fake_state import call_on_data, data_in_place, data_of, give_data, has_data
from fxlab.tracing.shapes.symbolic_sizes import SymbolicNumber, expression_of, unknown_size
from fxlab.tracing.shapes.uncounted_lists import ListOfUnknownLength, is_unread, items_of
from fxlab.tracing.torch_private import no_python_dispatcher, unset_fake_temporarily
from fxlab.values.containers import is_a
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

    ``reasons``: the parts that stay whole, and why. ``fakes``: the inputs of the run, with their data.
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

        ``items``: those of this run. ``dim``: where they are joined. ``adds_dimension``: as stacking does.
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
    for a number, or a size that may be any; :data:`ANY_LIST` for a list of any length. ``name``: its name.
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


_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device)
_OF_EVERY_MODULE = frozenset(vars(nn.Module())) - {"training"}
_KINDS = ("_parameters", "_buffers", "_modules")


class NeedsModuleError(Exception):
    """A method reads or writes more of its module than it has here."""


@dataclass(frozen=True, eq=False)
class MethodOf:
    """The target of a node that calls a method, such as one that numbers the positions of a text with images.

    ``cls``: the class of the module; an empty one is made for each call. ``name``: the method. ``settings``:
    those attributes of the module that are plain values or a configuration. ``withheld``: the names of its
    other attributes. A method that asks for one raises :class:`NeedsModuleError`. ``state``: the names of its
    parameters, buffers and modules, by the attribute of a module that holds them. ``uses``: those among them
    that the method uses, if any: a mapping with these is its first argument.
    """

    cls: type[nn.Module]
    name: str
    settings: Mapping[str, Any]
    withheld: Collection[str]
    state: Mapping[str, tuple[str, ...]]
    uses: Collection[str] = ()

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        given: Mapping[str, Any] = {}
        if self.uses:
            given, *args = args  # type: ignore[assignment]
        return self.called(given, set(), *args, **kwargs)

    def called(self, given: Mapping[str, Any], used: set[str], *args: Any, **kwargs: Any) -> Any:
        """Call the method of a module with this state, and add the names of the state that it uses."""
        module = self.cls.__new__(self.cls)
        nn.Module.__init__(module)
        state = {kind: _State(self.state[kind], given, used, self.withheld) for kind in _KINDS}
        attributes = vars(module)
        attributes.update(state, **self.settings)
        before = dict(attributes)
        result = getattr(module, self.name)(*args, **kwargs)
        written = [name for name, value in attributes.items() if before.get(name, _State) is not value]
        if written:
            raise NeedsModuleError(f"it writes {', '.join(written)}")
        return result

    def using(self, used: Collection[str]) -> MethodOf:
        """Return the same target for a method that uses so much of its module."""
        return replace(self, uses=tuple(n for kind in _KINDS for n in self.state[kind] if n in used))


def method_of(module: nn.Module, name: str, copies: dict[int, Any]) -> MethodOf:
    """Return a target that calls a method of a module, with its settings as they are now.

    ``copies``: the memo of :func:`copy.deepcopy`, shared with other targets, to copy a configuration once.
    """
    attributes = {key: value for key, value in vars(module).items() if key not in _OF_EVERY_MODULE}
    settings = {key: value for key, value in attributes.items() if _is_setting(value)}
    withheld = frozenset(attributes.keys() - settings.keys())
    state = {kind: tuple(vars(module)[kind]) for kind in _KINDS}
    return MethodOf(type(module), name, copy.deepcopy(settings, copies), withheld, state)


class _State(MutableMapping[str, Any]):
    """Parameters, buffers or modules of a module; asking for one not given is an error no default hides.

    ``names``: the names that the module has. ``given``: the values present here, by name. ``used``: collects
    the names that are read. ``withheld``: the other names of the module.
    """

    def __init__(
        self, names: tuple[str, ...], given: Mapping[str, Any], used: set[str], withheld: Collection[str]
    ) -> None:
        self._names, self._given, self._used, self._withheld = names, given, used, withheld

    def __contains__(self, name: object) -> bool:
        if name in self._withheld or (name in self._names and name not in self._given):
            raise NeedsModuleError(f"it uses {name}")
        return name in self._names

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        self._used.add(name)
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        # One by one: a module that looks for its dtype goes no further than to its first parameter.
        for name in self._names:
            self[name]
            yield name

    def __len__(self) -> int:
        return len(list(self))

    def __setitem__(self, name: str, value: Any) -> NoReturn:
        raise NeedsModuleError(f"it writes {name}")

    __delitem__ = __setitem__  # type: ignore[assignment]


def _is_setting(value: Any) -> bool:
    if isinstance(value, list | tuple | set):
        return all(map(_is_setting, value))
    if isinstance(value, dict):
        return all(map(_is_setting, value.values()))
    is_configuration = inspect.getattr_static(type(value), "to_dict", None) is not None
    return is_a(value, *_PLAIN) or (is_configuration and not is_a(value, nn.Module))


_MOST_RUNS = 12


class _HasReasons(Protocol):
    @property
    def reasons(self) -> list[Reason]:
        """Why it is specialised."""


_Trace = TypeVar("_Trace", bound=_HasReasons)


def with_parts_whole(
    model: nn.Module,
    trace: Callable[[Mapping[Part, Reason], int], _Trace],
    failure: Exception | None,
    reasons: list[Reason],
) -> _Trace:
    """Keep those parts whole that make a plain number of a size or of data, or cannot be recorded.

    ``trace``: traces it with some parts whole, and sizes of at most so many operations. ``failure``: the
    error of the run before, which names the first parts. ``reasons``: the reasons why its graph is
    specialised, if it has raised nothing.
    """
    parts: dict[Part, Reason] = {}
    # Nothing would be left of a model of which all but the head is one node.
    base = attribute_of(model, "base_model")
    impossible: set[Part] = {type(model)}
    if isinstance(base, nn.Module):
        impossible.add(type(base))
    result: _Trace | None = None
    has_other = failure is None  # one that can be read more easily, and holds for as many images
    most_operations = FEW_OPERATIONS if isinstance(failure, SizeError) else MOST_OPERATIONS
    for _ in range(_MOST_RUNS):
        if failure is not None:
            running, what = parts_raising(failure), f"raises {first_line(failure)}"
            reasons = [Reason(running, what, place_of(failure), hides_modules=True)]
        chosen: dict[Part, Reason] = {}
        for reason in reasons:
            part = next((p for p in reason.candidates if p not in impossible and p not in parts), None)
            reason = replace(reason, hides_modules=reason.hides_modules or not has_other)
            if part is not None:
                is_stronger = reason.hides_modules and part in chosen and not chosen[part].hides_modules
                chosen[part] = reason if is_stronger else chosen.get(part, reason)
            elif failure is not None:
                raise failure
            elif reason.is_number and result is not None and (has_other or not reason.is_count):
                raise Obstacle.DECIDED_OUTSIDE(reason=reason.what)
        if result is not None and not chosen:
            return result
        parts |= chosen
        if not parts:
            raise Obstacle.NO_PART()
        result = failure = None
        try:
            result = trace(dict(parts), most_operations)
            reasons = result.reasons
        except CannotBeWholeError as error:
            impossible.add(error.part)
            reasons = [parts.pop(error.part)]
        except Exception as error:  # the model's own code runs here, and may raise anything
            failure = error
    raise Obstacle.TOO_MANY_PARTS(runs=_MOST_RUNS)
