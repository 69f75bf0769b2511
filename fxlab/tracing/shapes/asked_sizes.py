"""Sizes as symbols, and the questions about them, by the model or by torch; their arithmetic, done once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import FrameType
from typing import Any

import sympy
import torch
from sympy.logic.boolalg import BooleanAtom

from fxlab.base.exchanged import patched_functions
from fxlab.base.torch_private import OpOverload
from fxlab.tracing.model_code.running_code import Reason, is_model_code, parts_running, where_asked
from fxlab.tracing.report import Obstacle
from fxlab.tracing.shapes.symbolic_sizes import condition_text
from fxlab.tracing.shapes.uncounted_lists import ListOfUnknownLength
from fxlab.tracing.torch_private import (
    FakeTensor,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    Source,
    SymNode,
    TensorProperty,
    TensorPropertySource,
    canonicalize_bool_expr,
    functions,
)

_REMAINDERS = (functions.Mod, functions.PythonMod)
_COUNTING = tuple(getattr(read, "__code__", None) for read in (FakeTensor.tolist, ListOfUnknownLength.read))
"""Where it is asked how many numbers there are in a tensor."""


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
    """Knows the symbols of sizes, and the model's own questions about them and about data.

    Questions of an operator need not be held: the operator is in the graph, and asks again. The offset of a
    tensor in its memory has no symbol: a model does not depend on it.

    ``is_asked_by_model``: whether the model's own code is running, and nothing that becomes a node. ``held``:
    the answers about sizes that the model got, or its requirements of them -> ``file:line``. ``decisions``:
    its decisions on data, or its requirements of data. ``names``: the names of sizes, for people.
    ``unanswered``: the error that the first question of the model has ended with, as the answer depends on
    data. ``work``: counts the costly arithmetic on symbols.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.work = SizeWork()
        self.names: dict[sympy.Symbol, str] = {}
        self._is_giving_up = False
        self.unanswered: Exception | None = None
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
        if not self.is_asked_by_model or not isinstance(operator, OpOverload):
            return
        if operator._schema.is_mutable or torch.Tag.data_dependent_output in operator.tags:
            raise Obstacle.HIDDEN_OPERATOR(called=operator, where=where_asked() or "an unknown line")

    def progress(self) -> tuple[int, int, int]:
        """Return how much has been asked, required and decided, for :meth:`hold_since`."""
        return len(self.guards), len(self._required), len(self.decisions)

    def asked_since(self, progress: tuple[int, int, int]) -> list[Any]:
        """Return the conditions that a call has asked for."""
        return [guard.expr for guard in self.guards[progress[0] :]]

    def hold_since(self, progress: tuple[int, int, int]) -> bool:
        """Hold the questions of a call that becomes no node: whether two shapes are equal, say.

        Returns whether it has asked anything.
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
        try:
            answer = super().evaluate_sym_node(sym_node, *args, **kwargs)
        except GuardOnDataDependentSymNode as error:
            self.unanswered = self.unanswered or error  # as the model may catch it
            raise
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

    def __deepcopy__(self, memo: object) -> ModelSizes:
        """Return these: a size that a model copies is the same size."""
        return self

    def give_up(self, expression: Any, value: int) -> None:
        """Specialize a size that the model does not constrain, so that tracing can go on."""
        self._is_giving_up = True
        try:
            self.evaluate_expr(sympy.Eq(expression, value))
        finally:
            self._is_giving_up = False

    def _get_user_frame(self) -> None:
        """Return no frame: traces note where sizes are asked for, and a search imports torch's exporter."""

    def _log_real_tensor_propagation(self, question: Any, answer: Any) -> None:
        """Say nothing: the trace's report has each decision on data."""

    def _evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer a question about sizes; note where that fixes one, or a plain number is asked for."""
        if self._is_giving_up:
            return super()._evaluate_expr(orig_expr, *args, **kwargs)
        self.work.add_question(orig_expr)
        unknown = [symbol for symbol in orig_expr.free_symbols if not self.replace(symbol).is_number]
        guards = len(self.guards)
        answer = super()._evaluate_expr(orig_expr, *args, **kwargs)
        fixed = [symbol for symbol in unknown if self.replace(symbol).is_number]

        def words() -> str:
            return f"decides on {condition_text(orig_expr, self.names)}"

        if unknown and not isinstance(answer, BooleanAtom | bool):
            self._note_fixed(unknown, f"makes a plain number, {answer}, of a size or of data", True)
        elif fixed:
            self._note_fixed(fixed, words(), False)
        elif self.is_asked_by_model and len(self.guards) > guards and orig_expr.has(*_REMAINDERS):
            self._note_fixed(unknown, words(), False, is_remainder=True)
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
        is_of_torch = not self.is_asked_by_model
        reason = Reason(parts_running(frame), what, place, is_number, is_count, is_remainder, is_of_torch)
        self.fixed.append((frozenset(symbols), reason))


def _condition(expression: Any, answer: Any) -> Any:
    """Return the condition that holds if a question about sizes has this answer."""
    if not isinstance(answer, BooleanAtom | bool):  # the numbers 1 and 0 are equal to True and False
        return sympy.Eq(expression, answer)
    return expression if answer else sympy.Not(expression)


_REMEMBERED = (
    "add", "sub", "mul", "eq", "ne", "ge", "gt", "le", "lt", "sym_max", "sym_min", "maybe_as_int", "wrap_int",
)  # fmt: skip
"""The methods of torch's symbolic numbers that are asked most, of those that tell the environment nothing."""

