"""Fake tensors in place of inputs: shapes and dtypes without data, with sizes that are symbols."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sympy
import torch
import torch._functorch.config
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

from fxlab.tracing.bound_inputs import Argument, mapped_tensors
from fxlab.tracing.model_code.running_calls import Reason
from fxlab.tracing.shapes.asked_sizes import ModelSizes
from fxlab.tracing.shapes.fake_mode import FakeMode
from fxlab.tracing.shapes.symbolic_sizes import expression_of
from fxlab.values.nested import Path, map_tensors, name_of_part, tensors_inside

FREE_OPERATIONS, OPERATIONS_PER_CALL = 1500, 10
"""The costly arithmetic on symbolic sizes that a trace may take before sizes are given up."""

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
            self.mode = FakeMode(shape_env=self.shape_env, allow_non_fake_inputs=True)
        # To remember a view, torch computes again how much memory it spans: with symbols, the costliest part.
        self.mode.remembers_views = not dynamic
        self.work = self.shape_env.work
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
        self.values: dict[str, Any] = mapped_tensors(arguments, make)

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

    @property
    def branches(self) -> list[tuple[Any, str]]:
        """The conditions on sizes that the model itself was told, and where."""
        known = set(self.symbols.values())
        given_up = {self.symbols[size]: self.given[size] for size in self.given_up}
        held = self.shape_env.held.items()
        return [
            (condition, where)
            for condition, where in held
            if condition.free_symbols <= known and condition.xreplace(given_up) != sympy.true
        ]

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
