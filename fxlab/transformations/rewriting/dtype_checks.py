"""Nodes that check dtypes, where what they check goes, and that refuse those of autocast."""

from collections.abc import Iterable

import torch
from torch.fx import Node

from fxlab.operators import argument
from fxlab.transformations.analysis.autocast import require_no_autocast
from fxlab.transformations.analysis.node_shape import known_dtype
from fxlab.transformations.rewriting.editor import Editor, place_of

_CHECK = torch.ops.aten._assert_tensor_metadata.default


def dtype_checks(node: Node, inner: Iterable[Node]) -> tuple[Node, ...]:
    """Return the checks of a dtype in what goes that can be made of the result instead.

    Autocast makes the result of another dtype wherever it does so in between.
    """
    dtype = known_dtype(node)
    readers = dict.fromkeys(user for value in inner for user in value.users)
    return tuple(
        user
        for user in readers
        if user.target is _CHECK
        and dtype in (torch.float32, torch.float64)
        and argument(user, "dtype") == dtype
        and argument(user, "size") is None
        and argument(user, "stride") is None
    )


def all_dtype_checks(inner: Iterable[Node]) -> tuple[Node, ...]:
    """Return the nodes that check what goes, whatever they check of it."""
    return tuple(dict.fromkeys(user for value in inner for user in value.users if user.target is _CHECK))


def is_dtype_checked(value: Node) -> bool:
    """Tell whether the graph checks the dtype of a value."""
    return any(user.target is _CHECK and argument(user, "dtype") is not None for user in value.users)


def move_dtype_checks(checks: Iterable[Node], node: Node, edit: Editor) -> None:
    """Let checks of what goes check ``node`` instead."""
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
    """Let the graph raise under autocast, in the words that :func:`require_no_autocast` is given."""
    edit.insert_before(
        node,
        "call_function",
        require_no_autocast,
        (node.name, *words),
        name=f"{node.name}_autocast",
        meta=place_of(node),
    )
