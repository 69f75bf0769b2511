"""Elementwise calls on numbers of sixteen bits: what a pass has made of them is judged on all there are.

A verdict asks for it, since one run shows some thousand numbers of a tensor, and there are 65,536.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Node

from fxlab.base.first_use import pd
from fxlab.base.words import counted, listed
from fxlab.graphs.matching import match_nodes
from fxlab.graphs.node_difference import inputs_in_order, what_differs
from fxlab.models.state.tensor_state import tensors_of
from fxlab.operators import draws_random_numbers, sets_global_state
from fxlab.operators.node_info import attribute_at, dtype_name
from fxlab.operators.operator import operator_called
from fxlab.operators.results import casts
from fxlab.transformations.analysis.dtypes_and_sizes import known_dtype
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.values.tensors import bits_of

DTYPES = torch.bfloat16, torch.float16
_LONGEST = 64
"""The most calls of a chain, beside which it is of no use to look for where it began."""
_SHOWN = 3


@dataclass(frozen=True)
class Chain:
    """Elementwise calls that compute one tensor from another, and what a pass has made of them."""

    name: str
    begins_at: Node
    """The node of the original that computes the tensor."""
    dtype: torch.dtype
    original: GraphModule
    transformed: GraphModule

    def numbers(self, device: torch.device) -> torch.Tensor:
        """Return all finite numbers of the dtype, in one row."""
        every = torch.arange(-(2**15), 2**15, dtype=torch.int16, device="cpu").view(self.dtype)
        return every[every.isfinite()].to(device)

    def words(self, count: int) -> str:
        """Say how many numbers give other bits."""
        number = f"{count:,} give" if count else "none gives"
        return f"of all finite numbers of {dtype_name(self.dtype)} {number} other bits"

    def differing(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the numbers for which the two do not give the same bits, or the same ``NaN``.

        Operators compute elements that lie apart by other instructions than those side by side.
        """
        apart = torch.stack([numbers, numbers], 1)[:, 0]
        differs = torch.zeros(numbers.shape, dtype=torch.bool, device=numbers.device)
        with torch.no_grad():
            for given in (numbers, apart):
                ours, theirs = self.original(given), self.transformed(given)
                if ours.dtype != theirs.dtype:
                    return numbers
                is_same = (bits_of(ours) == bits_of(theirs)).reshape(*numbers.shape, -1).all(1)
                differs |= ~is_same & ~(ours.isnan() & theirs.isnan())
        return numbers[differs]


@dataclass(frozen=True)
class EveryNumber:
    """The findings on all chains that a pass has changed."""

    proved: tuple[Chain, ...] = ()
    others: tuple[tuple[Chain, torch.Tensor], ...] = ()
    """Chains that give other bits for some numbers, and these numbers."""
    is_all: bool = False
    """Whether nothing else has changed, so that both graphs give the same bits for every input."""

    @property
    def notes(self) -> Iterator[str]:
        """The findings in words."""
        for dtype, count in Counter(chain.dtype for chain in self.proved).items():
            names = listed([chain.name for chain in self.proved if chain.dtype is dtype])
            rest = ", which is all that changed" if self.is_all else ""
            of = f"proved for all finite numbers of {dtype_name(dtype)}"
            yield f"{of}: {counted(count, 'call')} ({names}){rest}"
        for chain, numbers in self.others:
            some = ", ".join(f"{number:g}" for number in numbers[:_SHOWN].tolist())
            more = ", ..." if len(numbers) > _SHOWN else ""
            yield f"{chain.name}: {chain.words(len(numbers))} ({some}{more})"


def every_number(original: GraphModule, transformed: GraphModule) -> EveryNumber:
    """Run each changed chain, before and after, on every finite number of its dtype."""
    dtypes = {tensor.dtype for tensor in tensors_of(original)}
    if dtypes.union(map(known_dtype, original.graph.find_nodes(op="placeholder"))).isdisjoint(DTYPES):
        return EveryNumber()
    if any(sets_global_state(node) for graph in (original.graph, transformed.graph) for node in graph.nodes):
        return EveryNumber()  # the calls of a chain may be under other settings
    proved, others = list[Chain](), list[tuple[Chain, torch.Tensor]]()
    chains, is_all = changed_chains(original, transformed)
    device = next((tensor.device for tensor in tensors_of(original)), torch.device("cpu"))
    for chain in chains:
        try:
            found = chain.differing(chain.numbers(device))
        except Exception:  # a device may lack the operator for such a tensor, or the chain raises
            is_all = False
            continue
        if len(found):
            others.append((chain, found))
        else:
            proved.append(chain)
    return EveryNumber(tuple(proved), tuple(others), is_all and bool(proved) and not others)


