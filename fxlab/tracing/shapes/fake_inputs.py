"""Fake tensors in place of inputs: shapes and dtypes without data, with sizes that are symbols."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import sympy
import torch
import torch._functorch.config
from sympy.logic.boolalg import BooleanAtom
from torch._dynamo.source import ConstantSource, TensorProperty, TensorPropertySource
from torch._guards import Source
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
    canonicalize_bool_expr,
)
from torch.utils._sympy import functions

from fxlab.tracing.bound_inputs import Argument
from fxlab.tracing.model_code.running_calls import Reason, parts_running
from fxlab.tracing.model_code.source_lines import is_model_code, where_asked
from fxlab.tracing.model_code.threads import OneThread
from fxlab.tracing.report import TraceError
from fxlab.tracing.shapes.size_cache import SizeWork
from fxlab.tracing.shapes.symbolic_sizes import expression_of
from fxlab.tracing.shapes.uncounted_lists import Uncounted
from fxlab.values.nested import Path, map_tensors, name_of_part, tensors_inside


@dataclass(frozen=True)
class Decision:
    """A condition on numbers that were read out of tensors, which held when the model was recorded."""

    condition: Any
    """A sympy expression."""
    where: str
    """``file:line`` of the model's code."""
    is_required: bool = False
    """Whether the model refuses anything else, as by ``torch._check``."""


