"""Conditions on sizes as a reader writes them, and texts of sizes that the model's Python makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from fxlab.tracing.torch_private import SymNode
from fxlab.values.nested import texts_inside

_FUNCTIONS = {
    "TruncToInt": "int",
    "CeilToInt": "ceil",
    "FloorToInt": "floor",
    "RoundToInt": "round",
    "Max": "max",
    "Min": "min",
}
"""Python's names for the functions that sympy and torch have for sizes."""
_OPERATORS = {
    "Mod": "%",
    "PythonMod": "%",
    "FloorDiv": "//",
    "IntTrueDiv": "/",
    "FloatTrueDiv": "/",
    "And": "and",
    "Or": "or",
}


def condition_text(condition: Any, names: Mapping[sympy.Symbol, str] | None = None) -> str:
    """Return a condition on sizes, or a size, as text.

    ``condition``: a sympy expression, in which torch's own functions of sizes may stand. ``names``: how
    symbols are to be called, where they are not to be called as sympy calls them.

    Examples
    --------
    >>> length = sympy.Symbol("s0")
    >>> condition_text(sympy.Eq(length, 4), {length: "x.shape[1]"})
    'x.shape[1] == 4'
    """
    renamed = condition.xreplace({symbol: sympy.Symbol(name) for symbol, name in (names or {}).items()})
    return str(_ConditionPrinter({"full_prec": False}).doprint(renamed))


class _ConditionPrinter(StrPrinter):  # type: ignore[misc]
    """Writes operators where sympy and torch write calls: ``a == b``, ``a % b``, ``int(a)``."""

    printmethod = "_condition_text"  # torch's functions have a text of their own for sympy's printer

    def _print_Relational(self, expression: Any) -> str:  # noqa: N802
        return self._joined(expression, expression.rel_op, PRECEDENCE["Relational"])

    def _print_Function(self, expression: Any) -> str:  # noqa: N802
        name = expression.func.__name__
        if operator := _OPERATORS.get(name):
            return self._joined(expression, operator, PRECEDENCE.get(name, PRECEDENCE["Func"]))
        name = _FUNCTIONS.get(name, name.removeprefix("OpaqueUnaryFn_"))
        return f"{name}({self.stringify(expression.args, ', ')})"

    # sympy asks for these before it asks for a function.
    _print_Mod = _print_And = _print_Or = _print_Max = _print_Min = _print_Function  # noqa: N815

    def _print_Not(self, expression: Any) -> str:  # noqa: N802
        return f"not ({self._print(expression.args[0])})"

    def _joined(self, expression: Any, operator: str, level: int) -> str:
        parts = (self.parenthesize(part, level, strict=not part.is_Boolean) for part in expression.args)
        return f" {operator} ".join(parts)


_MARK = "\u2063"
"""The end of every text of a symbolic size; it is invisible where one is shown."""


@contextmanager
def size_texts_marked(names: Mapping[sympy.Symbol, str]) -> Iterator[None]:
    """Mark texts of symbolic sizes, and write the sizes by name in them: ``f"{len(x)} rows"``."""
    node: Any = SymNode
    before = node.str
    node.str = lambda number: f"{condition_text(number.expr, names)}{_MARK}"
    try:
        yield
    finally:
        node.str = before


def size_text_in(value: Any) -> str:
    """Return the first text of a symbolic size that is inside a value, or a key in it; ``""`` if none is."""
    return next((without_marks(text) for text in texts_inside(value) if _MARK in text), "")


def without_marks(text: str) -> str:
    """Return a text as it is shown."""
    return text.replace(_MARK, "")