def with_proofs(table: pd.DataFrame, below: GraphModule, above: GraphModule) -> pd.DataFrame:
    """Return an explanation whose reasons tell how many numbers give other bits after a change."""
    every = every_number(below, above)
    words = {chain.name: chain.words(0) for chain in every.proved}
    words |= {chain.name: chain.words(len(numbers)) for chain, numbers in every.others}
    rows = zip(table.index, table["matched"], table["reason"], strict=True)
    return table.assign(
        reason=[f"{why}; {words[name]}" if fits and name in words else why for name, fits, why in rows]
    )


def changed_chains(original: GraphModule, transformed: GraphModule) -> tuple[list[Chain], bool]:
    """Return the chains of one tensor of sixteen bits that differ, and whether nothing else does."""
    matching = match_nodes(original, transformed)
    sides = _Side(original), _Side(transformed)
    found, explained = list[Chain](), set[Node]()
    changed = [n for n in transformed.graph.nodes if n not in matching.unchanged and n.op != "placeholder"]
    for node in changed:
        if (other := matching.originals.get(node)) is None:
            continue
        is_end = node.op == "output" or not what_differs(other, node, original, transformed)
        read = zip(inputs_in_order(other), inputs_in_order(node), strict=False)
        pairs = [(a, b) for a, b in read if matching.originals.get(b) is not a] if is_end else [(other, node)]
        chains = [_chain(before, after, sides, matching.originals) for before, after in pairs]
        found += [chain for chain, _ in filter(None, chains)]
        if all(chains):
            explained |= {node}.union(*(calls for _, calls in filter(None, chains)))
    return found, all(node.op == "get_attr" or node in explained for node in changed)


def _chain(
    before: Node, after: Node, sides: tuple[_Side, _Side], originals: dict[Node, Node]
) -> tuple[Chain, set[Node]] | None:
    """Return the two ways to compute a value from one tensor, and the calls of the second; or ``None``."""
    for stops in (originals.keys() - {after}, set[Node]()):
        calls, reads = sides[1].calls_before(after, stops)
        begin = originals.get(next(iter(reads))) if len(reads) == 1 else None
        if not calls or begin is None or (dtype := known_dtype(begin)) not in DTYPES:
            continue
        theirs, others = sides[0].calls_before(before, {begin})
        if theirs and others == {begin}:
            modules = sides[0].as_module(theirs, begin), sides[1].as_module(calls, next(iter(reads)))
            return Chain(before.name, begin, dtype, *modules), calls
    return None


class _Side:
    """One of the two graphs."""

    def __init__(self, module: GraphModule) -> None:
        self._module, self.facts = module, GraphFacts(module)

    def calls_before(self, end: Node, stops: set[Node]) -> tuple[set[Node], set[Node]]:
        """Return the elementwise calls that lead to a node, and the tensors where they begin."""
        calls, reads, pending = set[Node](), set[Node](), [end]
        while pending:
            node = pending.pop()
            if node in stops or not self._is_elementwise(node) or len(calls) > _LONGEST:
                reads.add(node)
            elif node not in calls:
                calls.add(node)
                pending += node.all_input_nodes
        return calls, reads

    def _is_elementwise(self, node: Node) -> bool:
        if self.facts.writes.is_written(node) or draws_random_numbers(node):
            return False
        if node.op == "get_attr":
            value = attribute_at(self._module, str(node.target), None)
            return isinstance(value, torch.Tensor) and value.numel() == 1
        operator = operator_called(node, self._module)
        return operator is not None and (operator.is_pointwise or casts(node))

    def as_module(self, calls: set[Node], root: Node) -> GraphModule:
        """Return a module of some calls, as a function of one tensor."""
        graph = Graph()
        copies = {root: graph.placeholder("x")}
        for node in self._module.graph.nodes:
            if node in calls:
                copies[node] = graph.node_copy(node, copies.__getitem__)
                copies[node].meta = {}
        graph.output(copies[next(node for node in reversed(self._module.graph.nodes) if node in calls)])
        return GraphModule(self._module, graph)
