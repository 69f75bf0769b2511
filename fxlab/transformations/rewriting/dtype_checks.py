"""Dtype assertions (``aten._assert_tensor_metadata``) on nodes that a pass replaces: moved to its result."""

from collections.abc import Iterable

import torch
from torch.fx import Node

from fxlab.operators import argument
from fxlab.transformations.analysis.dtypes_and_sizes import known_dtype
from fxlab.transformations.rewriting.editor import Editor, place_of

_CHECK = torch.ops.aten._assert_tensor_metadata.default


def dtype_checks(node: Node, inner: Iterable[Node]) -> tuple[Node, ...]:
    """Return the dtype assertions on removed nodes that can be moved to the result.

    Autocast changes the result's dtype whenever it changes that of an intermediate.
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
