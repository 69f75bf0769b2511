"""Putting a graph module back to what it was when something that changes it fails half way."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from torch.fx import GraphModule

from fxlab.models.bodies import graphs_of
from fxlab.models.graph_module import deep_copy
from fxlab.transformations.journal.journal import Journal
from fxlab.transformations.journal.module_tree import attributes_of


@contextmanager
def restored_on_failure(graph_module: GraphModule) -> Iterator[None]:
    """Put the graph, the module tree, the flags and the metadata back if the block raises.

    What was written in place into a tensor is not put back: that would take a copy of all weights.

    Parameters
    ----------
    graph_module
        The module that the block changes.
    """
    point = _RestorePoint(graph_module)
    try:
        yield
    except BaseException:
        point.restore()
        raise


class _RestorePoint:
    def __init__(self, graph_module: GraphModule) -> None:
        self._graphs = [
            (module, deep_copy(module.graph), copy.copy(Journal.of(module)))
            for module in graphs_of(graph_module).values()
        ]
        originals = (original for _, _, journal in self._graphs for original in journal.originals)
        roots = (graph_module, *originals)
        modules = {module: None for root in roots for module in root.modules()}
        self._attributes = [(module, attributes_of(module)) for module in modules]
        self._trained = [(p, p.requires_grad) for root in roots for p in root.parameters()]

    def restore(self) -> None:
        for module, attributes in self._attributes:
            vars(module).clear()
            vars(module).update(attributes)
        for parameter, is_trained in self._trained:
            parameter.requires_grad_(is_trained)
        for module, graph, journal in self._graphs:
            journal.keep_in(module)
            module.graph = graph
