"""Sizes that follow the inputs: symbols as nodes that compute them, and conditions as one reads them."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter
from torch.fx import Graph, Node, Proxy

from fxlab.tracing.torch_private import (
    PythonReferenceAnalysis,
    ShapeEnv,
    SymNode,
    functions,
    run_sympy_handler,
)
from fxlab.values.nested import texts_inside

SymbolicNumber = torch.SymInt | torch.SymFloat | torch.SymBool


def expression_of(number: Any) -> Any:
    """Return the sympy expression of a symbolic or plain number, as far as it is known by now."""
    return number.node.expr if isinstance(number, SymbolicNumber) else sympy.sympify(number)


def unknown_size(env: ShapeEnv, value: int | None = None) -> torch.SymInt:
    """Return a symbol for a number that data decides. ``value``: what it is in this run, if that is known."""
    with env.ignore_fresh_unbacked_symbols():
        number = env.create_unbacked_symint()
    if value is not None:
        env.set_real_tensor_prop_unbacked_vals(expression_of(number), value)
    return number


def holds(condition: Any, values: Mapping[sympy.Symbol, int]) -> bool:
    """Tell whether a condition on symbols holds for their values, as far as these decide on it."""
    try:
        try:
            return bool(_value(condition, dict(values)))
        except (
            KeyError,
            AttributeError,
            NotImplementedError,
        ):  # an unknown size, or a function of sympy alone
            return condition.subs(values) not in (sympy.false, False)
    except (ZeroDivisionError, AssertionError):  # a remainder by zero, or one of a negative number
        return False


def _value(expression: Any, known: dict[Any, Any]) -> Any:
    """Return the number that an expression comes to. Python is many times faster at this than sympy."""
    if isinstance(expression, sympy.Symbol):
        return known[expression]
    if expression not in known:
        parts = [_value(part, known) for part in expression.args]
        known[expression] = _computed(expression, parts)
    return known[expression]


def excludes_one_only(condition: Any) -> bool:
    """Tell whether a condition is one on a single symbol that holds for all but a one (and zero)."""
    if len(condition.free_symbols) != 1:
        return False
    (symbol,) = condition.free_symbols
    return all(holds(condition, {symbol: size}) for size in range(2, 65))


def put_hints(value: Any, numbers: Mapping[sympy.Symbol, int]) -> None:
    """Give the sizes inside a traced value the hints for other numbers than they were made with.

    ``value``: fake tensors and symbolic numbers, alone or in lists, tuples and mappings. ``numbers``: the
    number that each symbol stands for.
    """
    if isinstance(value, SymbolicNumber):
        node = value.node
        if node.has_hint() and (known := node.expr.xreplace(numbers)).is_number:
            # Torch has no public way to change a hint.
            node._hint = node.pytype(known)
    elif isinstance(value, torch.Tensor):
        put_hints((*value.shape, *value.stride()), numbers)
    elif isinstance(value, list | tuple | Mapping):
        for part in value.values() if isinstance(value, Mapping) else value:
            put_hints(part, numbers)


class SizeNodes:
    """Makes nodes for symbolic numbers, each of them once.

    ``graph``: where the nodes go, at its insert point. ``source_of``: symbol -> the node that gives it, or
    ``KeyError``. ``describe``: called with each node that computes something.
    """

    def __init__(
        self, graph: Graph, source_of: Callable[[sympy.Symbol], Node], describe: Callable[[Node], None]
    ) -> None:
        self._describe = describe
        self._tracer = torch.fx.proxy.GraphAppendingTracer(graph)
        self._source_of = source_of
        self._made: dict[Any, Any] = {}

    def value(self, number: SymbolicNumber) -> Any:
        """Return the node that computes a number, or the number itself if it turned out to be fixed."""
        result = self.of_expression(expression_of(number))
        if not isinstance(result, Proxy):
            return result
        result.node.meta.setdefault("val", number)
        return result.node

    def of_expression(self, expression: Any) -> Any:
        """Return a proxy that computes a sympy expression, or a plain number."""
        if expression not in self._made:
            self._made[expression] = self._make(expression)
        return self._made[expression]

    def _make(self, expression: Any) -> Any:
        if isinstance(expression, sympy.Symbol):
            return Proxy(self._source_of(expression), self._tracer)
        made = _computed(expression, [self.of_expression(part) for part in expression.args])
        if isinstance(made, Proxy):
            self._describe(made.node)
        return made


def _computed(expression: Any, parts: list[Any]) -> Any:
    """Return what an expression comes to: a number if its parts are numbers, else a proxy."""
    if not parts:
        return _plain(expression)
    kind = type(expression)
    if (function := _FUNCTIONS.get(kind)) is not None:
        return _called(function, *parts)
    if (function := _OF_ANY_NUMBER.get(kind)) is not None:
        return functools.reduce(functools.partial(_called, function), parts)
    if kind is sympy.Add:
        # Sizes first, so that it reads `size + 1` and not `1 + size`.
        return functools.reduce(operator.add, sorted(parts, key=lambda part: not isinstance(part, Proxy)))
    return run_sympy_handler(PythonReferenceAnalysis, parts, expression)  # type: ignore[no-untyped-call]


def _plain(constant: Any) -> bool | int | float:
    if isinstance(constant, sympy.Number):
        return int(constant) if isinstance(constant, sympy.Integer) else float(constant)
    return bool(constant)


def _called(function: Callable[..., Any], *parts: Any) -> Any:
    """Return a proxy for a call, or its result where all is known."""
    tracer = next((part.tracer for part in parts if isinstance(part, Proxy)), None)
    if tracer is None:
        return function(*parts)
    arguments = tuple(part.node if isinstance(part, Proxy) else part for part in parts)
    return Proxy(tracer.graph.call_function(function, arguments), tracer)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    getattr(functions, name): function
    for name, function in {
        "CeilToInt": math.ceil,
        "CleanDiv": operator.floordiv,
        "FloatPow": operator.pow,
        "FloatTrueDiv": operator.truediv,
        "FloorDiv": operator.floordiv,
        "FloorToInt": math.floor,
        "IntTrueDiv": operator.truediv,
        "Mod": operator.mod,
        "OpaqueUnaryFn_sqrt": torch.sym_sqrt,
        "PowByNatural": operator.pow,
        "PythonMod": operator.mod,
        "RoundDecimal": round,
        "RoundToInt": round,
        "ToFloat": torch.sym_float,
        "TruncToInt": math.trunc,
    }.items()
    if hasattr(functions, name)
}
"""Class of sympy -> the Python function for it."""
_OF_ANY_NUMBER: dict[Any, Callable[..., Any]] = {functions.Max: torch.sym_max, functions.Min: torch.sym_min}


_NAMES = {
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
        if sign := _OPERATORS.get(name):
            return self._joined(expression, sign, PRECEDENCE.get(name, PRECEDENCE["Func"]))
        name = _NAMES.get(name, name.removeprefix("OpaqueUnaryFn_"))
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
