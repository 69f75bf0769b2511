"""The effect of automatic mixed precision on a graph that may run under it.

A caller may run any graph under ``torch.autocast``: there, dtypes are others than those that the graph tells.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch.fx import Node
from torch.fx.node import has_side_effect

from fxlab.operators import is_lowered_by_autocast, operator_called
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_not_replaceable

LARGEST = torch.finfo(torch.float16).max
"""The largest number of the smallest dtype that autocast may compute in."""


@contextmanager
def without_autocast() -> Iterator[None]:
    """Compute in the dtypes that there are, whatever the caller has set."""
    with ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


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
    """Raise ``AssertionError`` where autocast is on; ``because``: its effect, in words after its name."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise AssertionError(
            f"{node_name} cannot be run under autocast, {because}. Reverse {pass_name} first, or run the "
            "module outside of autocast."
        )
