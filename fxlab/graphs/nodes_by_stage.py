"""The fate of each node, stage by stage."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from torch.fx import GraphModule

from fxlab.checks import flag
from fxlab.first_use import pd
from fxlab.garbage import without_collecting
from fxlab.graphs.matching import Provenance
from fxlab.graphs.node_difference import inputs_in_order, what_differs
from fxlab.graphs.unfolded import unfolded
from fxlab.sources import SessionLike, checked_session
from fxlab.transformations.journal.name_order import merged_order

Change = Literal["", "same", "added", "changed", "rewired", "replaced", "removed"]

_SIGNS = {"": "", "same": "·", "added": "+", "changed": "≠", "rewired": "⇄", "replaced": "→", "removed": "—"}


@dataclass(frozen=True, slots=True)
class NodeAtStage:
    """A node at a stage; as text, the sign that the inspector has for it and names.

    Examples
    --------
    >>> print(NodeAtStage("changed", ("query", "query_key_merged"), ("op", "target")))
    ≠ op, target → query_key_merged
    >>> print(NodeAtStage("replaced", ("query_key_merged",)))
    → query_key_merged
    >>> print(NodeAtStage("same", ("x",)), NodeAtStage("removed"))
    · —
    """

    change: Change
    """``same``; ``added``, ``changed``, ``rewired`` and ``removed`` as in :func:`fxlab.graph_diff`;
    ``replaced`` if other nodes stand for it; ``""`` at stages before the first one that has it."""
    nodes: tuple[str, ...] = ()
    """The names of the stage's nodes that stand for it, its own name first."""
    differs: tuple[str, ...] = ()
    """Aspects in which the node differs from the first one of its name, as in :func:`fxlab.graph_diff`."""

    @property
    def words(self) -> str:
        """A sign for the change, the aspects that differ, and an arrow to other nodes that stand for it."""
        differs = ", ".join(part for part in self.differs if part != "inputs")
        arrow = "→" if self.others and self.change != "replaced" else ""
        return " ".join(filter(None, (_SIGNS[self.change], differs, arrow)))

    @property
    def others(self) -> tuple[str, ...]:
        """The names of the nodes that stand for it, without its own."""
        return self.nodes if self.change == "replaced" else self.nodes[1:]

    def __str__(self) -> str:
        return " ".join(filter(None, (self.words, ", ".join(self.others))))


def nodes_by_stage(session: SessionLike, *, unchanged: bool = False) -> "pd.DataFrame":
    """Follow each node of a session through its stages, from the original to the last pass that is on.

    The journals of the passes tell which nodes of a stage stand for which of the stage below: a merged linear
    stands for all that were merged. Without a journal, nodes are matched by their names and their users.
    These steps are chained from the first stage to the last. Nothing is run.

    Parameters
    ----------
    session
        A :class:`fxlab.Session`.
    unchanged
        Whether to list also nodes that are the same at every stage.

    Returns
    -------
    pandas.DataFrame
        One row for each node of the original and for each that a pass has added, indexed by its name
        (``node``), in the order of the graphs. One column for each stage: ``original``, and the names of the
        passes that are on. Each cell is a :class:`~fxlab.graphs.nodes_by_stage.NodeAtStage`, with
        ``change``, ``nodes`` (the names of the nodes that stand for it there) and ``differs``. Printed,
        ``·`` is the same, ``≠ target`` changed in its target, ``⇄`` the same on other inputs,
        ``→ merged`` replaced by ``merged``, ``+`` added, and ``—`` gone. A node is compared with the node of
        its name at the first stage that has one.

    Raises
    ------
    TypeError
        If ``session`` is no session.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from fxlab import FuseBatchNorm2dInConv2d, Session
    >>> layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
    >>> session = Session(torch.fx.symbolic_trace(nn.Sequential(*layers).eval()))
    >>> _ = session.apply("fuse-batch-norm2d-in-conv2d")
    >>> table = nodes_by_stage(session)
    >>> table["fuse-batch-norm2d-in-conv2d"].map(str).to_dict()
    {'evaluation_mode': '+', '_0': '≠ settings, values', '_1': '→ _0', '_2': '⇄'}
    >>> table.loc["_1", "fuse-batch-norm2d-in-conv2d"].nodes
    ('_0',)
    """
    flag(unchanged, "unchanged")
    stages, columns = checked_session(session).stages, stage_names(session)
    with without_collecting():
        rows = _rows(stages)
    listed = [name for name, row in rows.items() if unchanged or any(cell.change != "same" for cell in row)]
    index = pd.Index(listed, name="node", dtype=object)
    return pd.DataFrame([rows[name] for name in listed], index=index, columns=columns, dtype=object)


def stage_names(session: SessionLike) -> list[str]:
    """Return the names of the stages of a session in tables."""
    return ["original", *(p.name for p in session.applied)]


class _Stage:
    """A stage, and the counterparts in it of the nodes of the stage below."""

    def __init__(self, graph_module: GraphModule, below: "_Stage | None") -> None:
        self.graph_module = graph_module
        self.nodes = {node.name: node for node in graph_module.graph.nodes}
        self.inputs = {
            name: [value.name for value in inputs_in_order(node)] for name, node in self.nodes.items()
        }
        self.became: dict[str, list[str]] = defaultdict(list)
        """Nodes of the stage below -> their counterparts."""
        self.unchanged: frozenset[str] = frozenset()
        """The nodes that do the same as those of their names in the stage below."""
        if below is not None:
            provenance = Provenance(below.graph_module, graph_module)
            for node in self.nodes.values():
                for other in provenance.of(node):
                    self.became[other.name].append(node.name)
            matching = provenance.matching
            self.unchanged = frozenset(
                node.name for node in matching.unchanged if matching.originals[node].name == node.name
            )

    def differs(self, name: str, first: "_Stage", below: tuple[str, ...]) -> tuple[str, ...]:
        """Return the aspects in which a node differs from the first of its name; ``below``: a stage below."""
        if name in self.unchanged:
            found = [part for part in below if part != "inputs"]
        else:
            found = what_differs(first.nodes[name], self.nodes[name], first.graph_module, self.graph_module)
        return tuple(found if first.inputs[name] == self.inputs[name] else [*found, "inputs"])


def _rows(graph_modules: tuple[GraphModule, ...]) -> dict[str, list[NodeAtStage]]:
    stages: list[_Stage] = []
    order: list[str] = []
    for graph_module in map(unfolded, graph_modules):
        stages.append(_Stage(graph_module, stages[-1] if stages else None))
        order = merged_order(order, list(stages[-1].nodes))
    return {name: _row(name, stages) for name in order}


def _row(name: str, stages: list[_Stage]) -> list[NodeAtStage]:
    number = next(number for number, stage in enumerate(stages) if name in stage.nodes)
    first = stages[number]
    row = [NodeAtStage("")] * number
    row.append(NodeAtStage("added" if number else "same", (name,)))
    for stage in stages[number + 1 :]:
        below = row[-1]
        standing = dict.fromkeys(other for node in below.nodes for other in stage.became.get(node, ()))
        standing.pop(name, None)
        if name not in stage.nodes:
            row.append(NodeAtStage("replaced" if standing else "removed", tuple(standing)))
            continue
        differs = stage.differs(name, first, below.differs)
        change: Change = "same" if not differs else "rewired" if differs == ("inputs",) else "changed"
        row.append(NodeAtStage(change, (name, *standing), differs))
    return row
