"""The numbers in a call's result, for passes and verdicts: moved, cast, rounded, filled in; their dtype."""

import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch.fx import Node

from fxlab.base.torch_private import OpOverload, modes_disabled
from fxlab.operators.effects import argument, argument_of
from fxlab.operators.operator import Operator, operator_of
from fxlab.operators.python_functions import CASTS

MOVES = frozenset({
    "getitem", "clone", "repeat", "tile", "flip", "fliplr", "flipud", "roll", "rot90", "tril", "triu",
    "index", "index_select", "gather", "take", "take_along_dim", "masked_select", "diag", "diag_embed",
    "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "_unsafe_view", "unsafe_chunk", "unsafe_split",
    "unsafe_split_with_sizes",
})  # fmt: skip
"""Operators other than views that return elements of their first argument, or zeros."""

NO_ELEMENTS = frozenset({
    "conj", "adjoint", "mH", "matrix_H", "imag", "real", "view_as_complex", "view_as_real", "as_strided",
    "slice_inverse", "coalesce", "slice_scatter",
})  # fmt: skip
"""Views, and copies tagged as such, that hold something else than elements of their first argument."""

NEEDS_STRIDES = frozenset(
    {"view", "view_as", "as_strided", "view_as_complex", "_reshape_alias", "_unsafe_view", "slice_inverse"}
)
"""Operators that fail, or return something else, for the same values with other strides."""

STEPS = frozenset({"round", "floor", "ceil", "trunc", "sign", "sgn", "floor_divide", "heaviside"})
"""Operators whose floating-point results take isolated values, as integers do."""

JUMPS = frozenset({"frac", "remainder", "fmod", "divmod"})
"""Operators that return the remainder of such a step."""

WHOLE_NUMBERS = frozenset({"sym_int", "range", "builtins.int"})
"""Functions in Python that take integers, or make them."""

TRUTH_VALUES = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal",
    "isclose", "isin", "signbit", "logical_not", "logical_and", "logical_or", "logical_xor",
})  # fmt: skip
"""Operators that return truth values for arguments of any dtype."""

INTEGERS = frozenset({"argmax", "argmin", "argsort", "argwhere", "nonzero", "bincount", "count_nonzero"})
"""Operators that return integers of 64 bits for arguments of any dtype."""

FILLED = {"zeros": 0.0, "ones": 1.0}
"""Values with which operators fill a new tensor, also as ``new_zeros`` and ``zeros_like``."""


def moves_elements(node: Node) -> bool:
    """Tell whether a call's result holds elements of its first argument, or zeros, and nothing else."""
    operator = operator_of(node)
    if operator is None or any(isinstance(value, torch.dtype) for value in _values(node)):
        return False  # a view with a dtype reads other numbers from the same bits
    name = operator.computes.removesuffix("_copy")
    has_none = name.startswith("_") or name.endswith("indices") or name in NO_ELEMENTS | CASTS.keys()
    return operator.computes in MOVES or (_is_view(operator) and not has_none)


def casts(node: Node) -> bool:
    """Tell whether a call returns the numbers of its first argument in some dtype, on some device."""
    operator = operator_of(node)
    return operator is not None and _is_cast(operator)


def takes_any_strides(operator: Operator | None) -> bool:
    """Tell whether an operator that may return a view gives the same result for any strides."""
    if operator is None or operator.computes.removesuffix("_copy") in NEEDS_STRIDES:
        return False
    is_part = operator.computes in ("getitem", "tuple", "list")
    return is_part or operator.is_dropout or _is_cast(operator) or _is_view(operator)


def rounds(node: Node) -> bool:
    """Tell whether a call that is no cast rounds, so that a last bit can change a whole number."""
    operator = operator_of(node)
    if operator is None:
        return False
    if operator.computes == "view" and any(isinstance(value, torch.dtype) for value in _values(node)):
        return True  # the bits, as other numbers
    names = {operator.name, operator.computes}
    return takes_steps(operator, node.args, node.kwargs) or not names.isdisjoint(JUMPS | WHOLE_NUMBERS)


