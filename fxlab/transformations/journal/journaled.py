"""Transformations that write their changes to the journal of the module, and revert them from there."""

import copy
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.base.garbage import without_collecting
from fxlab.models.graph_modules.bodies import graphs_of
from fxlab.models.graph_modules.graph_module import deep_copy, ensure_picklable
from fxlab.transformations.base import ReversibleTransformation
from fxlab.transformations.journal.journal import Journal, Recorded
from fxlab.transformations.journal.module_tree import attributes_of
from fxlab.transformations.journal.name_order import merged_order
from fxlab.transformations.marks import marks


class JournaledTransformation(ReversibleTransformation):
    """A transformation that is reversible because its changes are in the journal."""

    copies_on_write = True

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Revert all changes by passes with this signature, in this module or one that it is a copy of.

        Later passes that build on it are reverted first, and applied again. Raises ValueError if the data for
        it are lost, or a later pass that builds on it is lost and cannot be applied again.
        """
        self._check_graph_module(graph_module)
        graphs = graphs_of(graph_module).values()
        above: dict[str, Recorded] = {}
        with restored_on_failure(graph_module) if len(graphs) > 1 else nullcontext():
            signatures = self._depending(graphs)
            for module in graphs:
                others = self._taken_back(module, signatures)
                order = merged_order(list(above), list(others))
                above = {signature: (above | others)[signature] for signature in order}
            for transformation in above.values():
                transformation.transform(graph_module)
        return graph_module

    def _depending(self, graphs: Collection[GraphModule]) -> set[str]:
        """Return the signatures to revert as a whole: of several graphs, one may depend on another."""
        signatures, found = set[str](), {self.signature}
        journals = [Journal.of(module) for module in graphs]
        while not found <= signatures:
            signatures |= found
            if len(graphs) > 1:
                found = {each.signature for journal in journals for each in journal.depending_on(signatures)}
        return signatures

    def _taken_back(self, graph_module: GraphModule, signatures: set[str]) -> dict[str, Recorded]:
        """Revert records of one graph, and return the passes to apply again, by signature."""
        from fxlab.transformations.journal.undo import undo

        journal = Journal.of(graph_module)
        signature = self.signature
        records = journal.depending_on(signatures)
        if not records:
            self._check_no_marks(graph_module, signature)
            return {}
        journal.transformations[signature] = self
        above = {record.signature: self._found(record.signature, journal) for record in records}
        above.pop(signature, None)
        with torch.inference_mode(False), torch.no_grad(), without_collecting():
            undo(graph_module, journal, records)
        journal.keep_in(graph_module)
        return above

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Write values of a replacement that changed since it was made back to its originals."""
        warnings.warn(
            f"{self.name} cannot bring what was written to a {type(replacement).__name__} back to the "
            "modules it stands in for; they come back as they were.",
            stacklevel=2,
        )

    def _begin(self, graph_module: GraphModule, journal: Journal) -> None:
        ensure_picklable(graph_module)
        journal.note_order_of_nodes(graph_module)
        journal.transformations[self.signature] = self

    def _found(self, signature: str, journal: Journal) -> Recorded:
        if signature not in journal.transformations:
            raise ValueError(
                f"{self.name} cannot be reversed, because a transformation that was applied after it "
                f"({signature}) would have to be applied again, and was lost when the module was pickled. "
                "Reverse that one first."
            )
        return journal.transformations[signature]

    def _check_no_marks(self, graph_module: GraphModule, signature: str) -> None:
        marked = [node.name for node in graph_module.graph.nodes if signature in marks(node)]
        if marked:
            raise ValueError(
                f"Node {marked[0]!r} is marked by {self.name}, but this module has lost what "
                "reversing needs, which lies in graph_module.meta. Copy modules with "
                "copy.deepcopy, pickle or torch.save."
            )


@contextmanager
def restored_on_failure(graph_module: GraphModule) -> Iterator[None]:
    """Restore the graph, the module tree, the flags and the metadata if the block raises.

    Writes in place into a tensor are not reverted: that would take a copy of all weights.
    ``graph_module``: the module that the block changes.
    """
    graphs = [
        (module, deep_copy(module.graph), copy.copy(Journal.of(module)))
        for module in graphs_of(graph_module).values()
    ]
    roots = (graph_module, *(original for _, _, journal in graphs for original in journal.originals))
    modules = {module: None for root in roots for module in root.modules()}
    held = [(module, attributes_of(module)) for module in modules]
    trained = [(p, p.requires_grad) for root in roots for p in root.parameters()]
    try:
        yield
    except BaseException:
        for module, attributes in held:
            vars(module).clear()
            vars(module).update(attributes)
        for parameter, is_trained in trained:
            parameter.requires_grad_(is_trained)
        for module, graph, journal in graphs:
            journal.keep_in(module)
            module.graph = graph
        raise
