"""Align the nodes of two graphs by their values, and find where they part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from torch.fx import GraphModule, Node

from fxlab.models.running import Inputs
from fxlab.node_info import frames_of, module_path, target_text
from fxlab.sources import Model
from fxlab.validation.alignment.fingerprint import Fingerprint, Found
from fxlab.validation.arguments import graphs_to_run
from fxlab.validation.verdicts.float64_run import run_in_float64
from fxlab.values.nested import Path, tensors_inside

if TYPE_CHECKING:
    import pandas as pd

_MOST_WORDS = 3


@dataclass(frozen=True)
class Alignment:
    """The nodes of two graphs that compute the same values; ``str()`` says where the graphs part."""

    partners: dict[str, str]
    """Node of the transformed graph -> node of the original with the same values, in any shape and order.

    Several nodes may have one partner, as those that only reshape.
    """
    parted: tuple[str, ...]
    """The first nodes of the transformed graph whose values the original does not have.

    The original has the values that they read, and the results depend on them. Empty if the results agree.
    """
    parted_original: tuple[str, ...]
    """The same of the original."""
    weights: dict[str, tuple[str, ...]]
    """What such a node reads of parameters, constants and masks that the other graph does not have.

    It may be what is wrong, or be merged or split.
    """
    unaligned: tuple[str, ...]
    """All nodes of the transformed graph that compute tensors and have no partner.

    Parts of a step that the other graph takes at once are among them.
    """
    outputs: dict[str, bool]
    """Whether the outputs agree, by their path."""
    graphs: tuple[GraphModule, GraphModule] = field(repr=False, compare=False)
    """The original and the transformed graph."""

    @property
    def agrees(self) -> bool:
        """Whether all outputs have the same values, up to the rounding of float64."""
        return all(self.outputs.values())

    def frontier(self) -> pd.DataFrame:
        """Return a row for each node at which the graphs part: where it stands, and what it reads."""
        import pandas as pd

        rows = [
            {
                "graph": graph,
                "node": name,
                "target": target_text(node),
                "module_path": module_path(node),
                "line": next((f"{frame['file']}:{frame['line']}" for frame in frames_of(node)[:1]), ""),
                "reads": ", ".join(
                    self.partners.get(other.name, other.name) for other in node.all_input_nodes
                ),
                "weights": ", ".join(self.weights.get(name, ())),
            }
            for graph, module, names in self._sides()
            for node in module.graph.nodes
            for name in (node.name,)
            if name in names
        ]
        columns = ["graph", "node", "target", "module_path", "line", "reads", "weights"]
        return pd.DataFrame(rows, columns=columns)

    def _sides(self) -> Iterator[tuple[str, GraphModule, tuple[str, ...]]]:
        original, transformed = self.graphs
        yield "transformed", transformed, self.parted
        yield "original", original, self.parted_original

    def __str__(self) -> str:
        aligned = f"{len(self.partners)} of {len(self.partners) + len(self.unaligned)} nodes have a partner"
        if self.agrees:
            return f"The outputs agree; {aligned}."
        if not (self.parted or self.parted_original):
            wrong = ", ".join(path for path, agrees in self.outputs.items() if not agrees)
            return f"All values have a partner, but {wrong} is another one; {aligned}."
        first, second = (_listed(names) for names in (self.parted, self.parted_original))
        there = f" The original has {second} there." if second else ""
        weights = sorted({name for names in self.weights.values() for name in names})
        also = f" Weights without a partner: {_listed(tuple(weights))}." if weights else ""
        return f"The graphs part at {first or 'no node of the transformed one'}.{there}{also} ({aligned}.)"


def align(original: Model, transformed: Model | None = None, inputs: Inputs | None = None) -> Alignment:
    """Align the nodes of two graphs by what they compute, and find where they part.

    The graphs may be of any origin: a port by hand beside the model, an exported program, a merged or
    quantized copy. Neither names nor structure count: each graph runs once in float64, and two nodes are
    partners if their results have the same elements, in any shape, order and dtype. Steps that one graph
    takes at once and the other in several lie between partners.

    Parameters
    ----------
    original, transformed, inputs
        As for :func:`compare_nodes`. Both graphs take the same inputs.

    Returns
    -------
    Alignment
        The partners, and the nodes at which the graphs part.

    Raises
    ------
    TypeError
        If a model is no module or session, or ``inputs`` nothing that a model can be called with.
    ValueError
        If a node does not run on the inputs, or not in float64, or draws random numbers, or a module has no
        weights.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from torch.nn import functional as F
    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
    ...
    ...     def forward(self, x):
    ...         return x + self.down(F.gelu(self.up(x)))
    >>> class Port(nn.Module):
    ...     def __init__(self, block):
    ...         super().__init__()
    ...         self.block = block
    ...
    ...     def forward(self, x):
    ...         hidden = x @ self.block.up.weight.T + self.block.up.bias
    ...         hidden = F.gelu(hidden, approximate="tanh")
    ...         return hidden @ self.block.down.weight.T + self.block.down.bias + x
    >>> block = Block()
    >>> found = align(torch.fx.symbolic_trace(block), torch.fx.symbolic_trace(Port(block)), torch.randn(3, 4))
    >>> found.parted, found.parted_original
    (('gelu',), ('gelu',))
    """
    return aligned(*graphs_to_run(original, transformed, inputs))


def aligned(original: GraphModule, transformed: GraphModule, inputs: Inputs) -> Alignment:
    """Align two graphs that run node by node; see :func:`align`."""
    ours, theirs = _Side(original, inputs), _Side(transformed, inputs)
    partners, back = theirs.partners_in(ours), ours.partners_in(theirs)
    outputs = _outputs(ours.outputs, theirs.outputs)
    parted, parted_original = (
        ([], []) if all(outputs.values()) else (theirs.parted(partners), ours.parted(back))
    )
    if parted:
        # The other graph may lack more, such as a mask that this one makes inside of an operator.
        read = {partners[each] for node in parted for each in node.all_input_nodes if each in partners}
        values = {node: partners.get(other) for node, other in back.items()}
        same = {node for node, value in values.items() if node in read or value in read}
        parted_original = [
            n for n in parted_original if same.intersection(n.all_input_nodes)
        ] or parted_original
    return Alignment(
        partners={node.name: other.name for node, other in partners.items()},
        parted=tuple(node.name for node in parted),
        parted_original=tuple(node.name for node in parted_original),
        weights=ours.odd_weights(parted_original, back) | theirs.odd_weights(parted, partners),
        unaligned=tuple(node.name for node in theirs.values if node not in partners),
        outputs=outputs,
        graphs=(original, transformed),
    )


def _outputs(original: dict[str, Fingerprint], transformed: dict[str, Fingerprint]) -> dict[str, bool]:
    """Compare outputs of the same path, and others in their order."""
    paths = {path: path for path in transformed if path in original}
    rest = [path for path in original if path not in paths]
    others = [path for path in transformed if path not in paths]
    paths |= dict(zip(others, rest, strict=False))
    agree = {
        path: value.is_like(original[paths[path]]) for path, value in transformed.items() if path in paths
    }
    unpaired = [*others[len(rest) :], *rest[len(others) :]]
    return agree | dict.fromkeys(unpaired, False)


def _listed(names: tuple[str, ...]) -> str:
    rest = len(names) - _MOST_WORDS
    return ", ".join(names[:_MOST_WORDS]) + (f" and {rest} more" if rest > 0 else "")


class _Side:
    """A graph that has run: the fingerprints of its values."""

    def __init__(self, module: GraphModule, inputs: Inputs) -> None:
        self.values: dict[Node, dict[Path, Fingerprint]] = {}

        def note(node: Node, result: Any) -> None:
            if node.op != "output" and (tensors := list(tensors_inside(result))):
                self.values[node] = {path: Fingerprint.of(tensor) for path, tensor in tensors}

        returned = run_in_float64(module, inputs, visit=note).returned
        self.outputs = {path: Fingerprint.of(tensor) for path, tensor in returned.items()}
        self._module = module
        self._constant: set[Node] = set()
        """Those that no tensor of the inputs reaches: weights, what is made of them, masks and positions."""
        for node in module.graph.nodes:
            read = (each for each in node.all_input_nodes if each in self.values)
            if node.op not in ("placeholder", "output") and self._constant.issuperset(read):
                self._constant.add(node)

    def partners_in(self, other: _Side) -> dict[Node, Node]:
        """Return, by node, a node of the other graph that has all its values.

        Of several, the one that reads partners of what the node reads; then that of the same name or place.
        """
        found: Found[Node] = Found()
        order = {}
        for index, (node, values) in enumerate(other.values.items()):
            order[node] = index
            for value in values.values():
                found.add(value, node)
        partners: dict[Node, Node] = {}
        latest = -1
        for node, values in self.values.items():
            shared = set.intersection(*({*found.like(value)} for value in values.values()))
            if not shared:
                continue
            read = {partners[each] for each in node.all_input_nodes if each in partners}

            partners[node] = best = max(shared, key=partial(_fit_of, node, read, order, latest))
            latest = order[best]
        return partners

    def parted(self, partners: Mapping[Node, Node]) -> list[Node]:
        """Return the first nodes without a partner on which the results depend."""
        lost: set[Node] = set()
        leading: set[Node] = set()  # to an output, past no value that has a partner
        for node in reversed(self._module.graph.nodes):
            if node.op == "output" or (node not in partners and not leading.isdisjoint(node.users)):
                leading.add(node)
                if node in self.values:
                    lost.add(node)
        return [
            node
            for node in self._module.graph.nodes
            if node in lost
            and node not in self._constant
            and not any(each in lost and each not in self._constant for each in node.all_input_nodes)
        ]

    def odd_weights(self, nodes: list[Node], partners: Mapping[Node, Node]) -> dict[str, tuple[str, ...]]:
        """Return, by node, the weights and constants without a partner that it reads."""
        odd = {
            node.name: tuple(
                each.name
                for each in node.all_input_nodes
                if each in self.values and each in self._constant and each not in partners
            )
            for node in nodes
        }
        return {name: weights for name, weights in odd.items() if weights}


def _fit_of(
    node: Node, read: set[Node], order: Mapping[Node, int], latest: int, candidate: Node
) -> tuple[Any, ...]:
    """Return more for a candidate that fits a node better, whose inputs' partners are known."""
    return (
        (candidate.op == "placeholder") == (node.op == "placeholder"),
        len(read.intersection(candidate.all_input_nodes)),
        candidate.name == node.name,
        module_path(candidate) == module_path(node),
        -abs(order[candidate] - latest - 1),
    )
