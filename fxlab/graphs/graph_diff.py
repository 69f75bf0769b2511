"""``fxlab.graph_diff``: the nodes in which two graphs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule, Node

from fxlab.base.first_use import pd
from fxlab.front_desk.sources import Model, compared_graphs
from fxlab.graphs.lineage import is_same_capture
from fxlab.graphs.matching import known_to_agree, match_nodes
from fxlab.graphs.node_difference import inputs_in_order, what_differs
from fxlab.graphs.unfolded import unfolded
from fxlab.operators.node_info import module_path, target_text
from fxlab.transformations.journal.journal import Journal
from fxlab.transformations.journal.name_order import merged_order, moved_nodes
from fxlab.transformations.marks import marks

COLUMNS = (
    "change", "differs", "op_before", "op", "target_before", "target", "inputs_before", "inputs",
    "module_path", "marked",
)  # fmt: skip


def graph_diff(reference: Model, candidate: Model) -> pd.DataFrame:
    """List the nodes in which two graphs differ.

    Nodes are the same if they have the same name; in two captures of one model, such as an exported program
    before and after decomposition, if they end the same step of it. Weights are compared by their bits,
    modules by all of their state; nothing is run, and no weights are needed (the meta device suffices).

    Parameters
    ----------
    reference, candidate
        The model before and after: graph modules, or modules, functions and exported programs.

    Returns
    -------
    pandas.DataFrame
        One row for each node that differs, indexed by its name (``node``), in the order of both graphs. A
        removed node is called ``name (original)`` if another now has its name:

        ``change``
            ``added``, ``removed``, ``changed`` (it does something else) or ``rewired`` (it does the same, to
            other nodes); ``moved`` if the graphs differ only in the order of their nodes.
        ``differs``
            A list of ``op``, ``target``, ``arguments``, ``values`` (of parameters, buffers and
            constants), ``settings`` (all else of a module) and ``inputs``; or ``order``.
        ``op_before``, ``op``, ``target_before``, ``target``, ``inputs_before``, ``inputs``
            Its properties before and now; ``None`` in a graph without it. Inputs are names of nodes.
        ``module_path``
            The path of its module in the model.
        ``marked``
            Whether a pass accounts for it: by a mark that the original does not have, or an entry of its
            journal. A rewired or removed node needs none if a neighbour has one.

    Raises
    ------
    TypeError
        If one of the two is no module or session.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from fxlab import FuseBatchNorm2dInConv2d
    >>> layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
    >>> graph = torch.fx.symbolic_trace(nn.Sequential(*layers).eval())
    >>> fused = FuseBatchNorm2dInConv2d()(torch.fx.symbolic_trace(graph))
    >>> graph_diff(graph, fused)["change"].to_dict()
    {'evaluation_mode': 'added', '_0': 'changed', '_1': 'removed', '_2': 'rewired'}
    """
    before, after = map(unfolded, compared_graphs(reference, candidate))
    owned = _owned(before, after)
    read = {node.name: _input_names(node) for node in after.graph.nodes}
    pairs = None if is_same_capture(before, after) else match_nodes(before, after).originals
    rows = {
        one.name: [*one.row, one.name in owned or one.follows_from(owned, read)]
        for one in _differences_of(before, after, pairs)
    }
    if not rows and pairs is None:
        nodes = [{node.name: node for node in module.graph.nodes} for module in (before, after)]
        for name in moved_nodes(before, after):
            one = _Difference(name, nodes[0][name], nodes[1][name], ["order"])
            rows[name] = [*one.row, name in owned]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS), dtype=object)
    return table.rename_axis("node")


@dataclass(frozen=True)
class _Difference:
    name: str
    before: Node | None
    after: Node | None
    differs: list[str]

    @property
    def change(self) -> str:
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        return {"inputs": "rewired", "order": "moved"}.get(",".join(self.differs), "changed")

    @property
    def row(self) -> list[Any]:
        a, b = self.before, self.after
        place = b if b is not None else a
        return [
            self.change,
            self.differs,
            a and a.op,
            b and b.op,
            a and target_text(a),
            b and target_text(b),
            a and _input_names(a),
            b and _input_names(b),
            place and module_path(place),
        ]

    def follows_from(self, owned: set[str], inputs: dict[str, list[str]]) -> bool:
        """Tell whether a node was removed or rewired because of owned nodes."""
        if self.change == "removed" and self.before is not None:
            beside = {node.name for node in (*self.before.all_input_nodes, *self.before.users)}
            read_instead = {value for name in beside for value in inputs.get(name, ())}
            return not owned.isdisjoint(beside | read_instead)
        if self.change == "rewired" and self.before is not None and self.after is not None:
            pairs = zip(_input_names(self.before), _input_names(self.after), strict=True)
            return all(a == b or a in owned or b in owned for a, b in pairs)
        return False


def changes_by_name(a: GraphModule, b: GraphModule) -> dict[str, str]:
    """Return the change of each node in which two graphs of any origin differ, by its name."""
    return {difference.name: difference.change for difference in _differences_of(a, b, None)}


def _differences_of(
    a: GraphModule, b: GraphModule, pairs: Mapping[Node, Node] | None
) -> Iterator[_Difference]:
    names = _names_in_common(a, b, pairs)
    before, after = ({names[node]: node for node in module.graph.nodes} for module in (a, b))
    agreed = known_to_agree(a, b)
    for name in merged_order(list(before), list(after)):
        old, new = before.get(name), after.get(name)
        differs = []
        if name in agreed:
            continue
        if old is not None and new is not None:
            differs = what_differs(old, new, a, b)
            ours, theirs = ([names[value] for value in inputs_in_order(node)] for node in (old, new))
            if ours != theirs:
                differs.append("inputs")
        if differs or old is None or new is None:
            yield _Difference(name, old, new, differs)


def _names_in_common(a: GraphModule, b: GraphModule, pairs: Mapping[Node, Node] | None) -> dict[Node, str]:
    """Return a name for each node of both graphs, the same for partners."""
    names = {node: node.name for module in (a, b) for node in module.graph.nodes}
    if pairs is None:
        return names
    partners = {other: node.name for node, other in pairs.items()}
    taken = {node.name for node in b.graph.nodes}
    for node in a.graph.nodes:
        names[node] = partners.get(node, f"{node.name} (original)" if node.name in taken else node.name)
    return names


def _owned(a: GraphModule, b: GraphModule) -> set[str]:
    """Return the names of the nodes that passes have marked, or written to their journals."""
    known = {(node.name, mark) for node in a.graph.nodes for mark in marks(node)}
    new = {(node.name, mark) for node in b.graph.nodes for mark in marks(node)} - known
    signatures = {mark for _, mark in new}
    owned = {name for name, _ in new}
    records = (record for record in Journal.of(b).records if record.signature in signatures)
    return owned.union(*(record.touched for record in records))


def _input_names(node: Node) -> list[str]:
    return [value.name for value in inputs_in_order(node)]
