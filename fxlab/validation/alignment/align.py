"""Aligns the nodes of two graphs by their values, and finds where they part, for ``compare`` and tables."""

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from fxlab.base.words import listed
from fxlab.graphs.matching import keep_pairs
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.models.running.arguments import Inputs
from fxlab.operators.node_info import kind_text, module_path, modules_by_path
from fxlab.validation.alignment import parting
from fxlab.validation.alignment.fingerprint import TOLERANCE
from fxlab.validation.alignment.partners import partners_in
from fxlab.validation.alignment.side import Side
from fxlab.validation.verdicts.runs import Runs
from fxlab.validation.verdicts.runs_compared import RunsCompared


@dataclass(frozen=True)
class Alignment:
    """The nodes of two graphs that compute the same values; ``str()`` says where the graphs part."""

    original: Side
    transformed: Side
    partners: dict[Node, Node]
    """Node of the transformed graph -> node of the original with the same values, in any shape and order.

    Several nodes may have one partner, as those that only reshape.
    """
    back: dict[Node, Node]
    """The same from the original to the transformed graph."""
    parted: list[Node]
    """The first nodes of the transformed graph whose values the original does not have.

    The original has the values that they read, and the results depend on them. Empty if the results agree.
    """
    parted_original: list[Node]
    """The same of the original."""
    outputs: dict[tuple[str, str], bool]
    """Whether outputs agree, by the path in the original and in the transformed graph."""
    only_in_one: tuple[str, ...]
    """The outputs that the other graph does not have."""

    @property
    def agrees(self) -> bool:
        """Whether all outputs have the same values, up to the rounding of float64."""
        return all(self.outputs.values()) and not self.only_in_one

    @property
    def weights(self) -> dict[str, tuple[str, ...]]:
        """Parameters, constants and masks that the parted nodes read and the other graph does not have.

        They may be the mistake, or be merged or split.
        """
        ours = parting.odd_weights(self.original, self.parted_original, self.back)
        return ours | parting.odd_weights(self.transformed, self.parted, self.partners)

    @property
    def unaligned(self) -> list[Node]:
        """All nodes without a partner, also parts of a step that the other graph takes at once."""
        return [node for node in self.transformed.values if node not in self.partners]

    def continued(self) -> dict[Node, tuple[Node, float]]:
        """Pair nodes without a partner that do the same with partners, and tell how far apart they are.

        So it goes on after the place where the graphs part. Each node of the original is taken once.
        """
        ours, theirs = (modules_by_path(side.module) for side in (self.original, self.transformed))
        free: dict[Hashable, list[Node]] = defaultdict(list)
        taken = {*self.partners.values(), *self.back}
        for node in self.original.values:
            if node not in taken:
                for each in node.all_input_nodes:
                    free[kind_text(node, ours), self.original.elements(node), each].append(node)
        found: dict[Node, tuple[Node, float]] = {}
        pairs = dict(self.partners)
        for node in self.unaligned:
            kind, elements = kind_text(node, theirs), self.transformed.elements(node)
            read = [pairs[each] for each in node.all_input_nodes if each in pairs]
            others = (other for each in read for other in free[kind, elements, each] if other not in taken)
            other = next((other for other in others if {*read} <= {*other.all_input_nodes}), None)
            if other is not None:
                taken.add(other)
                found[node], pairs[node] = (other, self.distance(node, other)), other
        return found

    def distance(self, node: Node, other: Node) -> float:
        """Return how far the values of two nodes are apart, relative to the largest element."""
        ours, theirs = self.original.values[other], self.transformed.values[node]
        return max(
            (value.distance(ours[path]) for path, value in theirs.items() if path in ours), default=math.inf
        )

    def __str__(self) -> str:
        count = len(self.transformed.values)
        aligned = f"{len(self.partners)} of {count} nodes have a partner"
        if self.agrees:
            return f"The outputs have the same elements; {aligned}."
        if not (self.parted or self.parted_original):
            wrong = ", ".join(path for (_, path), agrees in self.outputs.items() if not agrees)
            return f"All values have a partner, but {wrong or 'an output'} is another one; {aligned}."
        first, second = (listed([n.name for n in nodes]) for nodes in (self.parted, self.parted_original))
        there = f" The original has {second} there." if second else ""
        weights = sorted({name for names in self.weights.values() for name in names})
        also = f" Weights without a partner: {listed(weights)}." if weights else ""
        return f"The graphs part at {first or 'no node of the transformed one'}.{there}{also} ({aligned}.)"


def aligned(original: GraphModule, transformed: GraphModule, inputs: Inputs) -> Alignment:
    """Align two graphs that take the same inputs; see :func:`align_sides`."""
    runs = Runs(original, "original", inputs), Runs(transformed, "transformed", inputs)
    ours, theirs = RunsCompared(*runs).runs
    return align_sides(Side.of_runs(ours, transformed), Side.of_runs(theirs, original))


def matched_by_values(alignment: Alignment) -> tuple[GraphModule, GraphModule]:
    """Return copies of two aligned graphs whose nodes match as they are aligned, and not by name."""
    ours, theirs = (share_tensors_copy(side.module) for side in (alignment.original, alignment.transformed))
    pairs = {node: other for node, (other, _) in alignment.continued().items()} | alignment.partners
    names = {node.name: other.name for node, other in pairs.items()}
    agree, others = (frozenset(node.name for node in known) for known in (alignment.back, alignment.partners))
    keep_pairs(ours, theirs, names, (agree, others))
    return ours, theirs


