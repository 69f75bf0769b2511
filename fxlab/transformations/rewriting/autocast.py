"""Effects of autocast on a rewrite: casts of what a call reads, and graphs that refuse it, for passes."""

import torch
from torch.fx import Node
from torch.fx.node import has_side_effect

from fxlab.operators import is_lowered_by_autocast, operator_called
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_not_replaceable
from fxlab.transformations.rewriting.editor import Editor, insert_call


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


def refuse_autocast(node: Node, edit: Editor, *words: str) -> None:
    """Make the graph raise under autocast, with the message of :func:`require_no_autocast`."""
    insert_call(edit, node, "autocast", require_no_autocast, (node.name, *words))
