"""The place at which a model that computes the same begins to round worse."""

from typing import Any

from torch.fx import Node

from fxlab.node_info import upstream
from fxlab.validation.alignment.align import Alignment
from fxlab.validation.alignment.side import Noted, Side
from fxlab.validation.tensor_values.visited_run import visit_values
from fxlab.validation.verdicts.judgement import WORSE

_LEAST = 2.0**-53
"""A rounding of float64, below which no error counts."""


def rounds_worse(alignment: Alignment) -> dict[Node, tuple[float, float]]:
    """Return the first nodes whose own errors are far larger than those of what they stand for, with both.

    Errors are those of the values that a graph computes as it is, beside its own float64 run. A node counts
    if from there to an output all values are worse, and none that it reads is.
    """
    errors = _errors(alignment.original), _errors(alignment.transformed)
    compared = {
        node: (errors[1][node], errors[0][other])
        for node, other in alignment.partners.items()
        if node in errors[1] and other in errors[0] and node.op not in ("placeholder", "get_attr")
    }
    worse = {node for node, (error, own) in compared.items() if error > WORSE * max(own, _LEAST)}
    leading: set[Node] = set()
    for node in reversed(alignment.transformed.module.graph.nodes):
        is_open = node in worse or (node in alignment.transformed.values and node not in compared)
        if node.op == "output" or (is_open and not leading.isdisjoint(node.users)):
            leading.add(node)
    return {
        node: compared[node]
        for node in alignment.transformed.module.graph.nodes
        if node in worse & leading and not _reads_worse(node, worse, compared)
    }


def _reads_worse(node: Node, worse: set[Node], compared: dict[Node, Any]) -> bool:
    """Tell whether what a node reads is worse, also through values that the other model does not have."""
    passed = upstream(*node.all_input_nodes, within=lambda read: read not in compared)
    return any(read in worse for each in (node, *passed) for read in each.all_input_nodes)


def _errors(side: Side) -> dict[Node, float]:
    noted = Noted()
    visit_values(side.module, side.inputs, noted)
    return {
        node: max(values[path].moved_by(exact[path]) for path in values if path in exact)
        for node, values in noted.values.items()
        if (exact := side.values.get(node)) is not None and not values.keys().isdisjoint(exact)
    }
