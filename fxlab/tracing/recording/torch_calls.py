"""Torch-level calls as nodes: the op and target that stand for a model's call, and for one that raises."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.fx import Node

from fxlab.operators import argument_of, is_in_place, operator_for, written_values
from fxlab.operators.python_functions import DATA, MEMORY, OPERATOR_NAMES, SPARSE_PARTS
from fxlab.tracing import torch_private
from fxlab.tracing.report import TraceError
from fxlab.values.tensors import is_floating

_SYNTAX_TEXT = "add sub mul div matmul neg pow remainder gt ge lt le eq ne"
"""Methods that torch reports for ``a + b`` and the like: whether Python's syntax was used cannot be told."""

_OF_PYTHON = {name: python for python, name in OPERATOR_NAMES.items()}

_OPERATORS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, _OF_PYTHON.get(name, name)) for name in _SYNTAX_TEXT.split()},
    **{
        name: function
        for name, function in vars(operator).items()
        if name.startswith("__") and callable(function) and hasattr(torch.Tensor, name) and name not in DATA
    },
}
"""Methods, and the functions of ``operator`` that call them."""

_REFLECTED: dict[str, Callable[..., Any]] = {
    name: vars(operator)[plain]
    for name in dir(torch.Tensor)
    if name.startswith("__r")
    and (plain := f"__{name[3:]}".replace("__div__", "__truediv__")) in vars(operator)
}
"""Methods that Python calls with the operands exchanged."""

_OPERANDS = {"__invert__": 1, "neg": 1, "__setitem__": 3}
"""How many operands there are, where there are not two."""


RAISE_ON_DATA = frozenset({"cholesky", "inverse", "logdet", "slogdet", "lu_solve", "linalg_", "assert"})
"""Parts of the names of calls that raise for some data, which may be their only purpose."""

LEAF_MAKERS = frozenset({"requires_grad_", "retain_grad"})
"""Calls that let a tensor have a gradient, in place."""

_METHODS: dict[Any, str] = {
    method: name
    for name, method in vars(torch.Tensor).items()
    if callable(method) and getattr(torch.Tensor, getattr(method, "__name__", name), method) != method
}
"""Methods that give themselves the name of another one: ``__pow__`` says that it is ``pow``."""


def name_of(func: Callable[..., Any]) -> str:
    """Return the name that a call goes by: of a method the one that it has in ``torch.Tensor``."""
    return _METHODS.get(func, getattr(func, "__name__", ""))


@dataclass(frozen=True)
class AutogradFunction:
    """The target of a node that applies a ``torch.autograd.Function``, with its own backward."""

    function: type[torch.autograd.Function]

    @property
    def __name__(self) -> str:
        return self.function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the function."""
        return self.function.apply(*args, **kwargs)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class CheckpointOutput:
    """The target of a node that cuts an output of a reentrant checkpoint off, if no input has a gradient.

    Examples
    --------
    >>> weight = torch.ones(2, requires_grad=True)
    >>> CheckpointOutput()(weight * 2, torch.ones(2)).requires_grad
    False
    """

    only_reads = True

    @property
    def __name__(self) -> str:
        return "checkpoint_output"

    def __call__(self, output: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the output, trained if any input is."""
        return output if any(value.requires_grad for value in inputs) else output.detach()


@dataclass(frozen=True)
class Call:
    """The parts of a node, with the values of the run in place of nodes."""

    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def as_call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """Express a model's call in the terms of ``torch.fx``.

    Operators become functions of the module ``operator``, methods ``call_method``, properties ``getattr``.
    ``func``: the function that torch passes to ``__torch_function__``.
    """
    name = name_of(func)
    kwargs = {key: value for key, value in kwargs.items() if key != "_stacklevel"}  # of torch's own warnings
    if name in ("__get__", "__set__"):
        descriptor = func.__self__  # type: ignore[attr-defined]
        attribute = getattr(descriptor, "fget", descriptor).__name__
        if name == "__get__":
            return Call("call_function", getattr, (args[0], attribute), {})
        return Call("call_function", setattr, (args[0], attribute, args[1]), {})
    method = getattr(torch.Tensor, name, None)
    if method is None or (method is not func and method != func):
        return Call("call_function", func, args, kwargs)
    if name in _REFLECTED:
        return Call("call_function", _REFLECTED[name], (args[1], args[0]), {})
    if name in _OPERATORS and len(args) == _OPERANDS.get(name, 2) and not kwargs:
        return Call("call_function", _OPERATORS[name], args, {})
    return Call("call_method", name, args, kwargs)


def with_numbers_for_sizes(
    func: Callable[..., Any], args: tuple[Any, ...], number_in: Callable[[torch.Tensor], Any]
) -> tuple[Any, ...]:
    """Return arguments with numbers in the place of tensors that stand for sizes or bounds of slices.

    Torch takes the numbers out by itself, which no mode would see. ``func``, ``args``: the called function,
    and its positional arguments. ``number_in``: takes the number out of a tensor with one.
    """

    def bound(value: Any) -> Any:
        return number_in(value) if isinstance(value, torch.Tensor) else value

    def with_bounds(value: Any) -> Any:
        if isinstance(value, slice):
            return slice(bound(value.start), bound(value.stop), bound(value.step))
        return tuple(map(with_bounds, value)) if isinstance(value, tuple) else value

    def size(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(size, value)) if type(value) in (list, tuple) else value
        is_whole_number = (
            isinstance(value, torch.Tensor)
            and value.dim() == 0
            and not (is_floating(value) or value.dtype == torch.bool)
        )
        return number_in(value) if is_whole_number else value

    if name_of(func) in ("__getitem__", "__setitem__"):
        return (args[0], with_bounds(args[1]), *args[2:])
    called = operator_for(func)
    if called is None:
        return args
    return tuple(size(value) if called.takes_number(place) else value for place, value in enumerate(args))


