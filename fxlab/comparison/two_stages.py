"""Two models of any origin as the stages of one session."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch.fx import GraphModule, Node

from fxlab.graphs.matching import keep_pairs
from fxlab.models.graph_module import share_tensors_copy
from fxlab.models.running import Inputs
from fxlab.models.safe_code import protect
from fxlab.session import Session
from fxlab.torch_private import PyTreeCodeGen
from fxlab.transformations import Transformation
from fxlab.validation.alignment.align import Alignment
from fxlab.validation.alignment.side import Side


class Candidate(Transformation):
    """The candidate in the place of the reference."""

    name = "candidate"
    makes_new_module = True

    def __init__(self, candidate: GraphModule, parted: Collection[str], description: str) -> None:
        self._candidate, self._parted, self._words = candidate, parted, description

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Return the candidate, with the nodes marked at which the two part."""
        result = share_tensors_copy(self._candidate)
        for node in result.graph.nodes:
            if node.name in self._parted:
                self.mark_as_transformed(node)
        return result

    @property
    def description(self) -> str:
        """The place where the two part, in words."""
        return self._words

    @property
    def signature(self) -> str:
        """A name of this very candidate: no other process has it."""
        return f"candidate-{id(self._candidate):x}"


def session_of_both(
    alignment: Alignment,
    pairs: Mapping[Node, Node],
    parted: Collection[Node],
    description: str,
    inputs: Inputs | None,
    candidate_inputs: Inputs | None,
) -> Session:
    """Return a session of the reference in which the candidate is on; nodes match as they are aligned.

    Both are copies that return the outputs that were compared, under one name. The candidate takes the inputs
    of the reference if they can be given to it; else the session has no inputs.
    """
    ours, theirs = alignment.original, alignment.transformed
    reference, candidate = share_tensors_copy(ours.module), share_tensors_copy(theirs.module)
    known = {theirs.module.graph.output_node(): ours.module.graph.output_node(), **pairs}
    _return(reference, ours, {path: path for path, _ in alignment.outputs})
    _return(candidate, theirs, {other: path for path, other in alignment.outputs})
    names, reference_names = _named_alike(reference, candidate, {n.name: o.name for n, o in known.items()})
    agree = frozenset(reference_names[node.name] for node in alignment.back)
    keep_pairs(reference, candidate, names, (agree, frozenset(node.name for node in alignment.partners)))
    is_one_call = candidate_inputs is inputs or _takes(candidate, reference)
    pass_ = Candidate(candidate, frozenset(node.name for node in parted), description)
    session = Session(reference, inputs if is_one_call else None, passes=[pass_])
    session.apply("candidate")
    return session


def _named_alike(
    reference: GraphModule, candidate: GraphModule, partners: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Give nodes of the reference the names of their partners, each once, and others names of their own.

    Stages of a session are shown and compared by name. Returns the names of the pairs, and the new name of
    each node of the reference.
    """
    taken = {node.name for node in candidate.graph.nodes}
    renamed: dict[str, str] = {}
    for name, other in partners.items():
        renamed.setdefault(other, name)
    pairs = {name: name for name in renamed.values()}
    for node in reference.graph.nodes:
        old = node.name
        node.name = renamed.setdefault(old, f"{old}_of_reference" if old in taken else old)
    protect(reference.graph)
    reference.recompile()
    return pairs, renamed


def _return(copy: GraphModule, side: Side, names: Mapping[str, str]) -> None:
    """Let a copy of a graph return some of its outputs by name, if nodes compute them as they are."""
    nodes = {node.name: node for node in copy.graph.nodes}
    found = {name: side.node_of_output(path) for path, name in names.items()}
    if isinstance(copy.graph._codegen, PyTreeCodeGen) or None in found.values():
        return
    output = copy.graph.output_node()
    output.args = ({name: nodes[node.name] for name, node in found.items() if node is not None},)
    protect(copy.graph)
    copy.recompile()


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