LARGE_EXPRESSION = 100
"""Operations of an expression from which on computing with it is counted.

The height behind seven strided layers has 77 operations, and following it in a convolutional network takes
less time than ``torch.export``. Windows nested in windows have 126 to 425, and their time grows faster than
their number of operations.
"""
LARGE_QUESTION, QUESTION_WEIGHT = 40, 4
"""Operations of a question from which on it is counted, and how much more each of them costs.

Torch simplifies a question to see whether the answer is known. A layer of windows asks questions of 700
operations in all; a network of convolutions and attention, of 200 in all its layers.
"""


class SizeWork:
    """The amount of costly symbolic arithmetic, counted so that it is the same on every machine.

    ``operations``: the operations in all large expressions that were computed with. ``of_symbol``: the same
    for each symbol: those in the expressions that contain it.
    """

    def __init__(self) -> None:
        self.operations = 0
        self.of_symbol: Counter[sympy.Symbol] = Counter()
        self._known: dict[Any, tuple[int, Any]] = {}

    def add(self, number: Any) -> None:
        """Count a number that is computed with."""
        if isinstance(number, SymNode):
            self._add(number._expr, LARGE_EXPRESSION, 1)

    def add_question(self, question: Any) -> None:
        """Count a question that torch has to answer by simplifying it, which takes longer."""
        self._add(question, LARGE_QUESTION, QUESTION_WEIGHT)

    def _add(self, expression: Any, large: int, weight: int) -> None:
        if expression not in self._known:
            self._known[expression] = int(expression.count_ops()), expression.free_symbols
        operations, symbols = self._known[expression]
        if operations >= large:
            self.operations += weight * operations
            for symbol in symbols:
                self.of_symbol[symbol] += weight * operations


@contextmanager
def arithmetic_remembered(sizes: ShapeEnv, work: SizeWork | None = None) -> Iterator[None]:
    """Remember results computed with the symbols of an environment, until it learns more about them.

    ``work``: counts the computations that are not remembered.
    """
    if not can_remember(sizes):
        yield
        return
    known: dict[Any, Any] = {}
    version = sizes._version_counter

    def remembered(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
        def remembering(number: SymNode, *others: Any) -> Any:
            nonlocal version
            if number.shape_env is not sizes:
                return compute(number, *others)
            if version != sizes._version_counter:
                version = sizes._version_counter
                known.clear()
            key = name, identity(number), *map(identity, others)
            try:
                return known[key]
            except KeyError:
                if work is not None:
                    for operand in (number, *others):
                        work.add(operand)
                answer = compute(number, *others)
                if name == "add" and isinstance(answer, SymNode):
                    answer._expr = padded_size(answer._expr)
                known[key] = answer
                return answer

        return remembering

    makes = {name: partial(remembered, name) for name in _REMEMBERED}
    # They ask of which environment a number is, so that other threads do not mind.
    with patched_functions(SymNode, {**makes, "mod": _remainder}, for_all=True):
        yield


def can_remember(sizes: ShapeEnv) -> bool:
    """Tell whether this torch has the parts that are read here; nothing is remembered otherwise."""
    parts = getattr(SymNode.__init__, "__code__", _remainder.__code__).co_names
    return (
        hasattr(sizes, "_version_counter")
        and all(hasattr(SymNode, name) for name in (*_REMEMBERED, "mod"))
        and {"_expr", "pytype", "_hint", "_optimized_summation"}.issubset(parts)
    )


def _remainder(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Do without torch where it raises: a whole number modulo a half, a quarter and so on."""

    def remainder(number: SymNode, other: SymNode) -> Any:
        is_whole = isinstance(number._expr, functions.ToFloat) and number._expr.args[0].is_integer
        if is_whole and isinstance(other.constant, float) and Fraction(other.constant).numerator == 1:
            return number.wrap_float(0.0)
        return compute(number, other)

    return remainder


def identity(number: Any) -> Any:
    """Return every property of a symbolic number that a result depends on."""
    if not isinstance(number, SymNode):
        return number
    return number._expr, number.pytype, number._hint is None, number._optimized_summation


_BY_REMAINDER = (functions.Mod, functions.PythonMod)


def padded_size(total: Any) -> Any:
    """Return a sum as a multiple of a window, if it adds to a number its distance to such a multiple."""
    for term in total.args if isinstance(total, sympy.Add) else ():
        if isinstance(term, _BY_REMAINDER) and isinstance(term.args[1], sympy.Integer):
            dividend, window = term.args
            size = total - term
            sizes = (_without_remainders(dividend, window) + size).expand().as_coefficients_dict()
            if all(factor % window == 0 for factor in sizes.values()):
                return window * functions.FloorDiv(size + window - 1, window)
    return total


def _without_remainders(dividend: Any, window: Any) -> Any:
    """Return a number that leaves the same remainder as another, without the remainders in its sum."""
    terms = []
    for term in sympy.Add.make_args(dividend):
        factor, rest = term.as_coeff_Mul()
        is_remainder = isinstance(rest, _BY_REMAINDER) and rest.args[1] == window
        terms.append(factor * rest.args[0] if is_remainder else term)
    return sympy.Add(*terms)