class ModelSizes(ShapeEnv):
    """Knows the symbols of sizes, and what the model itself asks about them and about data.

    What an operator asks need not be held: the operator is in the graph, and asks again. Where in its memory
    a tensor begins has no symbol: a model does not depend on it.

    Attributes
    ----------
    is_asked_by_model : bool
        Whether the model's own code is running, and nothing that becomes a node.
    held : dict of sympy expressions to str
        What the model was told about sizes, or required of them -> ``file:line``.
    decisions : list of Decision
        What it has decided on data, or required of it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._is_giving_up = False
        self.fixed: list[tuple[frozenset[sympy.Symbol], Reason]] = []
        self.is_asked_by_model = False
        self.held: dict[Any, str] = {}
        self.decisions: list[Decision] = []
        self._required: list[Decision] = []

    @contextmanager
    def asked(self, *, by_model: bool) -> Iterator[None]:
        """Say who asks about sizes for a while."""
        before, self.is_asked_by_model = self.is_asked_by_model, by_model
        try:
            yield
        finally:
            self.is_asked_by_model = before

    def require_shown(self, operator: Any) -> None:
        """Raise :class:`TraceError` if no recorded call runs an operator that writes or reads data."""
        if self.is_asked_by_model and isinstance(operator, OpOverload) and _writes_or_tells(operator):
            raise TraceError(
                f"{operator} is called by what torch does not show (a compiled or a scripted function), at "
                f"{where_asked() or 'an unknown line'}. Name the module that does this in leaf_modules."
            )

    def progress(self) -> tuple[int, int, int]:
        """Return how much has been asked, required and decided, for :meth:`hold_since`."""
        return len(self.guards), len(self._required), len(self.decisions)

    def hold_since(self, progress: tuple[int, int, int]) -> bool:
        """Hold what a call has asked that becomes no node: whether two shapes are equal, say.

        Returns
        -------
        bool
            Whether it has asked anything.
        """
        if progress == self.progress():
            return False
        asked, required, _ = progress
        for guard in self.guards[asked:]:
            self.held.setdefault(guard.expr, where_asked())
        self.decisions += self._required[required:]
        return True

    def evaluate_sym_node(self, sym_node: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer a question about sizes, and hold the answer if the model asks."""
        if not self.is_asked_by_model:
            return super().evaluate_sym_node(sym_node, *args, **kwargs)
        expression = sym_node.expr
        answer = super().evaluate_sym_node(sym_node, *args, **kwargs)
        if expression.free_symbols:
            self.held.setdefault(_condition(expression, answer), where_asked())
        return answer

    def guard_or_defer_runtime_assert(  # type: ignore[override]
        self, orig_expr: Any, msg: str, *args: Any, **kwargs: Any
    ) -> bool:
        """Require a condition, and hold it if the model requires it or has decided on it."""
        before = self.num_deferred_runtime_asserts
        result = super().guard_or_defer_runtime_assert(orig_expr, msg, *args, **kwargs)
        if self.num_deferred_runtime_asserts > before:
            is_decided = msg.startswith("propagate_real_tensors")
            decision = Decision(canonicalize_bool_expr(orig_expr), where_asked(), not is_decided)
            (self.decisions if is_decided or self.is_asked_by_model else self._required).append(decision)
        elif self.is_asked_by_model:
            self.held.setdefault(orig_expr, where_asked())
        return result

    def create_symbol(self, val: Any, source: Source, *args: Any, **kwargs: Any) -> Any:
        """Create a symbol, or return the number."""
        if isinstance(source, TensorPropertySource) and source.prop is TensorProperty.STORAGE_OFFSET:
            return sympy.Integer(val)
        return super().create_symbol(val, source, *args, **kwargs)

    def give_up(self, expression: Any, value: int) -> None:
        """Fix a size, for no reason that the model gives."""
        self._is_giving_up = True
        try:
            self.evaluate_expr(sympy.Eq(expression, value))
        finally:
            self._is_giving_up = False

    def _log_real_tensor_propagation(self, question: Any, answer: Any) -> None:
        """Say nothing: the trace's report has each decision on data."""

    def _evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer a question about sizes; note where that fixes one, or a plain number is asked for."""
        if self._is_giving_up:
            return super()._evaluate_expr(orig_expr, *args, **kwargs)
        unknown = [symbol for symbol in orig_expr.free_symbols if not self.replace(symbol).is_number]
        guards = len(self.guards)
        answer = super()._evaluate_expr(orig_expr, *args, **kwargs)
        fixed = [symbol for symbol in unknown if self.replace(symbol).is_number]
        if unknown and not isinstance(answer, BooleanAtom | bool):
            self._note_fixed(unknown, f"makes a plain number, {answer}, of a size or of data", True)
        elif fixed:
            self._note_fixed(fixed, f"decides on {orig_expr}", False)
        elif self.is_asked_by_model and len(self.guards) > guards and orig_expr.has(*_REMAINDERS):
            self._note_fixed(unknown, f"decides on {orig_expr}", False, is_remainder=True)
        return answer

    def _note_fixed(
        self, symbols: list[sympy.Symbol], what: str, is_number: bool, is_remainder: bool = False
    ) -> None:
        frame: FrameType | None = sys._getframe(1)
        is_count = False
        while frame is not None and not is_model_code(frame.f_code.co_filename):
            is_count = is_count or frame.f_code in _COUNTING
            frame = frame.f_back
        place = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
        reason = Reason(parts_running(frame), what, place, is_number, is_count, is_remainder)
        self.fixed.append((frozenset(symbols), reason))


class _Fakes(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Fake tensors. If data comes along, torch is not to compare the two, which would fix sizes."""

    one_thread: OneThread | None = None
    """Is told of each operator on these tensors, in whichever thread."""
    _is_writing = False
    remembers_views = True

    def _cached_dispatch_impl(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Make each view anew if asked to."""
        if not self.remembers_views and getattr(func, "is_view", False):
            return self._dispatch_impl(func, types, args, kwargs)
        return super()._cached_dispatch_impl(func, types, args, kwargs)

    def _maybe_infer_fake_kernel_from_pytree_out(self, *args: Any) -> None:
        """Compare nothing: whether the graph computes what the model does is seen when it is run."""

    def dispatch(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a call that has been told of."""
        if self.one_thread is not None and not self.one_thread.is_paused:
            self.one_thread.notice()
            assert isinstance(self.shape_env, ModelSizes)
            if self.shape_env.is_asked_by_model and self.one_thread.is_here():
                self.shape_env.require_shown(func)
        return super().dispatch(func, *args, **kwargs)

    def _dispatch_impl(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Write data once: torch writes it again for each operator that the one that writes is made of."""
        with_data = self.propagate_real_tensors
        if self._is_writing:
            self.propagate_real_tensors = False
            try:
                return super()._dispatch_impl(func, types, args, kwargs)
            finally:
                self.propagate_real_tensors = with_data
        self._is_writing = with_data and isinstance(func, OpOverload) and func._schema.is_mutable
        try:
            return super()._dispatch_impl(func, types, args, kwargs)
        finally:
            self._is_writing = False


_REMAINDERS = (functions.Mod, functions.PythonMod)
_COUNTING = (FakeTensor.tolist.__code__, Uncounted.read.__code__)
"""Where it is asked how many numbers there are in a tensor."""


def _writes_or_tells(operator: OpOverload[..., Any]) -> bool:
    return operator._schema.is_mutable or torch.Tag.data_dependent_output in operator.tags


def _condition(expression: Any, answer: Any) -> Any:
    """Return what holds if a question about sizes has this answer."""
    if answer in (sympy.true, True):
        return expression
    return sympy.Not(expression) if answer in (sympy.false, False) else sympy.Eq(expression, answer)


FREE_OPERATIONS, OPERATIONS_PER_CALL = 6000, 30
"""How much arithmetic on symbolic sizes a trace may take before sizes are given up.

Computing with an expression of ten operations takes about as long as recording a call of fixed sizes.
"""

Size = tuple[str, Path, int]
"""A dimension of an input: the argument, the way to the tensor inside, and the dimension."""


class FakeInputs:
    """The arguments of a model on fake tensors, and what a run has found out about their sizes.

    Parameters
    ----------
    arguments
        The real inputs.
    dynamic
        Whether every size of every input is a symbol, or a number.
    batch_only
        Whether only the first dimensions are symbols.
    with_data
        Whether data comes along with the fake tensors, for a model to decide on.

    Attributes
    ----------
    mode : FakeTensorMode
        To be entered for the run.
    values : dict of str to Any
        Name of the argument -> its value, with fake tensors.
    has_data : bool
        Whether data comes along.
    given : dict of Size to int
        The sizes of the real inputs.
    work : SizeWork
        Counts the arithmetic on symbolic sizes.
    given_up : set of Size
        The sizes that are fixed because following them took too much of it.
    symbols : dict of Size to sympy.Symbol
        The symbols that stand for them; empty if not dynamic.
    """

    def __init__(
        self,
        arguments: tuple[Argument, ...],
        *,
        dynamic: bool,
        batch_only: bool = False,
        with_data: bool = False,
    ) -> None:
        # Each size has a symbol of its own until a run shows that two must be equal: two inputs may well
        # agree in a size by chance. Zero and one are no exceptions, so that a branch on them is seen.
        self.shape_env = ModelSizes(
            duck_shape=False,
            specialize_zero_one=False,
            allow_scalar_outputs=True,
            allow_dynamic_output_shape_ops=True,
        )
        with torch._functorch.config.patch(fake_tensor_propagate_real_tensors=with_data):
            self.mode = _Fakes(shape_env=self.shape_env, allow_non_fake_inputs=True)
        # To remember a view, torch computes again how much memory it spans: with symbols, the costliest part.
        self.mode.remembers_views = not dynamic
        self.work = SizeWork()
        self.given_up: set[Size] = set()
        self._calls = 0
        self.given: dict[Size, int] = {
            (argument.name, path, dim): size
            for argument in arguments
            for path, tensor in tensors_inside(argument.value)
            for dim, size in enumerate(tensor.shape)
        }
        self.symbols: dict[Size, sympy.Symbol] = {}
        self.has_data = with_data
        self._batch_only = batch_only
        make = self._symbolic if dynamic else self._fixed
        self.values: dict[str, Any] = _mapped(arguments, make)

    def as_fake(self, value: Any) -> Any:
        """Return a value with fake tensors of its own, as ``node.meta["val"]`` is to hold them.

        Neither later changes of shape in place nor the graph of autograd come along.
        """

        def fake(_: Path, tensor: torch.Tensor) -> torch.Tensor:
            if isinstance(tensor, FakeTensor):
                # As tensor.detach(), which works out symbolic strides again and takes 200 times as long.
                with in_kernel_invocation_manager(self.mode):
                    return FakeTensor(self.mode, tensor.data, tensor.fake_device)
            with self.mode:
                return torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
                )

        with torch._C.DisableTorchFunction():
            return map_tensors(fake, value)

    def after_call(self) -> None:
        """Fix the sizes of images and the like once following them has taken more than it is worth.

        To be called for each call that is recorded. Batch sizes stay symbols, and so do lengths: the second
        dimensions of texts and signals, and sizes that take little part in the arithmetic.
        """
        self._calls += 1
        if self.work.operations <= FREE_OPERATIONS + OPERATIONS_PER_CALL * self._calls or self.given_up:
            return
        free = [size for size in self.symbols if isinstance(self.expression(size), sympy.Symbol)]
        for size in free:
            name, path, dim = size
            can_be_height = dim > 1 or (dim == 1 and (name, path, 3) in self.given)
            if can_be_height and 4 * self.work.of_symbol[self.expression(size)] > self.work.operations:
                self.shape_env.give_up(self.symbols[size], self.given[size])
        self.given_up = {size for size in free if self.expression(size).is_number}

    def reasons(self, needless: Collection[str], *, numbers: bool) -> list[Reason]:
        """Return why the run holds for no other sizes or data.

        Parameters
        ----------
        needless
            The sizes that are fixed though the model takes others, as :func:`name_of_size` writes them.
        numbers
            Whether each number counts that was made of a size; else those of data and of needless sizes do.
        """
        ours = {symbol: name_of_size(size) for size, symbol in self.symbols.items()}
        in_functions = all(reason.candidates for reason in self.remainders)

        def counts(symbols: frozenset[sympy.Symbol], reason: Reason) -> bool:
            if any(ours.get(symbol) in needless for symbol in symbols):
                return True
            if reason.is_remainder:
                return in_functions
            is_of_data = reason.is_count or not symbols <= ours.keys()
            return reason.is_number and (numbers or is_of_data)

        return [reason for symbols, reason in self.shape_env.fixed if counts(symbols, reason)]

    @property
    def remainders(self) -> list[Reason]:
        """Where the model's own Python has decided on the remainder of a size."""
        return [reason for _, reason in self.shape_env.fixed if reason.is_remainder]

    def expression(self, size: Size) -> Any:
        """Return what a size has turned out to be: a symbol, an expression of symbols, or a number."""
        return (
            self.shape_env.replace(self.symbols[size])
            if size in self.symbols
            else sympy.Integer(self.given[size])
        )

    def free_symbols(self) -> dict[sympy.Symbol, int]:
        """Return each symbol that is still free, with the size that it has in the given inputs."""
        return {
            expression: self.given[size]
            for size in self.symbols
            if isinstance(expression := self.expression(size), sympy.Symbol)
        }

    def _is_followed(self, dim: int, size: int) -> bool:
        # The symbols of torch are never zero.
        return size > 0 and not (dim and self._batch_only)

    def _fixed(self, name: str, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        return self.mode.from_tensor(tensor, static_shapes=True)

    def _symbolic(self, name: str, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        fake = self.mode.from_tensor(
            tensor,
            source=ConstantSource(name_of_part(name, path)),
            symbolic_context=StatelessSymbolicContext(
                dynamic_sizes=[
                    DimDynamic.DYNAMIC if self._is_followed(dim, size) else DimDynamic.STATIC
                    for dim, size in enumerate(tensor.shape)
                ]
            ),
        )
        for dim, size in enumerate(tensor.shape):
            if self._is_followed(dim, size):
                self.symbols[name, path, dim] = expression_of(fake.shape[dim])
        return fake


def name_of_size(size: Size) -> str:
    """Write a size the way Python would read it off the input."""
    name, path, dim = size
    return f"{name_of_part(name, path)}.shape[{dim}]"


def resized(
    arguments: tuple[Argument, ...], sizes: Mapping[Size, int], *, from_end: bool = False
) -> dict[str, Any]:
    """Return inputs of other sizes, filled by repeating what the given ones hold.

    Parameters
    ----------
    arguments
        The inputs.
    sizes
        Those sizes that are to change.
    from_end
        Whether to repeat from the end backward: at the front of a text there may be the places of an image.
    """

    def resize(name: str, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        for dim, old in enumerate(tensor.shape):
            new = sizes.get((name, path, dim), old)
            if new != old and old:
                index = torch.arange(new, device=tensor.device)
                repeated = old - 1 - index % old if from_end else index % old
                tensor = tensor.index_select(dim, torch.where(index < old, index, repeated))
            elif new != old:
                tensor = tensor.new_zeros(*tensor.shape[:dim], new, *tensor.shape[dim + 1 :])
        return tensor

    return _mapped(arguments, resize)


def with_padding(arguments: tuple[Argument, ...]) -> dict[str, Any] | None:
    """Return inputs whose masks end in zeros, or ``None`` if there is no mask of ones to change."""
    changed = False

    def pad(name: str, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        nonlocal changed
        is_number = tensor.is_floating_point() or tensor.is_complex()
        if is_number or tensor.dim() != 2 or tensor.shape[-1] < 2 or not bool((tensor == 1).all()):
            return tensor
        changed = True
        padded = tensor.clone()
        padded[-1, -(tensor.shape[-1] // 4 or 1) :] = 0
        return padded

    values = _mapped(arguments, pad)
    return values if changed else None


def _mapped(arguments: tuple[Argument, ...], change: Any) -> dict[str, Any]:
    def of(argument: Argument) -> Any:
        return map_tensors(lambda path, tensor: change(argument.name, path, tensor), argument.value)

    return {argument.name: of(argument) for argument in arguments}
