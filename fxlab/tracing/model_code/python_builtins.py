"""Python's own functions that would turn symbolic numbers into plain ones while a model is recorded.

In the files of a model ``len``, ``range``, ``divmod``, ``int``, ``float`` and ``math.sqrt`` follow symbols,
and so does ``torch.Size.numel``; comparing a truth with a plain one, and looking a size up, are decisions.
Questions about sizes that are asked in this file are taken to be the model's.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fxlab.base.exchanged import instead, patched_functions
from fxlab.base.interrupts import RestoringStack
from fxlab.tracing.model_code.model_files import file_of, files_of, knows_torch, names_in
from fxlab.tracing.model_code.running_code import file_that_asks
from fxlab.tracing.torch_private import FakeTensor
from fxlab.values.containers import is_a

_ATTENTION = functional.scaled_dot_product_attention


@contextmanager
def sizes_in_builtins(model: nn.Module) -> Iterator[None]:
    """Put functions that know symbolic numbers into the files that a model is written in."""
    seeing = (
        patched_functions(file, {n: instead(v) for n, v in _own_names(file).items()})
        for file in files_of(model)
    )
    of_torch = (
        patched_functions(functional, {_ATTENTION.__name__: instead(_attention)}),
        patched_functions(torch.Size, {"numel": instead(math.prod)}),
        patched_functions(torch.SymBool, {"__eq__": _equal}),
        patched_functions(torch.SymInt, {"__hash__": _hash}),
    )
    with RestoringStack(*of_torch, *seeing):
        yield


def _equal(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Let Python decide on a truth that it compares with a plain one, as sympy refuses to compare these."""
    return lambda truth, other: bool(truth) == other if isinstance(other, bool) else original(truth, other)


def _hash(original: Callable[[Any], int]) -> Callable[[Any], int]:
    """Hash a size by its number when the model's code looks it up; torch still sees it unhashable.

    So do files that know nothing of torch, such as those of einops: their caches would keep the sizes.
    """
    return lambda size: hash(as_python_number(int, size)) if knows_torch(file_that_asks()) else original(size)


def _own_names(file: ModuleType) -> dict[str, Any]:
    """Return the values that names of a file stand for during the run."""
    names = names_in(file)
    types = frozenset(_TYPES).intersection(*map(_only_called, _texts_of(file)))
    own: dict[str, Any] = {"len": _len, "range": _range, "divmod": _divmod}
    own |= {name: _TYPES[name] for name in types}
    found = {name: value for name, value in own.items() if name not in names}
    found |= {name: _MATH for name, value in names.items() if value is math}
    return found | {name: _sqrt for name, value in names.items() if value is math.sqrt}


def _texts_of(file: ModuleType) -> list[str]:
    """Return the sources of the functions of a Python module that name types of numbers, or of all.

    A module is a file, or the cells of a notebook. Reading a file of transformers as a tree takes long.
    """
    held = [*names_in(file).values()]
    classes = [value for value in held if is_a(value, type) and file_of(value) == file.__name__]
    held += [value for cls in classes for value in names_in(cls).values()]
    wrapped = staticmethod, classmethod
    functions = (value.__func__ if type(value) in wrapped else value for value in held)
    own = object.__getattribute__(file, "__dict__")  # which a wrapper from another file does not read
    codes = {f.__code__ for f in functions if is_a(f, FunctionType) and f.__globals__ is own}
    names = {code.co_filename for code in codes} - {"<string>"}  # methods that dataclasses make
    names |= {str(file.__file__)} if getattr(file, "__file__", None) else set()
    texts = ["".join(linecache.getlines(name)) for name in sorted(names)]
    loader = getattr(file, "__loader__", None)
    if len(names) == 1 and type(loader) is SourceFileLoader and texts[0]:
        with suppress(OSError, SyntaxError):  # of a file that has changed
            return _naming_types(loader, texts[0])
    return texts or [""]


