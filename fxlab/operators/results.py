"""The numbers in a call's result: moved, cast, rounded, filled in, and of which dtype."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from fxlab.operators.effects import argument, argument_of
from fxlab.operators.operator import Operator, operator_of
from fxlab.operators.python_functions import CASTS
from fxlab.operators.result_tables import (
    FILLED,
    INTEGERS,
    JUMPS,
    MOVES,
    NEEDS_STRIDES,
    NO_ELEMENTS,
    RESHAPES,
    STEPS,
    TRUTH_VALUES,
    WHOLE_NUMBERS,
)


def moves_elements(node: Node) -> bool:
    """Tell whether a call's result holds elements of its first argument, or zeros, and nothing else."""
    operator = operator_of(node)
    if operator is None or any(isinstance(value, torch.dtype) for value in _values(node)):
        return False  # a view with a dtype reads other numbers from the same bits
    return operator.computes in MOVES or (_is_view(operator) and not _has_no_elements(operator.computes))


def reshapes(node: Node) -> bool:
    """Tell whether a call's result holds all elements of its first argument, in their order."""
    operator = operator_of(node)
    if operator is None or any(isinstance(value, torch.dtype) for value in _values(node)):
        return False  # a view with a dtype reads other numbers from the same bits
    return operator.computes in RESHAPES


def casts(node: Node) -> bool:
    """Tell whether a call returns the numbers of its first argument in some dtype, on some device."""
    operator = operator_of(node)
    return operator is not None and _is_cast(operator)


def takes_any_strides(operator: Operator | None) -> bool:
    """Tell whether an operator that may return a view takes a tensor of any strides, with the same result."""
    if operator is None or operator.computes.removesuffix("_copy") in NEEDS_STRIDES:
        return False
    is_part = operator.computes in ("getitem", "tuple", "list")
    return is_part or operator.is_dropout or _is_cast(operator) or _is_view(operator)


def rounds(node: Node) -> bool:
    """Tell whether a call rounds, so that the last bit of an argument can change a whole number.

    Casts are left to whoever knows the dtypes.
    """
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
    """Return the number, or the node of one, that all elements of a new tensor are; ``None`` if unknown."""
    operator = operator_of(node)
    name = "" if operator is None else operator.computes.removeprefix("new_").removesuffix("_like")
    return argument(node, "fill_value") if name == "full" else FILLED.get(name)


def told_dtype(node: Node) -> torch.dtype | None:
    """Return the dtype of a call's result where the call or its operator says so by itself."""
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


def _has_no_elements(name: str) -> bool:
    name = name.removesuffix("_copy")
    return name.startswith("_") or name.endswith("indices") or name in NO_ELEMENTS | CASTS.keys()


def _values(node: Node) -> list[Any]:
    return [*node.args, *node.kwargs.values()]