def align_sides(
    ours: Side, theirs: Side, outputs: Mapping[str, str] | None = None, wrong_weights: Collection[str] = ()
) -> Alignment:
    """Align two graphs of any origin that have run node by node, by the values of their nodes.

    Neither names nor structure count: each graph has run once in float64, and two nodes are partners if their
    results have the same elements, in any shape and dtype. Steps that one graph takes at once and the other
    in several lie between partners.

    ``ours``, ``theirs``: the original and the transformed graph. ``outputs``: path of an output of the
    original -> that of the transformed graph. Left out, those of the same path are paired, and others in
    their order. ``wrong_weights``: names of parameters of the transformed graph whose values are known to be
    wrong. Raises ValueError if a node does not run on the inputs, or not in float64, or draws random numbers.
    """
    partners, back = partners_in(theirs, ours), partners_in(ours, theirs)
    sizes = ({path: value.elements for path, value in side.outputs.items()} for side in (ours, theirs))
    pairs = paired_paths(*sizes) if outputs is None else dict(outputs)
    agree = {(path, other): _is_same_output(ours, path, theirs, other) for path, other in pairs.items()}
    left = [path for path in ours.outputs if path not in pairs]
    left += [path for path in theirs.outputs if path not in pairs.values()]
    parted, parted_original = list[Node](), list[Node]()
    if not agree or not all(agree.values()):
        parted = parting.first_parted(theirs, partners, wrong_weights)
        parted_original = parting.first_parted(ours, back)
    if parted:
        # The other graph may lack more, such as a mask that this one makes inside of an operator.
        read = {partners[each] for node in parted for each in node.all_input_nodes if each in partners}
        values = {node: partners.get(other) for node, other in back.items()}
        same = {node for node, value in values.items() if node in read or value in read}
        parted_original = [
            n for n in parted_original if same.intersection(n.all_input_nodes)
        ] or parted_original
        if made := _made_otherwise(ours, theirs, partners, back, parted):
            parted, parted_original = [*made], [*made.values()]
    return Alignment(ours, theirs, partners, back, parted, parted_original, agree, tuple(left))


def _made_otherwise(
    ours: Side, theirs: Side, partners: dict[Node, Node], back: dict[Node, Node], parted: list[Node]
) -> dict[Node, Node]:
    """Return the first steps toward constants of parted nodes that the original takes with other results.

    A constant in another form, such as a mask, counts as right. But a step that both graphs take on the same
    values, or on weights of their own, is the difference: in a table of rotary positions, say.
    """
    odd: set[Node] = set()
    ahead = [*parted]
    while ahead:
        read = (n for n in ahead.pop().all_input_nodes if n in theirs.values and n in theirs.constant)
        new = {node for node in read if node not in partners and node not in odd}
        odd |= new
        ahead += new
    made = [node for node in theirs.values if node in odd]
    constants = sorted((n for n in ours.values if n in ours.constant), key=lambda node: node not in back)
    modules = {side: modules_by_path(side.module) for side in (ours, theirs)}

    def steps(side: Side, nodes: Iterable[Node], known: Mapping[Node, Node | None]) -> dict[Hashable, Node]:
        """Return the nodes by kind, elements and arguments."""
        return {
            (kind_text(node, modules[side]), side.elements(node), *map(known.get, node.all_input_nodes)): node
            for node in nodes
            if node.op != "get_attr" and all(n in known or n.op == "get_attr" for n in node.all_input_nodes)
        }

    same = {node: partners.get(other) for node, other in back.items()}
    taken = steps(ours, constants, same)
    again = {node: same.get(other) for node, other in partners.items()}
    found = {node: taken[step] for step, node in steps(theirs, made, again).items() if step in taken}
    if found:
        return found
    # An argument of one of them is made in another way: a module gives the other values for it.
    places = {(kind_text(n, modules[ours]), module_path(n)): n for n in constants if n not in back}
    pairs = ((node, places.get((kind_text(node, modules[theirs]), module_path(node)))) for node in made)
    return dict([(node, other) for node, other in pairs if other is not None and other.op != "get_attr"][:1])


def paired_paths(original: Mapping[str, int], transformed: Mapping[str, int]) -> dict[str, str]:
    """Pair outputs of one path, and others in their order, if they have as many elements."""
    pairs = {path: path for path in original if path in transformed}
    rest = [path for path in original if path not in pairs]
    for other in (path for path in transformed if path not in pairs.values()):
        if (path := next((p for p in rest if original[p] == transformed[other]), None)) is not None:
            pairs[path] = other
            rest = rest[rest.index(path) + 1 :]
    return pairs or dict(zip(original, transformed, strict=False))


def _is_same_output(ours: Side, path: str, theirs: Side, other: str) -> bool:
    tolerances = ours.tolerance_of_outputs.get(path, 0.0), theirs.tolerance_of_outputs.get(other, 0.0)
    return theirs.outputs[other].is_output_like(ours.outputs[path], max(*tolerances, TOLERANCE))
