"""Torch-level calls as nodes: which op and target stand for what a model called."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

_OPERATORS: dict[str, Callable[..., Any]] = {
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__invert__": operator.invert,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "__lshift__": operator.lshift,
    "__rshift__": operator.rshift,
    "__floordiv__": operator.floordiv,
    "__iand__": operator.iand,
    "__ior__": operator.ior,
    "__ixor__": operator.ixor,
    "__eq__": operator.eq,
    "__ne__": operator.ne,
    "__pow__": operator.pow,
    "__ipow__": operator.ipow,
    "__mod__": operator.mod,
    "__matmul__": operator.matmul,
    # torch reports `a + b` as the method it is implemented by, so these two cannot be told apart.
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "matmul": operator.matmul,
    "neg": operator.neg,
    "pow": operator.pow,
    "remainder": operator.mod,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
}

_REFLECTED: dict[str, Callable[..., Any]] = {
    "__radd__": operator.add,
    "__rsub__": operator.sub,
    "__rmul__": operator.mul,
    "__rdiv__": operator.truediv,
    "__rtruediv__": operator.truediv,
    "__rfloordiv__": operator.floordiv,
    "__rpow__": operator.pow,
    "__rmod__": operator.mod,
    "__rmatmul__": operator.matmul,
    "__rand__": operator.and_,
    "__ror__": operator.or_,
    "__rxor__": operator.xor,
    "__rlshift__": operator.lshift,
    "__rrshift__": operator.rshift,
}

_UNARY = frozenset({"__invert__", "neg"})

DATA_READS = frozenset(
    {
        *("item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__complex__"),
        *("__index__", "__contains__", "equal", "allclose", "is_nonzero"),
    }
)
"""Calls that take numbers out of a tensor, on which the model's Python may then decide."""


_IN_PLACE_OPERATORS = frozenset(
    f"__i{name}__"
    for name in (
        *("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow"),
        *("and", "or", "xor", "lshift", "rshift", "matmul"),
    )
)


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
class Call:
    """What a node is made of, with the values of the run in place of nodes."""

    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def as_call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """Say in the terms of ``torch.fx`` what a model has called.

    Operators become functions of the module ``operator``, methods ``call_method``, properties ``getattr``.

    Parameters
    ----------
    func
        What torch hands to ``__torch_function__``.
    args, kwargs
        Its arguments.
    """
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):
        descriptor = func.__self__  # type: ignore[attr-defined]
        attribute = getattr(descriptor, "fget", descriptor).__name__
        if name == "__get__":
            return Call("call_function", getattr, (args[0], attribute), {})
        return Call("call_function", setattr, (args[0], attribute, args[1]), {})
    if not _is_method(func, name):
        return Call("call_function", func, args, kwargs)
    if name in _REFLECTED:
        return Call("call_function", _REFLECTED[name], (args[1], args[0]), {})
    operands = 1 if name in _UNARY else 3 if name == "__setitem__" else 2
    if name in _OPERATORS and len(args) == operands and not kwargs:
        return Call("call_function", _OPERATORS[name], args, {})
    return Call("call_method", name, args, kwargs)


def writes(name: str, kwargs: Mapping[str, Any]) -> bool:
    """Tell by the name of a call whether it writes into its arguments."""
    in_place = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
    return (
        in_place or name in ("__set__", "__setitem__", *_IN_PLACE_OPERATORS) or kwargs.get("out") is not None
    )


def _is_method(func: Callable[..., Any], name: str) -> bool:
    method = getattr(torch.Tensor, name, None)
    return method is not None and (method is func or method == func)
