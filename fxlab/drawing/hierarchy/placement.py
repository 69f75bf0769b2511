"""The module call that each node of a graph belongs to, by which a hierarchy is built."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import fx, nn

from fxlab.graphs.unfolded import PLACE, BodyPlace
from fxlab.models.graph_modules.parts import is_container
from fxlab.operators import computes, node_info

CALLS = ("call_module", "call_function", "call_method")
_CALL_NUMBER = re.compile(r"@\d+$")


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of one module: the unit that becomes a group."""

    path: str
    """The module's path, with ``@1`` and so on after it for its second and later calls."""
    class_name: str
    label: str = ""
    """The name of the group, if it is not the end of its path."""


BACKWARD, RECOMPUTED = " (backward)", " (recomputed)"
"""The ends of paths of calls in the backward pass."""

Chain = tuple[ModuleCall, ...]
"""Module calls from the outermost to the innermost; empty for the root."""


_FORWARD_PASS, _BACKWARD_PASS = (ModuleCall("forward pass", ""),), (ModuleCall("backward pass", ""),)


class Placement:
    """Finds the chain of module calls around every node of a graph, in time linear in the graph."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        self.modules: dict[str, nn.Module] = node_info.modules_by_path(graph_module)
        self._from_stack: dict[tuple[Any, ...], Chain] = {}
        self._calls: dict[tuple[str, str], ModuleCall | None] = {}
        """Key and path of an entry of a stack -> the call that it stands for."""
        self._from_path: dict[str, Chain] = {}
        self._backward: dict[tuple[Chain, str], Chain] = {}
        self._has_stacks = False
        self._of_state: set[str] = set()
        self.backward = backward_nodes(graph_module.graph)
        """The nodes of the backward pass of a step."""
        is_noted = node_info.is_backward(next(iter(self.backward))) if self.backward else True
        self._unnoted: frozenset[fx.Node] = frozenset() if is_noted else self.backward
        self.weights: frozenset[fx.Node] = frozenset(
            node
            for node in graph_module.graph.find_nodes(op="placeholder")
            if node_info.state_path(node) is not None
        ) or weights_by_gradient(graph_module.graph, self._unnoted)
        """Inputs that belong to the module that reads them."""
        self.chains: dict[fx.Node, Chain] = _in_bodies(self._place(graph_module.graph))

    def _place(self, graph: fx.Graph) -> dict[fx.Node, Chain]:
        known: dict[fx.Node, Chain] = {}
        parameters: dict[fx.Node, Chain] = {}
        unplaced: list[tuple[fx.Node, Chain | None]] = []
        last: Chain | None = None
        for node in graph.nodes:
            chain = self._stack_chain(node)
            if chain is not None and chain is not last:
                self._register(chain)
                last = chain
            if chain is not None and node.op in CALLS:
                known[node] = self._in_its_pass(node, chain)
            else:
                unplaced.append((node, chain))
        for node, chain in unplaced:
            if (path := node_info.state_path(node)) is not None:
                self._of_state.update(node_info.modules_around(path))
                parameters[node] = self._path_chain(path.rpartition(".")[0])
            elif node.op in ("placeholder", "output"):
                known[node] = ()
            elif node.op == "get_attr":
                parameters[node] = chain or self._path_chain(str(node.target).rpartition(".")[0])
            elif node.op == "call_module":
                known[node] = self._path_chain(str(node.target).rpartition(".")[0])
            elif shared := _common(parameters[n] for n in node.all_input_nodes if n in parameters):
                known[node] = self._in_its_pass(node, shared)
        if len(known) + len(parameters) < len(graph.nodes):
            if self._unnoted and not self._has_stacks:
                return self._in_order(graph, known) | parameters
            known = self._settle(graph, known)
        return known | parameters

    def _in_order(self, graph: fx.Graph, known: dict[fx.Node, Chain]) -> dict[fx.Node, Chain]:
        """Place the nodes of a flat step by the weights and the forward values that they read."""
        calls = [node for node in graph.nodes if node.op in CALLS]
        forward = [node for node in calls if node not in self._unnoted]
        backward = [node for node in calls if node in self._unnoted]
        if not any(known.values()):
            passes: dict[fx.Node, Chain] = dict.fromkeys(forward, _FORWARD_PASS)
            passes |= dict.fromkeys(backward, _BACKWARD_PASS)
            return {node: passes.get(node, ()) for node in graph.nodes}
        placed = between(forward, {node: known[node] for node in forward if known.get(node)}, _common)
        read = {node: [placed[n] for n in node.all_input_nodes if placed.get(n)] for node in backward}
        deepest = {node: max(chains, key=len) for node, chains in read.items() if chains}
        for node, chain in between(backward, deepest, _common).items():
            placed[node] = self._in_its_pass(node, chain)
        return {node: placed.get(node, ()) for node in graph.nodes}

    def _register(self, chain: Chain) -> None:
        """Note the chain of every path along a chain that a stack spells."""
        self._has_stacks = True
        for length in range(len(chain), 0, -1):
            if chain[length - 1].path in self._from_path:
                break
            self._from_path[chain[length - 1].path] = chain[:length]

    def _in_its_pass(self, node: fx.Node, chain: Chain) -> Chain:
        """Return the calls of the backward pass for one of its nodes: boxes of their own."""
        if node not in self.backward:
            return chain
        recomputed = node.meta.get("recomputed", "")
        key = chain, str(recomputed)
        if key not in self._backward:
            self._backward[key] = _of_backward(*key)
        return self._backward[key]

    def _settle(self, graph: fx.Graph, known: dict[fx.Node, Chain]) -> dict[fx.Node, Chain]:
        """Give nodes that say nothing themselves the innermost call around inputs and users."""
        if not any(known.values()):
            return dict.fromkeys(graph.nodes, ())
        above, below = dict(known), dict(known)
        gradients: dict[fx.Node, Chain] = {}
        for node in graph.nodes:
            if node in self.backward and self.backward.isdisjoint(node.all_input_nodes):
                continue  # it begins the backward pass, and lies where it is read
            if node not in above and node in self.backward:
                read = [above[i] for i in node.all_input_nodes if i in above and i in self.backward]
                above[node] = gradients[node] = _of_gradient(read)
            elif node not in above and (chains := [above[i] for i in node.all_input_nodes if i in above]):
                # The deepest: values from outside, such as a mask, do not tell where the work is done.
                above[node] = max(chains, key=len)
        for node in reversed(graph.nodes):
            if node not in below and (chains := [below[u] for u in node.users if u in below]):
                below[node] = _common(chains)
        settled: dict[fx.Node, Chain] = {}
        for node in reversed(graph.nodes):
            if node in gradients:
                settled[node] = gradients[node]
                continue
            # A value without inputs lies where it is read.
            reads = [above[node]] if node in above else [settled[user] for user in node.users]
            settled[node] = _common([*reads, below[node]]) if node in below else _common(reads)
        return {node: settled[node] for node in graph.nodes}

    def _stack_chain(self, node: fx.Node) -> Chain | None:
        stack = node_info.module_stack(node)
        if not stack:
            return None
        key = tuple(stack)
        chain = self._from_stack.get(key)
        if chain is None:
            calls = [self._call(str(name), value) for name, value in stack.items()]
            chain = self._from_stack[key] = tuple([call for call in calls if call])
        if node.op == "call_module" and chain and _CALL_NUMBER.sub("", chain[-1].path) == node.target:
            return chain[:-1]
        return chain

    def _call(self, key: str, value: Any) -> ModuleCall | None:
        """Return the call that an entry of a stack of module calls stands for, which the root has not."""
        path, owner = node_info.stack_entry(key, value)
        entry = key, path
        if entry not in self._calls:
            number = _CALL_NUMBER.search(key)
            end = number[0] if number and not path.endswith(number[0]) else ""
            self._calls[entry] = ModuleCall(path + end, node_info.bare_class_name(owner)) if path else None
        return self._calls[entry]

    def _path_chain(self, path: str) -> Chain:
        """Return the chain that a path spells, of modules that are called somewhere."""
        if not path:
            return ()
        chain = self._from_path.get(path)
        if chain is None:
            chain = self._path_chain(path.rpartition(".")[0])
            module = self.modules.get(path)
            callable_module = module is not None and not isinstance(module, nn.ModuleList | nn.ModuleDict)
            callable_module |= path in self._of_state
            if callable_module and not self._has_stacks:
                chain = (*chain, ModuleCall(path, _class_name(module)))
            self._from_path[path] = chain
        return chain


def _of_backward(chain: Chain, recomputed: str) -> Chain:
    """Return calls as those of the backward pass; from a checkpoint on, as those that it computes again."""
    paths = [call.path for call in chain]
    place = paths.index(recomputed) if recomputed in paths else len(chain)
    backward = chain[: place + 1] if recomputed else chain
    return tuple(
        ModuleCall(call.path + end, call.class_name, node_info.short_name(call.path) + end)
        for calls, end in ((backward, BACKWARD), (chain[place:], RECOMPUTED))
        for call in calls
    )


def _of_gradient(read: list[Chain]) -> Chain:
    """Return where a gradient is computed by a node that says nothing: a sum, in the module of its parts."""
    shared, deepest = _common(read), max(read, key=len, default=())
    return deepest[: max(len(shared), len(deepest) - 1)]


def _in_bodies(chains: dict[fx.Node, Chain]) -> dict[fx.Node, Chain]:
    """Put the nodes of bodies into groups of their own, inside the call around their caller."""
    places = {node: node.meta[PLACE] for node in chains if isinstance(node.meta.get(PLACE), BodyPlace)}
    around = {node.name: chains[node] for node, place in places.items() if place.caller == node.name}
    known: dict[tuple[Chain, BodyPlace], Chain] = {}
    for node, place in places.items():
        outer, chain = around.get(place.caller, ()), chains[node]
        own = chain[len(_common((outer, chain))) :]
        calls = tuple(ModuleCall(path, kind, path.rpartition("/")[2]) for path, kind in place.calls)
        chains[node] = known.setdefault((own, place), (*outer, *calls, *own))
    return chains


def _class_name(module: nn.Module | None) -> str:
    # torch.fx rebuilds containers as bare modules: their own class is not known.
    return "" if module is None or is_container(module) else type(module).__name__


def _common(chains: Iterable[Chain]) -> Chain:
    """Return the longest chain that all the given ones start with."""
    chains = iter(chains)
    shared = next(chains, ())
    for chain in chains:
        if chain is shared:
            continue
        length = 0
        for a, b in zip(shared, chain, strict=False):
            if a.path != b.path:
                break
            length += 1
        shared = shared[:length]
    return shared


_SEEDS = ("ones_like", "full_like", "new_ones", "new_full")
C = TypeVar("C")


def backward_nodes(graph: fx.Graph) -> frozenset[fx.Node]:
    """Return the nodes of the backward pass of a step: those that are noted, or else by its order.

    Autograd begins with a gradient of one, of the shape of a returned loss; every later node is backward.
    """
    nodes = list(graph.nodes)
    if noted := frozenset(filter(node_info.is_backward, nodes)):
        return noted
    losses = [node for node in node_info.returned_nodes(graph) if _is_number(node)]
    seeds = {user for loss in losses for user in loss.users if computes(user) in _SEEDS}
    if not seeds:
        return frozenset()
    return frozenset(nodes[min(nodes.index(seed) for seed in seeds) :])


def weights_by_gradient(graph: fx.Graph, backward: frozenset[fx.Node]) -> frozenset[fx.Node]:
    """Return the inputs whose gradients a flat step returns, in order; empty if shapes are ambiguous."""
    gradients = [node for node in node_info.returned_nodes(graph) if node in backward]
    inputs = iter(graph.find_nodes(op="placeholder"))
    found = []
    for gradient in gradients:
        shape, _ = node_info.shape_and_dtype(gradient)
        fitting = (
            node for node in inputs if shape is not None and node_info.shape_and_dtype(node)[0] == shape
        )
        match = next(fitting, None)
        if match is None:
            return frozenset()
        found.append(match)
    return frozenset(found)


def between(
    nodes: Sequence[fx.Node], known: Mapping[fx.Node, C], common: Callable[[list[C]], C]
) -> dict[fx.Node, C]:
    """Give each node of a stretch of the graph the common path of the known nodes before and after it."""
    before: dict[fx.Node, C] = {}
    last: C | None = None
    for node in nodes:
        last = known.get(node, last)
        if last is not None:
            before[node] = last
    found: dict[fx.Node, C] = {}
    following: C | None = None
    for node in reversed(nodes):
        if node in known:
            following = found[node] = known[node]
            continue
        around = [chain for chain in (before.get(node), following) if chain is not None]
        found[node] = common(around) if len(around) == 2 else common([])
    return found


def _is_number(node: fx.Node) -> bool:
    shape, _ = node_info.shape_and_dtype(node)  # to ask a size that depends on data for its value would raise
    is_call = node.op in ("call_function", "call_method")
    return is_call and shape is not None and all(size == 1 for size in shape)
