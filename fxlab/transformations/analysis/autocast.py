"""The effect of automatic mixed precision on a graph that may run under it.

A caller may run any graph under ``torch.autocast``: there, dtypes are others than those that the graph tells.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from torch.fx import Node
from torch.fx.node import has_side_effect

from fxlab.operators import is_of_torch
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_not_replaceable
from fxlab.transformations.analysis.node_shape import called_name

_LOWERED_TEXT = """
    matmul __matmul__ mm bmm addmm baddbmm linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d scaled_dot_product_attention
"""
_LOWERED = frozenset(_LOWERED_TEXT.split())
"""What autocast computes in its own dtype, on CPUs and on GPUs."""

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
        if not isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            return False
        return not why_not_replaceable(facts, str(node.target), type(module))
    is_known = node.op == "call_method" or (node.op == "call_function" and is_of_torch(node.target))
    return is_known and called_name(node) in _LOWERED


@has_side_effect
def require_no_autocast(node_name: str) -> None:
    """Raise ``AssertionError`` where autocast is on.

    Parameters
    ----------
    node_name
        The node whose operands autocast would make infinite.
    """
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise AssertionError(
            f"{node_name} cannot be run under autocast, which would make its mask infinite. Reverse "
            "FuseAttention first, or run the module outside of autocast."
        )