def with_any_index(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments of an indexing call with 0 for a tensor with one whole number, to tell the shape.

    Torch reads the number out of it; any other in its place gives a result of the same shape.
    """

    def first(value: Any) -> Any:
        is_index = isinstance(value, torch.Tensor) and value.dim() == 0
        return 0 if is_index and not (is_floating(value) or value.dtype == torch.bool) else value

    index = tuple(map(first, args[1])) if type(args[1]) is tuple else first(args[1])
    return (args[0], index, *args[2:])


def size_that_is_parted(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the size that decides on how many tensors a call gives; 0 for other calls."""
    called = operator_for(func)
    if called is None or not called.returns_sequence or "dim" not in called.parameters:
        return 0
    if not isinstance(args[0], torch.Tensor) or not args[0].dim():
        return 0
    dim = argument_of(called, args, kwargs, "dim")
    return args[0].shape[dim] if isinstance(dim, int) else 0  # torch.gradient gives a part for each dimension


def may_drop_dimensions(func: Callable[..., Any]) -> bool:
    """Tell whether a call gives another number of dimensions if a size is one, which Python may read."""
    called = operator_for(func)
    return called is not None and called.computes.removesuffix("_copy") == "squeeze"


def is_part_of_sparse(name: str, args: tuple[Any, ...]) -> bool:
    """Tell whether a call gives a component of a sparse tensor, whose size no shape tells."""
    if name not in SPARSE_PARTS:
        return False
    with torch._C.DisableTorchFunction():  # the model does not ask for the layout
        return args[0].layout is not torch.strided


def written_by(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments that a call writes, by torch's schemas; no version counts some of these writes."""
    name, operator = name_of(func), operator_for(func)
    if name in LEAF_MAKERS:
        return []
    if operator is not None and name != "__set__":
        return written_values(operator, args, kwargs)
    return [*(args[:1] if name == "__set__" or is_in_place(name) else ()), kwargs.get("out")]


def waits_for_others(node: Node) -> bool:
    """Tell whether a node is one of a collective, in a process that has others to wait for."""
    if not dist.is_available() or not dist.is_initialized():
        return False
    from fxlab.models.parallel.collectives import exchanges

    return exchanges(node)


_OF_TRACING = (
    TraceError,
    torch_private.DataDependentOutputException,
    torch_private.DynamicOutputShapeException,
    torch_private.UnsupportedOperatorException,
    torch_private.GuardOnDataDependentSymNode,
)
"""Errors that arise because a model is traced, and not when it runs."""


@dataclass(frozen=True)
class Raises:
    """The target of a node that tells whether a call raises the error that it raised when it was recorded.

    ``op``, ``target``: those of the call's node: ``call_function`` or ``call_method``. ``error``: its class.

    Examples
    --------
    >>> import torch
    >>> Raises("call_method", "view", RuntimeError)(torch.ones(3), 2)
    True
    """

    op: str
    target: Any
    error: type[Exception]

    @property
    def __name__(self) -> str:
        return "raises"

    def __call__(self, *args: Any, **kwargs: Any) -> bool:
        """Make the call."""
        try:
            if self.op == "call_method":
                getattr(args[0], self.target)(*args[1:], **kwargs)
            else:
                self.target(*args, **kwargs)
        except Exception as error:
            if type(error) is self.error:
                return True
            raise
        return False


class RaisedErrors:
    """Notices the errors of recorded calls, after which a model that catches them goes on.

    ``hold``: makes the graph check that a call raises again. ``on_fakes``: whether tensors of it are fake.
    """

    def __init__(self, hold: Callable[[Call, str, Exception], None], *, on_fakes: bool) -> None:
        self._hold = hold
        self._on_fakes = on_fakes
        self._last: Exception | None = None
        self._call: Call | None = None
        self._of_tracing: Exception | None = None

    def notice(self, call: Call, name: str, error: Exception) -> None:
        """Note the error that a call with a name has raised."""
        if error is self._last:  # it has come from a call inside this one
            return
        self._last, self._call = error, call
        has_no_data = self._on_fakes and (name in MEMORY or isinstance(error, NotImplementedError))
        if has_no_data or isinstance(error, _OF_TRACING):
            self._of_tracing = self._of_tracing or error
            return
        try:
            self._hold(call, name, error)
        except TraceError as unheld:
            # Python tries operators on objects that torch does not know: a TypeError means "not supported".
            if not isinstance(error, TypeError):
                self._of_tracing = self._of_tracing or unheld

    def call_of(self, error: Exception) -> Call | None:
        """Return the call that has raised an error, unless the error comes from elsewhere."""
        return self._call if error is self._last else None

    def end(self) -> None:
        """Release the errors, whose tracebacks hold the arguments of calls."""
        self._last = self._call = self._of_tracing = None

    def require_none(self, unanswered: Exception | None) -> None:
        """Raise the first error that is raised only because the model is traced, if the model went on.

        ``unanswered``: the error of a question about sizes, if one has failed.
        """
        if error := self._of_tracing or unanswered:
            raise error