@lru_cache(maxsize=1024)
def _naming_types(loader: SourceFileLoader, text: str) -> list[str]:
    """Return the sources of the outermost functions in a file that name types of numbers."""
    lines, found = text.splitlines(keepends=True), list[str]()
    ahead: list[Any] = [loader.get_code(loader.name)]
    for code in ahead:
        if not code.co_flags & inspect.CO_OPTIMIZED:  # a file or class, which has run
            ahead += (constant for constant in code.co_consts if is_a(constant, CodeType))
            continue
        codes = [*_codes_in(code)]
        if any(not _TYPES.keys().isdisjoint(each.co_names) for each in codes):
            last = max(end for each in codes for _, end, *_ in each.co_positions() if end)
            found.append(textwrap.dedent("".join(lines[code.co_firstlineno - 1 : last])))
            if _tree_of(found[-1]) is None:  # a function amid an expression
                return [text]
    return found


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and those of the functions in it."""
    yield code
    for constant in code.co_consts:
        if is_a(constant, CodeType):
            yield from _codes_in(constant)


@lru_cache(maxsize=4096)
def _only_called(text: str) -> frozenset[str]:
    """Return which types of numbers code calls, and compares with nothing, as far as it can be read.

    Another class in their place is called and inherited from alike, but is not the same object.
    """
    if (tree := _tree_of(text)) is None:
        return frozenset()
    allowed, names = set[int](), list[ast.Name]()
    for node in ast.walk(tree):
        names += [node] if isinstance(node, ast.Name) and node.id in _TYPES else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            allowed.add(id(node.func))
            if node.func.id in ("isinstance", "issubclass", "map"):
                allowed.update(id(part) for argument in node.args for part in ast.walk(argument))
        hint = getattr(node, "annotation", None) or getattr(node, "returns", None)
        allowed.update(map(id, ast.walk(hint)) if hint is not None else ())
    return frozenset(_TYPES if text else ()) - {node.id for node in names if id(node) not in allowed}


def _tree_of(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


class _FollowsSymbols(type):
    """The class of a type of numbers that leaves symbolic ones symbolic, and is that type in all else."""

    plain: type
    symbolic: type
    converted: Callable[[Any], Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs:
            return cls.plain(*args, **kwargs)
        (number,) = args
        # Python makes a plain number of any result of `Tensor.__int__`; `item` gives a symbol.
        if isinstance(number, FakeTensor) and number.numel() == 1 and number.dtype is not torch.bool:
            number = number.item()
        return cls.converted(number) if isinstance(number, _SYMBOLIC) else cls.plain(number)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.plain | cls.symbolic)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.plain)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.plain

    def __hash__(cls) -> int:
        return hash(cls.plain)


_SYMBOLIC = torch.SymInt, torch.SymFloat


class _Int(int, metaclass=_FollowsSymbols):
    plain, symbolic, converted = int, torch.SymInt, staticmethod(torch.sym_int)


class _Float(float, metaclass=_FollowsSymbols):
    plain, symbolic, converted = float, torch.SymFloat, staticmethod(torch.sym_float)


_TYPES = {"int": _Int, "float": _Float}


class _Math(ModuleType):
    """The module ``math``, with a square root of symbolic numbers."""

    def __getattr__(self, name: str) -> Any:
        return _sqrt if name == "sqrt" else getattr(math, name)


_MATH = _Math("math")


def _sqrt(number: Any) -> Any:
    return torch.sym_sqrt(number) if isinstance(number, _SYMBOLIC) else math.sqrt(number)


def as_python_number(kind: Callable[[Any], Any], number: Any) -> Any:
    """Return a number, which may be symbolic, converted by Python's ``bool``, ``int`` or ``float``."""
    return kind(number)


def _attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Decide whether it ``is_causal``, which models make of a size and torch wants to be a plain flag."""
    for name, value in kwargs.items():
        if isinstance(value, torch.SymBool):
            kwargs[name] = as_python_number(bool, value)
    return _ATTENTION(*args, **kwargs)


def _len(value: Any) -> Any:
    if isinstance(value, FakeTensor) and value.dim():
        # Python's own `len` makes a plain number of a symbolic size.
        return value.shape[0]
    return builtins.len(value)


def _divmod(number: Any, by: Any) -> Any:
    is_symbolic = isinstance(number, _SYMBOLIC) or isinstance(by, _SYMBOLIC)
    return (number // by, number % by) if is_symbolic else builtins.divmod(number, by)


def _range(*args: Any) -> Sequence[Any]:
    """Return the numbers of a range: how many there are is fixed, which they are is not."""
    if not any(isinstance(arg, torch.SymInt) for arg in args):
        return builtins.range(*args)
    start, stop, step = (0, args[0], 1) if builtins.len(args) == 1 else (*args, 1)[:3]
    if isinstance(step, torch.SymInt) or step <= 0:
        return builtins.range(*args)
    count = int((stop - start + step - 1) // step) if stop > start else 0
    return [start + index * step for index in builtins.range(count)]
