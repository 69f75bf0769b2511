"""Dtypes under autocast: nodes that check them, their removal, and nodes that refuse autocast."""

from collections.abc import Iterable

import torch
from torch.fx import Node
from torch.fx.node import has_side_effect

from fxlab.operators import argument, is_lowered_by_autocast, operator_called
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_not_replaceable
from fxlab.transformations.analysis.node_shape import known_dtype
from fxlab.transformations.rewriting.editor import Editor, insert_call, place_of

LARGEST = torch.finfo(torch.float16).max
"""The largest number of the smallest dtype in which autocast may compute."""


def casts_to_autocast_dtype(node: Node, facts: GraphFacts) -> bool:
    """Tell whether autocast casts all floating-point tensors that a node reads to its own dtype."""
    if node.op == "call_module":
        module = facts.module(node)
        if module is None or why_not_replaceable(facts, str(node.target), type(module)):
            return False
    operator = operator_called(node, facts.graph_module)
    return operator is not None and is_lowered_by_autocast(operator)


@has_side_effect
def require_no_autocast(
    node_name: str, pass_name: str = "FuseAttention", because: str = "which would make its mask infinite"
) -> None:
    """Raise ``AssertionError`` under autocast; ``because``: its effect, in words after its name."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise AssertionError(
            f"{node_name} cannot be run under autocast, {because}. Reverse {pass_name} first, or run the "
            "module outside of autocast."
        )


_CHECK = torch.ops.aten._assert_tensor_metadata.default


def dtype_checks(node: Node, inner: Iterable[Node]) -> tuple[Node, ...]:
    """Return the dtype checks of removed nodes that can check the result instead.

    Autocast gives the result another dtype whenever it does so in between.
    """
    dtype = known_dtype(node)
    if dtype not in (torch.float32, torch.float64):
        return ()
    expected = {"dtype": dtype, "size": None, "stride": None}
    checks = all_dtype_checks(inner)
    return tuple(c for c in checks if all(argument(c, key) == each for key, each in expected.items()))


def all_dtype_checks(inner: Iterable[Node]) -> tuple[Node, ...]:
    """Return the nodes that check anything about removed nodes."""
    return tuple(dict.fromkeys(user for value in inner for user in value.users if user.target is _CHECK))


def is_dtype_checked(value: Node) -> bool:
    """Tell whether the graph checks the dtype of a value."""
    return any(user.target is _CHECK and argument(user, "dtype") is not None for user in value.users)


def move_dtype_checks(checks: Iterable[Node], node: Node, edit: Editor) -> None:
    """Move the checks of removed nodes to ``node``."""
    for check in checks:
        edit.insert_before(
            node.next,
            check.op,
            check.target,
            (node, *check.args[1:]),
            check.kwargs,
            name=f"{node.name}_metadata",
            meta=place_of(check),
        )
        edit.erase(check)


def refuse_autocast(node: Node, edit: Editor, *words: str) -> None:
    """Make the graph raise under autocast, with the message of :func:`require_no_autocast`."""
    insert_call(edit, node, "autocast", require_no_autocast, (node.name, *words))
