"""Fake tensors in place of inputs: shapes and dtypes without data, with sizes that are symbols."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
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
    uninteresting_files,
)
from torch.utils._sympy import functions

from fxlab.nested import Path, map_tensors, name_of_part, tensors_inside
from fxlab.tracing import size_builtins
from fxlab.tracing.arguments import Argument
from fxlab.tracing.parts import Reason, parts_running
from fxlab.tracing.sizes import expression_of
from fxlab.tracing.source_lines import is_model_code, is_tracing, where_called
from fxlab.tracing.uncounted import Uncounted


@dataclass(frozen=True)
class Decision:
    """A condition on numbers that were read out of tensors, which held when the model was recorded."""

    condition: Any
    """A sympy expression."""
    where: str
    """``file:line`` of the model's code."""


class _ModelSizes(ShapeEnv):
    """Knows the symbols of sizes, and which line of the model asks about them.

    Where in its memory a tensor begins has no symbol: a model does not depend on it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.fixed: list[tuple[frozenset[sympy.Symbol], Reason]] = []

    def create_symbol(self, val: Any, source: Source, *args: Any, **kwargs: Any) -> Any:
        """Create a symbol, or return the number."""
        if isinstance(source, TensorPropertySource) and source.prop is TensorProperty.STORAGE_OFFSET:
            return sympy.Integer(val)
        return super().create_symbol(val, source, *args, **kwargs)

    def _get_user_frame(self) -> FrameType | None:
        """Return what asks about a size; where that is done for the model, the line of the model."""
        frame = _first_of_others(sys._getframe(1))
        if frame is None or frame.f_code.co_filename != size_builtins.__file__:
            return frame
        while frame is not None and is_tracing(frame.f_code.co_filename):
            frame = _first_of_others(frame.f_back)
        return frame

    def _log_real_tensor_propagation(self, question: Any, answer: Any) -> None:
        """Say nothing: the trace's report has each decision on data."""

    def _evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer a question about sizes; note where that fixes one, or a plain number is asked for."""
        unknown = [symbol for symbol in orig_expr.free_symbols if not self.replace(symbol).is_number]
        guards = len(self.guards)
        answer = super()._evaluate_expr(orig_expr, *args, **kwargs)
        fixed = [symbol for symbol in unknown if self.replace(symbol).is_number]
        if unknown and not isinstance(answer, BooleanAtom | bool):
            self._note_fixed(unknown, f"makes a plain number, {answer}, of a size or of data", True)
        elif fixed:
            self._note_fixed(fixed, f"decides on {orig_expr}", False)
        elif len(self.guards) > guards and orig_expr.has(functions.Mod, functions.PythonMod):
            frame = self._get_user_frame()
            if frame is not None and is_model_code(frame.f_code.co_filename):
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

    _is_writing = False

    def _maybe_infer_fake_kernel_from_pytree_out(self, *args: Any) -> None:
        """Compare nothing: whether the graph computes what the model does is seen when it is run."""

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


_COUNTING = (FakeTensor.tolist.__code__, Uncounted.read.__code__)
"""Where it is asked how many numbers there are in a tensor."""


def _first_of_others(frame: FrameType | None) -> FrameType | None:
    while frame is not None and (
        frame.f_code.co_filename in uninteresting_files() or frame.f_code.co_filename == __file__
    ):
        frame = frame.f_back
    return frame


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
        self.shape_env = _ModelSizes(
            duck_shape=False,
            specialize_zero_one=False,
            allow_scalar_outputs=True,
            allow_dynamic_output_shape_ops=True,
        )
        with torch._functorch.config.patch(fake_tensor_propagate_real_tensors=with_data):
            self.mode = _Fakes(shape_env=self.shape_env, allow_non_fake_inputs=True)
        self._asserts_seen = 0
        self._decided: set[int] = set()
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

    def new_decisions(self) -> list[Decision]:
        """Return what the model has decided on data since the last time that this was asked."""
        if self.shape_env.num_deferred_runtime_asserts == self._asserts_seen:
            return []
        self._asserts_seen = self.shape_env.num_deferred_runtime_asserts
        asserts = chain.from_iterable(self.shape_env.deferred_runtime_asserts.values())
        new = [
            a for a in asserts if a.msg.startswith("propagate_real_tensors") and id(a) not in self._decided
        ]
        self._decided.update(map(id, new))
        return [Decision(a.expr, where_called(a.stack)) for a in new]

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
