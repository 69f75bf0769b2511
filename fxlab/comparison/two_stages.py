"""Two models of any origin as the stages of one session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from fxlab.graphs.matching import keep_pairs
from fxlab.models.graph_module import share_tensors_copy
from fxlab.models.running import Inputs
from fxlab.session import Session
from fxlab.torch_private import PyTreeCodeGen
from fxlab.transformations import Transformation
from fxlab.validation.alignment.align import Alignment


@dataclass(frozen=True)
class Candidate(Transformation):
    """The candidate in the place of the reference."""

    candidate: GraphModule
    parted: tuple[str, ...]
    name: str = "candidate"

    makes_new_module = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Return the candidate, with the nodes marked at which the two part."""
        result = share_tensors_copy(self.candidate)
        for node in result.graph.nodes:
            if node.name in self.parted:
                self.mark_as_transformed(node)
        return result

    @property
    def signature(self) -> str:
        """A name of this very candidate: no other process has it."""
        return f"candidate-{id(self.candidate):x}"


def session_of_both(
    alignment: Alignment,
    pairs: Mapping[Node, Node],
    parted: Iterable[Node],
    inputs: Inputs,
    candidate_inputs: Inputs,
) -> Session:
    """Return a session of the reference in which the candidate is on; nodes match as they are aligned."""
    reference = share_tensors_copy(alignment.original.module)
    candidate = share_tensors_copy(alignment.transformed.module)
    pairs = _with_inputs_in_order(alignment, pairs)
    same = frozenset(node.name for node in alignment.partners)
    keep_pairs(reference, candidate, {node.name: other.name for node, other in pairs.items()}, same)
    known = inputs if candidate_inputs is inputs or _takes(candidate, reference) else None
    session = Session(reference, known, passes=[Candidate(candidate, tuple(node.name for node in parted))])
    session.apply("candidate")
    return session


def _with_inputs_in_order(alignment: Alignment, pairs: Mapping[Node, Node]) -> dict[Node, Node]:
    """Add inputs that compute no tensors and outputs to pairs of nodes."""
    ours, theirs = alignment.original.module.graph, alignment.transformed.module.graph
    return {theirs.output_node(): ours.output_node(), **pairs}


def _takes(candidate: GraphModule, reference: GraphModule) -> bool:
    """Let a copy of the candidate take the inputs of the reference, under their names, if it can."""
    graph = candidate.graph
    if any(isinstance(module.graph._codegen, PyTreeCodeGen) for module in (candidate, reference)):
        return False
    ours, theirs = (module.graph.find_nodes(op="placeholder") for module in (reference, candidate))
    names = {node.target for node in ours}
    renamed = {
        node: other.target for node, other in zip(theirs, ours, strict=False) if node.target not in names
    }
    if len(theirs) > len(ours) or len({*renamed.values()}) < len(renamed):
        return False
    for node, target in renamed.items():
        node.target = target
    known = {node.target for node in theirs}
    last = theirs[-1] if theirs else None
    for other in ours:
        if other.target not in known and last is not None:
            with graph.inserting_after(last):
                graph.placeholder(str(other.target), default_value=None)
    candidate.recompile()
    return True
