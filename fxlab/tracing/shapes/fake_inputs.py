"""Fake tensors in place of a trace's inputs: shapes and dtypes without data, with sizes that are symbols."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch.fx import Graph

from fxlab.tracing.bound_inputs import Argument, Size, mapped_tensors, name_of_size, resized
from fxlab.tracing.model_code.running_code import Reason
from fxlab.tracing.report import Obstacle, TraceError
from fxlab.tracing.shapes.asked_sizes import ModelSizes
from fxlab.tracing.shapes.fake_mode import FakeMode
from fxlab.tracing.shapes.symbolic_sizes import expression_of, holds, put_hints
from fxlab.tracing.torch_private import (
    ConstantSource,
    DimDynamic,
    FakeTensor,
    StatelessSymbolicContext,
    config,
)
from fxlab.values.nested import Path, map_tensors, name_of_part, tensors_inside

FREE_OPERATIONS, OPERATIONS_PER_CALL = 1500, 10
"""The costly arithmetic on symbolic sizes that a trace may take before sizes are given up."""
_MULTIPLES = 2, 3, 4
"""Factors of sizes to see whether a condition holds for many, as a condition on remainders does."""


class StandInError(TraceError):
    """A given size of one that the recorded graph does not hold for.

    ``sizes``: the sizes that have to stay ones, or that others may stand in for.
    """

    code = "size-of-one"

    def __init__(self, sizes: set[Size]) -> None:
        super().__init__(f"A size of one is decided on: {', '.join(sorted(map(name_of_size, sizes)))}")
        self.sizes = sizes


class FakeInputs:
    """The arguments of a model on fake tensors, and the findings of a run about their sizes.

    ``dynamic``: whether every size of every input is a symbol, or a number. ``with_data``: whether data comes
    along with the fake tensors, for a model to decide on. ``stand_ins``: the sizes to record on in place of
    given sizes of one, which torch treats in a special way. ``keeps_ones``: whether torch may decide that a
    size of one is one. ``follows_heights``: whether sizes of images and the like are followed, where cheap.

    ``mode``: to be entered for the run. ``values``: name of the argument -> its value, with fake tensors.
    ``has_data``: whether data comes along. ``given``: the sizes of the real inputs. ``recorded``: the sizes
    that the run is recorded on. ``work``: counts the arithmetic on symbolic sizes. ``symbols``: the symbols
    that stand for them; empty if not dynamic. ``given_up``: the sizes that were fixed as following them takes
    more than it is worth. ``narrow``: those of them of which the model takes few others: it ties a value
    computed from them to a number.
    """

    def __init__(
        self,
        arguments: tuple[Argument, ...],
        *,
        dynamic: bool,
        with_data: bool = False,
        stand_ins: Mapping[Size, int] | None = None,
        keeps_ones: bool = True,
        own_storages: bool = False,
        follows_heights: bool = True,
    ) -> None:
        # Each size has a symbol of its own until a run shows that two must be equal: two inputs may well
        # agree in a size by chance. Zero and one are no exceptions, so that a branch on them is seen.
        self.shape_env = ModelSizes(
            duck_shape=False,
            specialize_zero_one=False,
            allow_scalar_outputs=True,
            allow_dynamic_output_shape_ops=True,
        )
        # The mode reads this setting once, when it is made.
        with config.patch(fake_tensor_propagate_real_tensors=with_data):
            self.mode = FakeMode(shape_env=self.shape_env, allow_non_fake_inputs=True)
        self.mode.shares_storages = not own_storages
        self.work = self.shape_env.work
        self.given_up: set[Size] = set()
        self.narrow: set[Size] = set()
        self._guards = 0
        self._calls = 0
        self.given: dict[Size, int] = {
            (argument.name, path, dim): size
            for argument in arguments
            for path, tensor in tensors_inside(argument.value)
            for dim, size in enumerate(tensor.shape)
        }
        self.recorded: dict[Size, int] = self.given | dict(stand_ins or {})
        self.symbols: dict[Size, sympy.Symbol] = {}
        self.has_data = with_data
        self._keeps_ones, self._stand_ins, self._asked = keeps_ones, {*(stand_ins or ())}, (0, 0)
        make = self._symbolic if dynamic else self._fixed
        values = resized(arguments, stand_ins or {})
        arguments = tuple(replace(argument, value=values[argument.name]) for argument in arguments)
        self.values: dict[str, Any] = mapped_tensors(arguments, make)
        if not follows_heights:
            self._give_up(lambda size: size[-1] > 1)

    def as_fake(self, value: Any) -> Any:
        """Return a value with fake tensors of its own, as ``node.meta["val"]`` is to hold them.

        Neither later changes of shape in place nor the graph of autograd come along.
        """

        def fake(_: Path, tensor: torch.Tensor) -> torch.Tensor:
            if tensor.is_nested:
                raise Obstacle.NESTED_TENSOR()
            if isinstance(tensor, FakeTensor):
                # As tensor.detach(), which works out symbolic strides again and takes 200 times as long.
                return self.mode.of(tensor, tensor.fake_device)
            if tensor.layout is not torch.strided:
                return self.mode.from_tensor(tensor.detach(), static_shapes=True)
            with self.mode:
                return torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
                )

        with torch._C.DisableTorchFunction():
            return map_tensors(fake, value)

    def after_call(self) -> None:
        """Fix the sizes of images and the like once following them has taken more than it is worth.

        That is much arithmetic, or some for sizes of which the model takes few others: those that give as
        many patches. To be called for each call that is recorded. Batch sizes stay symbols, and so do
        lengths: the second dimensions of texts and signals, and sizes that are little computed with.
        """
        self._calls += 1
        self.require_given()
        work = self.work.operations
        if self.given_up or not work:
            return
        if work > FREE_OPERATIONS + OPERATIONS_PER_CALL * self._calls:
            self._give_up(lambda size: 4 * self.work.of_symbol[self.expression(size)] > work)
        elif ties := self._new_ties():
            self.narrow = self._give_up(lambda size: any(self._takes_few_others(size, tie) for tie in ties))

    def _give_up(self, is_chosen: Callable[[Size], bool]) -> set[Size]:
        """Fix those heights, widths and the like that are chosen, and return them."""
        free = [size for size in self.symbols if isinstance(self.expression(size), sympy.Symbol)]
        heights = [s for s in free if s[2] > 1 or (s[2] == 1 and (*s[:2], 3) in self.given)]
        chosen = [size for size in heights if is_chosen(size)]
        for size in chosen:
            self.shape_env.give_up(self.symbols[size], self.given[size])
        self.given_up = {size for size in free if self.expression(size).is_number}
        return {*chosen}

    def _new_ties(self) -> list[sympy.Eq]:
        """Return the conditions, since this was asked last, by which torch ties something to a number."""
        new, self._guards = self.shape_env.guards[self._guards :], len(self.shape_env.guards)
        # A question of the model itself is a branch: it takes other sizes on another one.
        asked = (guard.expr for guard in new if guard.expr not in self.shape_env.held)
        return [tie for tie in asked if isinstance(tie, sympy.Eq) and tie.rhs.is_number]

    def _takes_few_others(self, size: Size, tie: sympy.Eq) -> bool:
        """Tell whether a condition holds for few values of a size."""
        symbol, recorded = self.symbols[size], {s: self.recorded[at] for at, s in self.symbols.items()}
        return symbol in tie.free_symbols and not any(
            holds(tie, recorded | {symbol: times * recorded[symbol]}) for times in _MULTIPLES
        )

    def require_given(self) -> None:
        """Raise :class:`StandInError` if the recording so far does not hold for given sizes of one.

        That is the case if the model decides otherwise on the stand-in of one. Where ones are not to be kept
        and torch has decided on one, the error names those that another size may stand in for.
        """
        fixed, held = self.shape_env.fixed, self.shape_env.held
        if (self._keeps_ones and not self._stand_ins) or (len(fixed), len(held)) == self._asked:
            return
        before, self._asked = self._asked, (len(fixed), len(held))
        if not self._stand_ins:
            self._require_no_ones(fixed[before[0] :])
            return
        values = self._given_by_symbol()
        decided = {size for size in self._stand_ins if self.expression(size).is_number}
        for condition in [*held][before[1] :]:
            if not holds(condition, values):
                symbols = {found for s in condition.free_symbols for found in self._free_symbols_of(s)}
                decided |= {
                    size for size in self._stand_ins if symbols & self._free_symbols_of(self.symbols[size])
                }
        if decided:
            raise StandInError(decided)

    def _require_no_ones(self, fixed: list[tuple[frozenset[sympy.Symbol], Reason]]) -> None:
        ones = {symbol: size for size, symbol in self.symbols.items() if self.given[size] == 1}
        by_torch = {s for symbols, reason in fixed if reason.is_of_torch for s in symbols & ones.keys()}
        if by_torch:
            by_model = {s for symbols, why in self.shape_env.fixed if not why.is_of_torch for s in symbols}
            raise StandInError({size for symbol, size in ones.items() if symbol not in by_model})

    def _free_symbols_of(self, symbol: sympy.Symbol) -> set[sympy.Symbol]:
        return set(self.shape_env.replace(symbol).free_symbols)

    def _given_by_symbol(self) -> dict[sympy.Symbol, int]:
        return {symbol: self.given[size] for size, symbol in self.symbols.items()}

    def put_given(self, graph: Graph) -> None:
        """Write the given sizes into the values of a recorded graph where other sizes stood in for them."""
        if not self._stand_ins:
            return
        numbers = {symbol: sympy.Integer(size) for symbol, size in self._given_by_symbol().items()}
        # Hints that are worked out later come from here.
        self.shape_env.backed_var_to_val.update(numbers)
        for node in graph.nodes:
            put_hints(node.meta.get("val"), numbers)

    def reasons(self, needless: Collection[str], *, numbers: bool) -> list[Reason]:
        """Return why the run holds for no other sizes or data.

        ``needless``: the sizes that are fixed though the model takes others, as :func:`name_of_size` writes
        them. ``numbers``: whether each number counts that was made of a size; else those of data and of
        needless sizes do.
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

        def hides(symbols: frozenset[sympy.Symbol], reason: Reason) -> bool:
            # A decision on data alone is rather checked by the graph.
            is_of_sizes = numbers and reason.is_number and symbols <= ours.keys()
            return reason.is_count or is_of_sizes or any(ours.get(symbol) in needless for symbol in symbols)

        return [
            replace(reason, hides_modules=hides(symbols, reason))
            for symbols, reason in self.shape_env.fixed
            if counts(symbols, reason)
        ]

    @property
    def remainders(self) -> list[Reason]:
        """Remainders of sizes that the model's own Python has decided on."""
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
        """Return the expression found for a size: a symbol, an expression of symbols, or a number."""
        return (
            self.shape_env.replace(self.symbols[size])
            if size in self.symbols
            else sympy.Integer(self.given[size])
        )

    def free_symbols(self) -> dict[sympy.Symbol, int]:
        """Return each symbol that is still free, with the size that the run was recorded on."""
        return {
            expression: self.recorded[size]
            for size in self.symbols
            if isinstance(expression := self.expression(size), sympy.Symbol)
        }

    def _fixed(self, name: str, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        return self.mode.from_tensor(tensor, static_shapes=True)

    def _symbolic(self, name: str, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        fake = self.mode.from_tensor(
            tensor,
            source=ConstantSource(name_of_part(name, path)),
            symbolic_context=StatelessSymbolicContext(
                # The symbols of torch are never zero.
                dynamic_sizes=[DimDynamic.DYNAMIC if size else DimDynamic.STATIC for size in tensor.shape]
            ),
        )
        for dim, size in enumerate(tensor.shape):
            if size:
                symbol = self.symbols[name, path, dim] = expression_of(fake.shape[dim])
                self.shape_env.names[symbol] = name_of_size((name, path, dim))
        return fake