def takes_steps(operator: Operator, args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Tell whether floating-point results of a call jump from one isolated value to the next."""
    is_rounded = argument_of(operator, args, kwargs, "rounding_mode") is not None
    return is_rounded or operator.computes in STEPS


def filled_with(node: Node) -> Any:
    """Return the number, or its node, that fills a new tensor; ``None`` if unknown."""
    operator = operator_of(node)
    name = "" if operator is None else operator.computes.removeprefix("new_").removesuffix("_like")
    return argument(node, "fill_value") if name == "full" else FILLED.get(name)


def told_dtype(node: Node) -> torch.dtype | None:
    """Return the dtype of a call's result if the call or its operator decides it."""
    operator = operator_of(node)
    if operator is None:
        return None
    if operator.name.endswith("_") or operator.name.startswith("builtins."):
        return None  # written in place, in the dtype that was there, or no tensor
    given = argument(node, "dtype")
    if node.op == "call_method" or _is_cast(operator):
        given = next((value for value in _values(node) if isinstance(value, torch.dtype)), given)
    if isinstance(given, torch.dtype):
        return given
    if operator.computes in TRUTH_VALUES:
        return torch.bool
    return torch.int64 if operator.computes in INTEGERS else CASTS.get(operator.computes)


def _is_cast(operator: Operator) -> bool:
    return operator.computes in CASTS or operator.computes in ("_to_copy", "convert_element_type")


def _is_view(operator: Operator) -> bool:
    overloads = operator.overloads
    return bool(overloads) and all(o.is_view or torch.Tag.view_copy in o.tags for o in overloads)


def _values(node: Node) -> list[Any]:
    return [*node.args, *node.kwargs.values()]


DEVICES = ("cpu", "cuda")


def is_lowered_by_autocast(operator: Operator) -> bool:
    """Tell whether autocast casts all floating-point tensors that an operator reads, on CPUs and on GPUs.

    An overload that autocast does not know calls another. Also false if a newer torch makes no trial.
    """
    for device in DEVICES:
        known = [overload for overload in operator.overloads if _is_registered(overload, device)]
        if not known or not all(_is_lowered(overload, device) for overload in known):
            return False
    return True


def _is_registered(overload: OpOverload, device: str) -> bool:
    key = f"Autocast{device.upper()}"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(overload._name, key))


class _FirstCallError(Exception):
    """Reports the first call of an operator, and stops it there."""

    def __init__(self, casts_to: torch.dtype | None) -> None:
        super().__init__()
        self.casts_to = casts_to


class _Watched(torch.Tensor):
    """A tensor without data that claims to lie on a device, and stops every computation with it."""

    @staticmethod
    def __new__(cls, device: str) -> "_Watched":
        make: Any = torch.Tensor._make_wrapper_subclass
        return make(cls, (2, 2), dtype=torch.float32, device=device)  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        is_cast = func is torch.ops.aten._to_copy.default
        raise _FirstCallError((kwargs or {}).get("dtype") if is_cast else None)


@lru_cache(maxsize=1024)
def _is_lowered(overload: OpOverload, device: str) -> bool:
    """Call an operator on small tensors without data: autocast casts first."""
    was_on, dtype = torch.is_autocast_enabled(device), None
    try:
        with warnings.catch_warnings(), modes_disabled(), torch._C.DisableTorchFunction():
            warnings.simplefilter("ignore")
            args, kwargs = _arguments(overload, _Watched(device))
            torch.set_autocast_enabled(device, True)
            overload(*args, **kwargs)
    except _FirstCallError as first:
        dtype = first.casts_to
    except Exception:  # an operator may refuse such arguments, and autocast an operator
        return False
    finally:
        torch.set_autocast_enabled(device, was_on)
    return dtype is not None and dtype == torch.get_autocast_dtype(device)


_VALUES: dict[str, Any] = {"int": 1, "SymInt": 1, "float": 1.0, "number": 1, "bool": False, "str": ""}


def _arguments(overload: OpOverload, tensor: torch.Tensor) -> tuple[list[Any], dict[str, Any]]:
    """Return a value for each required argument."""
    values: dict[str, Any] = {**_VALUES, "Tensor": tensor, "List[Tensor]": [tensor, tensor], "List[int]": [1]}
    needed = [argument for argument in overload._schema.arguments if not argument.has_default_value()]
    args = [values.get(str(argument.type)) for argument in needed if not argument.kwarg_only]
    return args, {a.name: values.get(str(a.type)) for a in needed if a.kwarg_only}
