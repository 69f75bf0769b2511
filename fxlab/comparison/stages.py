"""Models of any origin as the stages of one session."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from fxlab.base.torch_private import PyTreeCodeGen
from fxlab.graphs.matching import keep_pairs
from fxlab.models.graph_modules.graph_module import share_tensors_copy
from fxlab.models.graph_modules.safe_code import protect
from fxlab.models.running.running import Inputs
from fxlab.session import Session
from fxlab.transformations import Transformation
from fxlab.validation.alignment.align import Alignment, align_sides
from fxlab.validation.alignment.side import Side


class Candidate(Transformation):
    """A candidate in the place of the stage below it."""

    makes_new_module = True

    def __init__(self, name: str, candidate: GraphModule, parted: Collection[str], description: str) -> None:
        self.name, self.description = name, description
        self._candidate, self._parted = candidate, parted

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Return the candidate, with the nodes marked at which it and the reference part."""
        result = share_tensors_copy(self._candidate)
        for node in result.graph.nodes:
            if node.name in self._parted:
                self.mark_as_transformed(node)
        return result

    @property
    def signature(self) -> str:
        """A name of this very candidate: no other process has it."""
        return f"candidate-{id(self._candidate):x}"


@dataclass(frozen=True)
class Compared:
    """A candidate and the reference that it was compared with."""

    alignment: Alignment
    parted: Collection[Node]
    """The nodes at which they part."""
    description: str
    is_one_call: bool
    """Whether both take the same inputs as they are."""


@dataclass(frozen=True)
class _Stage:
    """A copy of a model, whose nodes have names of their own, but one for those that match in others."""

    module: GraphModule
    names: Mapping[str, str]
    """Name of a node of the model -> its name in the copy."""


def session_of_all(candidates: Sequence[Compared], inputs: Inputs | None) -> Session:
    """Return a session of a reference whose stages are candidates; nodes match as they are aligned.

    All are copies that return the outputs that were compared, under one name. Candidates take the inputs of
    the reference if they can be given to them; else the session has no inputs. Nodes that match have one
    name, that of the first candidate: stages of a session are shown and compared by name.
    """
    ours = candidates[0].alignment.original
    reference = share_tensors_copy(ours.module)
    _return(reference, ours, {path: path for one in candidates for path, _ in one.alignment.outputs})
    stages, passes = list[_Stage](), list[Candidate]()
    for number, one in enumerate(candidates, 1):
        side, name = one.alignment.transformed, "candidate" if number == 1 else f"candidate {number}"
        candidate = share_tensors_copy(side.module)
        _return(candidate, side, {other: path for path, other in one.alignment.outputs})
        aligned = [one.alignment, *(_with_each_other(below, one) for below in candidates[: number - 1])]
        pairs = [_pairs(alignment) for alignment in aligned]
        if not stages:
            names = {node.name: node.name for node in candidate.graph.nodes}
            known = {other: node for node, other in reversed(pairs[0].items())}
            stages = [_Stage(reference, _renamed(reference, known, {*names}, "reference"))]
        else:
            known, given = dict[str, str](), set[str]()
            for stage, found in zip(stages, pairs, strict=True):
                for node, other in found.items():
                    # Names are unique in a graph: two of its nodes may match one node in different stages.
                    if node not in known and (shared := stage.names[other]) not in given:
                        known[node] = shared
                        given.add(shared)
            taken = {name for stage in stages for name in stage.names.values()}
            names = _renamed(candidate, known, taken, name.replace(" ", "_"))
        for stage, alignment in zip(stages, aligned, strict=True):
            agree = frozenset(stage.names[node.name] for node in alignment.back)
            same = frozenset(names[node.name] for node in alignment.partners)
            both = {*names.values()}.intersection(stage.names.values())
            keep_pairs(stage.module, candidate, {name: name for name in both}, (agree, same))
        inputs = inputs if one.is_one_call or _takes(candidate, reference) else None
        parted = frozenset(names[node.name] for node in one.parted)
        stages.append(_Stage(candidate, names))
        passes.append(Candidate(name, candidate, parted, one.description))
    session = Session(reference, inputs, passes=passes)
    session._is_comparison = True
    session.apply(*passes)
    return session


def _with_each_other(one: Compared, other: Compared) -> Alignment:
    """Align two candidates, of which each was compared with the reference."""
    theirs = dict(other.alignment.outputs.keys())
    outputs = {ours: theirs[path] for path, ours in one.alignment.outputs if path in theirs}
    return align_sides(one.alignment.transformed, other.alignment.transformed, outputs)


def _pairs(alignment: Alignment) -> dict[str, str]:
    """Return the pairs of nodes for the graph below: those that agree, and those after a difference."""
    ours, theirs = (side.module.graph.output_node() for side in (alignment.original, alignment.transformed))
    pairs = {theirs: ours} | alignment.partners
    if not alignment.agrees:
        pairs |= {node: other for node, (other, _) in alignment.continued().items()}
    return {node.name: other.name for node, other in pairs.items()}


def _renamed(
    module: GraphModule, known: Mapping[str, str], taken: Collection[str], of: str
) -> dict[str, str]:
    """Rename nodes as it is known, and others whose names are taken; return the name of each node."""
    names = dict(known)
    for node in module.graph.nodes:
        old = node.name
        node.name = names.setdefault(old, f"{old}_of_{of}" if old in taken else old)
    protect(module.graph)
    module.recompile()
    return names


def _return(copy: GraphModule, side: Side, names: Mapping[str, str]) -> None:
    """Return a copy of a graph with some of its outputs by name, if nodes compute them unchanged."""
    nodes = {node.name: node for node in copy.graph.nodes}
    found = {name: side.node_of_output(path) for path, name in names.items()}
    # Such code flattens outputs by a fixed specification, which other outputs do not fit.
    if isinstance(copy.graph._codegen, PyTreeCodeGen) or None in found.values():
        return
    output = copy.graph.output_node()
    output.args = ({name: nodes[node.name] for name, node in found.items() if node is not None},)
    protect(copy.graph)
    copy.recompile()


def _takes(candidate: GraphModule, reference: GraphModule) -> bool:
    """Return a copy of the candidate that takes the reference's inputs under their names, if possible."""
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
