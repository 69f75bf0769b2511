"""Arithmetic on symbolic sizes: done once, and where torch fails at it.

For each tensor that an operation makes, torch computes how large it is and how it lies in memory, in some
thirty steps; the next layer of a model asks for the same numbers again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from typing import Any

import sympy

from fxlab.base.exchanged import patched_functions
from fxlab.tracing.torch_private import ShapeEnv, SymNode, functions

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


_REMAINDERS = (functions.Mod, functions.PythonMod)


def padded_size(total: Any) -> Any:
    """Return a sum as a multiple of a window, if it adds to a number its distance to such a multiple."""
    for term in total.args if isinstance(total, sympy.Add) else ():
        if isinstance(term, _REMAINDERS) and isinstance(term.args[1], sympy.Integer):
            dividend, window = term.args
            size = total - term
            if _is_multiple(_without_remainders(dividend, window) + size, window):
                return window * functions.FloorDiv(size + window - 1, window)
    return total


def _without_remainders(dividend: Any, window: Any) -> Any:
    """Return a number that leaves the same remainder as another, without the remainders in its sum."""
    terms = []
    for term in sympy.Add.make_args(dividend):
        factor, rest = term.as_coeff_Mul()
        is_remainder = isinstance(rest, _REMAINDERS) and rest.args[1] == window
        terms.append(factor * rest.args[0] if is_remainder else term)
    return sympy.Add(*terms)


def _is_multiple(total: Any, window: Any) -> bool:
    return all(factor % window == 0 for factor in total.expand().as_coefficients_dict().values())
