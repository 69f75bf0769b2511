"""Two compared models as stages of one session, for one screen; and their modules in pairs, for tables."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from fxlab.base.torch_private import PyTreeCodeGen
from fxlab.graphs.matching import keep_pairs
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.models.graph_modules.generated_code import protect
from fxlab.models.running.arguments import Inputs
from fxlab.operators.node_info import module_path
from fxlab.session import Session
from fxlab.transformations import Transformation
from fxlab.validation.alignment.align import Alignment
from fxlab.validation.alignment.side import Side

_MOST = 0.9
"""The share of the aligned nodes of a module that have to lie in one module of the other model."""


@dataclass(frozen=True)
class Module:
    """A module of the candidate that computes something, and its counterpart in the reference."""

    candidate: str
    reference: str
    """Its path; empty if nothing in the reference stands for it."""
    status: str
    """``agrees``, ``parts here``, ``differs``, or ``no partner``, where no value in it has one."""
    difference: float | None
    """The largest difference of its results, relative to the largest element, where it is known."""


def compared_modules(alignment: Alignment, differences: dict[Node, float]) -> list[Module]:
    """Compare the modules of two models by the values that others read of them, outermost first."""
    inside: dict[str, list[Node]] = defaultdict(list)
    for node in alignment.transformed.values:
        if node.op not in ("placeholder", "get_attr"):
            for path in enclosing(module_path(node)):
                inside[path].append(node)
    parted = {path for node in alignment.parted for path in enclosing(module_path(node))}
    found = []
    for path, nodes in inside.items():
        own = set(nodes)
        given = [node for node in nodes if any(user not in own for user in node.users)]
        known = [differences[node] for node in given if node in differences]
        if all(node in alignment.partners for node in given):
            status = "agrees"
        elif path in parted:
            status = "parts here"
        else:
            status = "differs" if any(node in alignment.partners for node in nodes) or known else "no partner"
        apart = 0.0 if status == "agrees" else max(known, default=None)
        found.append(Module(path, _reference(nodes, alignment), status, apart))
    return found


def enclosing(path: str) -> Iterator[str]:
    """Yield the path of a module and of those around it, outermost first."""
    parts = path.split(".") if path else []
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _reference(nodes: list[Node], alignment: Alignment) -> str:
    """Return the innermost module of the reference that computes most of the values of these nodes."""
    paths = [
        module_path(alignment.partners[node])
        for node in nodes
        if node in alignment.partners and alignment.partners[node].op not in ("placeholder", "get_attr")
    ]
    counts = Counter(path for each in paths for path in enclosing(each))
    fitting = [path for path, count in counts.items() if count >= _MOST * len(paths)]
    return max(fitting, key=lambda path: path.count(".") + 1, default="")


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


def session_of_two(
    alignment: Alignment, parted: Collection[Node], description: str, inputs: Inputs | None, *, is_alike: bool
) -> Session:
    """Return a session of a reference in which the candidate is a stage; nodes match as they are aligned.

    Both are copies that return the outputs that were compared, under one name. Nodes that match have one
    name, that of the candidate: stages of a session are shown and compared by name. ``parted``: the nodes of
    the candidate at which they part. ``inputs``: those of the reference; the session has none if the
    candidate cannot be given them. ``is_alike``: whether both take them as they are.
    """
    ours, theirs = alignment.original, alignment.transformed
    reference, candidate = share_tensors_copy(ours.module), share_tensors_copy(theirs.module)
    _return(reference, ours, {path: path for path, _ in alignment.outputs})
    _return(candidate, theirs, {other: path for path, other in alignment.outputs})
    names = {node.name: node.name for node in candidate.graph.nodes}
    known = {other: node for node, other in reversed(_pairs(alignment).items())}
    renamed = _renamed(reference, known, {*names})
    agree = frozenset(renamed[node.name] for node in alignment.back)
    same = frozenset(node.name for node in alignment.partners)
    both = {*names}.intersection(renamed.values())
    keep_pairs(reference, candidate, {name: name for name in both}, (agree, same))
    if not is_alike and not _takes(candidate, reference):
        inputs = None
    pass_ = Candidate("candidate", candidate, {node.name for node in parted}, description)
    session = Session(reference, inputs, passes=[pass_])
    session._is_comparison = True
    return session.apply(pass_)


def _pairs(alignment: Alignment) -> dict[str, str]:
    """Return the pairs of nodes for the graph below: those that agree, and those after a difference."""
    ours, theirs = (side.module.graph.output_node() for side in (alignment.original, alignment.transformed))
    pairs = {theirs: ours} | alignment.partners
    if not alignment.agrees:
        pairs |= {node: other for node, (other, _) in alignment.continued().items()}
    return {node.name: other.name for node, other in pairs.items()}


def _renamed(reference: GraphModule, known: Mapping[str, str], taken: Collection[str]) -> dict[str, str]:
    """Rename nodes as it is known, and others whose names are taken; return the name of each node."""
    names = dict(known)
    for node in reference.graph.nodes:
        old = node.name
        node.name = names.setdefault(old, f"{old}_of_reference" if old in taken else old)
    protect(reference.graph)
    reference.recompile()
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
