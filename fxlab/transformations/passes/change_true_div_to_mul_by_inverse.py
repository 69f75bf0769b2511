"""Change divisions by a constant into multiplications by its inverse."""

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.base.torch_private import OpOverload
from fxlab.operators import is_of_python, operator_of
from fxlab.operators.node_info import dtype_name
from fxlab.transformations.analysis.dtypes_and_sizes import known_dtype
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import RewritePass

_STRICTEST = torch.float16
"""The range for a constant and its inverse if the dtype of the numerator is unknown."""


@dataclass(frozen=True)
class ChangeTrueDivToMulByInverse(RewritePass[Node]):
    """Change divisions by a constant into multiplications by its inverse, which are faster.

    The product can differ from the quotient in its last bit, unless the constant is a power of two. If the
    result is later rounded to integers, like the bucket of a relative position, a last bit can change a whole
    one, and the division stays. The constant itself is kept, so that reversal restores the same number. The
    division node is marked.

    Examples
    --------
    >>> class Scale(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x / 8
    >>> change = ChangeTrueDivToMulByInverse()
    >>> changed = change(torch.fx.symbolic_trace(Scale()))
    >>> change.get_transformed_nodes(changed)[0].args
    (x, 0.125)
    >>> changed = change(changed, reverse=True)
    >>> [node.args for node in changed.graph.nodes if node.target is operator.truediv]
    [(x, 8)]
    """

    def match(self, facts: GraphFacts) -> Iterator[Node]:
        """Yield the divisions of a node by a number, written in any way."""
        for node in facts.graph_module.graph.nodes:
            if _multiplication(node) is not None:
                numerator, denominator = _operands(node)
                if isinstance(numerator, Node) and isinstance(denominator, int | float | complex):
                    yield node

    def refuse(self, candidate: Node, facts: GraphFacts) -> Refusal | None:
        """Refuse operands that are not floating-point, and constants whose inverse is not a normal number."""
        numerator, denominator = _operands(candidate)
        extra = {name for name, value in candidate.kwargs.items() if value is not None} - {"input", "other"}
        if extra or len(candidate.args) > 2:
            return Reason.FURTHER_ARGUMENTS(arguments=", ".join(sorted(extra)) or "further arguments")
        if numerator in facts.numbers:
            return Reason.PYTHON_NUMBER(value=numerator.name)
        dtype = known_dtype(numerator)
        if dtype is not None and not dtype.is_floating_point:
            return Reason.DTYPE(value=numerator.name, dtype=dtype_name(dtype))
        if reason := _why_no_inverse(numerator, denominator, dtype):
            return reason
        reader = facts.rounding_readers.get(candidate)
        # The inverse of a power of two is exact.
        is_exact = abs(math.frexp(denominator)[0]) == 0.5
        return None if reader is None or is_exact else Reason.ROUNDED_LATER(reader=reader.name)

    def describe(self, candidate: Node) -> str:
        """Tell the factor."""
        _, denominator = _operands(candidate)
        return f"a multiplication by {1 / denominator!r} instead of a division by {denominator!r}"

    def rewrite(self, candidate: Node, edit: Editor) -> Node:
        """Turn the division into a product."""
        numerator, denominator = _operands(candidate)
        args = numerator, 1.0 / float(denominator)
        edit.change(candidate, target=_multiplication(candidate), args=args, kwargs={})
        return candidate


def _multiplication(node: Node) -> Any:
    """Return the multiplication in the same dialect as a node's division; ``None`` if it does not divide."""
    operator_, target = operator_of(node), node.target
    if operator_ is None or operator_.computes != "div" or operator_.writes_first:
        return None
    name = "__mul__" if operator_.name.startswith("__") else "mul"
    if isinstance(target, str):
        return name
    if isinstance(target, OpOverload):
        return getattr(getattr(torch.ops, target.namespace).mul, target._overloadname, None)
    if is_of_python(target):
        return operator.mul
    return getattr(torch.Tensor if getattr(torch.Tensor, operator_.name, None) is target else torch, name)


def _operands(node: Node) -> tuple[Any, Any]:
    numerator = node.args[0] if node.args else node.kwargs.get("input")
    denominator = node.args[1] if len(node.args) > 1 else node.kwargs.get("other")
    return numerator, denominator


def _why_no_inverse(numerator: Node, denominator: Any, dtype: torch.dtype | None) -> Refusal | None:
    if isinstance(denominator, bool) or not isinstance(denominator, int | float):
        return Reason.DIVISOR_TYPE(divisor=denominator, type=type(denominator).__name__)
    if denominator == 0:
        return Reason.DIVISION_BY_ZERO()
    if isinstance(denominator, int) and abs(denominator) > 2**53:
        return Reason.INEXACT_DIVISOR(divisor=denominator)
    limits = torch.finfo(_STRICTEST if dtype is None else dtype)
    for what, number in (
        (repr(denominator), abs(denominator)),
        (f"the inverse of {denominator!r}", 1 / abs(denominator)),
    ):
        if not limits.tiny <= number <= limits.max:
            if dtype is None:
                value = numerator.name
                return Reason.NOT_NORMAL_IN_SMALLEST(value=value, number=what, dtype=limits.dtype)
            return Reason.NOT_NORMAL(number=what, dtype=limits.dtype)
    return None
