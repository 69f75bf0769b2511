"""Origins of NaN and infinity: the first nodes, upstream of one, whose values hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fxlab.models.running import Inputs
from fxlab.validation.tensor_values.statistics import readable
from fxlab.validation.tensor_values.visited_run import visit_values
from fxlab.values.tensors import tensors_by_path


@dataclass(frozen=True)
class FirstNonFinite:
    """The first nodes that hold NaN and infinite elements, of a node and all that it is computed from.

    Attributes
    ----------
    nan, inf : str or None
        The name of the node; ``None`` if there is none.
    """

    nan: str | None
    inf: str | None


def first_non_finite(graph_module: fx.GraphModule, node: fx.Node, inputs: Inputs) -> FirstNonFinite:
    """Run a graph up to a node, and find where NaN and infinity come from; raises as :func:`visit_values`.

    Examples
    --------
    >>> graph = fx.symbolic_trace(lambda x: (x / 0) * 0)
    >>> first_non_finite(graph, next(iter(graph.graph.find_nodes(op="output"))), (torch.ones(1),))
    FirstNonFinite(nan='mul', inf='truediv')
    """
    upstream = _upstream(node)
    found: dict[str, str] = {}

    def note(at: fx.Node, value: Any) -> None:
        if at not in upstream or len(found) == 2:
            return
        for tensor in tensors_by_path(value).values():
            try:
                values = readable(tensor)
            except (ValueError, RuntimeError, NotImplementedError):
                continue  # a sparse or wrapped tensor has no elements to look at
            if not values.dtype.is_floating_point or bool(values.isfinite().all()):
                continue
            for kind, test in (("nan", torch.isnan), ("inf", torch.isinf)):
                if kind not in found and bool(test(values).any()):
                    found[kind] = at.name

    visit_values(graph_module, inputs, note, last=node)
    return FirstNonFinite(found.get("nan"), found.get("inf"))


def _upstream(node: fx.Node) -> set[fx.Node]:
    """Return a node and all that it is computed from."""
    found, waiting = {node}, [node]
    while waiting:
        for read in waiting.pop().all_input_nodes:
            if read not in found:
                found.add(read)
                waiting.append(read)
    return found
