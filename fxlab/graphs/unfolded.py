"""Graphs to look at, for screens and tables: nodes of bodies stand before the node that calls the body."""

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph, GraphModule, Node, map_arg
from torch.fx.node import map_aggregate

from fxlab.models.graph_modules.bodies import UNFOLDED, Body, all_bodies, bodies_called
from fxlab.models.graph_modules.generated_code import protect
from fxlab.operators.node_info import attribute_at, kind_text, modules_by_path

PLACE = "fxlab.body"
"""The key of ``node.meta`` for the :class:`BodyPlace` of a node of a body, and of a call of bodies."""
RETURNS = "returns"
"""The argument by which a call of a module reads the output of its graph."""
_PASS_ON = frozenset({
    "cond", "while_loop", "while_loop_stack_output", "scan", "map_impl", "invoke_subgraph", "strict_mode",
    "wrap", "tag_activation_checkpoint", "wrap_activation_checkpoint", "wrap_with_set_grad_enabled",
    "wrap_with_autocast",
})  # fmt: skip
"""Operators that take bodies and, after them, the arguments of each body in the order of its inputs."""
_WITH_PATHS = ("get_attr", "call_module")


@dataclass(frozen=True)
class BodyPlace:
    """The bodies around a node."""

    caller: str
    """The node of the outermost graph that calls the outermost body."""
    calls: tuple[tuple[str, str], ...]
    """The groups around it, outermost first: a path, and a word for the kind."""


def unfolded(graph_module: GraphModule) -> GraphModule:
    """Return a graph to look at, with the nodes of bodies inlined; the module itself if it has no bodies.

    A node ``mm`` of a body ``true_graph_0`` is called ``true_graph_0/mm``. Inputs of a body read the
    arguments of the call, if the two correspond one to one; the call reads the outputs of its bodies. The
    journals of the bodies are joined to that of the graph. It shares modules and tensors, and cannot be run.
    """
    return _Unfolding(graph_module).result() if all_bodies(graph_module) else graph_module


def is_in_body(node: Node) -> bool:
    """Tell whether a node of an unfolded graph is one of a body."""
    place = node.meta.get(PLACE)
    return isinstance(place, BodyPlace) and len(place.calls) > 1


def bare_name(node: Node) -> str:
    """Return the name that a node of an unfolded graph has in its own graph."""
    return node.name.rpartition("/")[2] if PLACE in node.meta else node.name


def to_look_at(graph: Graph, held: Mapping[str, Any], class_name: str) -> GraphModule:
    """Return a graph module that cannot be run; ``held``: the modules and tensors of the graph, by target."""
    from fxlab.transformations.journal.module_tree import parents_of

    carrier = Graph()
    # A called module brings its parts along, and setting one of them would write into that module.
    outermost = {path: value for path, value in held.items() if held.keys().isdisjoint(parents_of(path)[1:])}
    for path in outermost:
        carrier.get_attr(path)
    carrier.output(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of attributes that are there only when the module is made
        result = GraphModule(outermost, protect(carrier), class_name)
    result._graph = graph
    graph.owning_module = result
    result.meta[UNFOLDED] = True
    return result


def held_by(graph: Graph, graph_module: GraphModule) -> dict[str, Any]:
    """Return the parts of a module that the nodes of a graph call and read, by target."""
    targets = dict.fromkeys(str(node.target) for node in graph.nodes if node.op in _WITH_PATHS)
    return {target: attribute_at(graph_module, target) for target in targets}


@dataclass(frozen=True)
class _Graph:
    """A graph to copy, and its place."""

    module: GraphModule
    given: list[Any] = field(default_factory=list)
    """The arguments of its inputs; empty if unknown."""
    prefix: str = ""
    path: str = ""
    caller: str = ""
    calls: tuple[tuple[str, str], ...] = ()

    def inside(self, body: Body, caller: str, call: tuple[str, str], given: list[Any]) -> "_Graph":
        """Return a body that a node of it calls."""
        path, place = f"{self.prefix}{body.path}", f"{self.path}{body.path}."
        calls = (*self.calls, call, (path, "graph"))
        return _Graph(body.module, given, f"{path}/", place, self.caller or caller, calls)


class _Unfolding:
    def __init__(self, graph_module: GraphModule) -> None:
        self._root = graph_module
        self._graph = Graph()
        self._outputs: dict[int, Node] = {}
        """The outputs of the bodies that are there already, by their modules."""

    def result(self) -> GraphModule:
        from fxlab.transformations.journal.journal import KEY, Journal
        from fxlab.transformations.journal.records_in_bodies import records_of

        self._copy(_Graph(self._root))
        module = to_look_at(self._graph, held_by(self._graph, self._root), type(self._root).__name__)
        module.meta |= {key: value for key, value in self._root.meta.items() if key != KEY}
        journal = copy.copy(Journal.of(self._root))
        journal.records = records_of(self._root)
        journal.keep_in(module)
        return module

    def _copy(self, graph: _Graph) -> Node:
        """Copy the nodes of a graph, and return its output."""
        modules, copies = modules_by_path(graph.module), dict[Node, Node]()
        bodies = {node: bodies_called(node, graph.module) for node in graph.module.graph.nodes}
        readings = {body.reading for called in bodies.values() for body in called}
        inputs = iter(graph.given)
        for node, called in bodies.items():
            if node in readings and all(bodies[user] for user in node.users):
                continue
            name, outputs = f"{graph.prefix}{node.name}", dict[Node, Node]()
            call = name, kind_text(node, modules)
            for body in called:
                if id(body.module) not in self._outputs:
                    given = [map_arg(value, copies.__getitem__) for value in passed_to(called, body, node)]
                    inner = self._copy(graph.inside(body, name, call, given))
                    self._outputs[id(body.module)] = inner
                outputs[body.reading or node] = self._outputs[id(body.module)]
            target = f"{graph.path}{node.target}" if node.op in _WITH_PATHS else node.target
            made = copies[node] = self._graph.create_node(node.op, target, name=name, type_expr=node.type)
            made.name, made.meta = name, dict(node.meta)
            if calls := (*graph.calls, call) if called else graph.calls:
                made.meta[PLACE] = BodyPlace(graph.caller or name, calls)
            if node.op == "placeholder":
                made.args = (next(inputs),) if graph.given else ()
                continue
            known = copies | outputs
            made.args = map_arg(node.args, known.__getitem__)
            made.kwargs = map_arg(node.kwargs, known.__getitem__)
            if node in outputs:  # a module that is called
                made.kwargs = {**made.kwargs, RETURNS: outputs[node]}
        return copies[graph.module.graph.output_node()]


def passed_to(called: list[Body], body: Body, node: Node) -> list[Any]:
    """Return the arguments that a call passes to a body; empty if the graph does not tell."""
    leaves: list[Any] = []
    map_aggregate((node.args, node.kwargs) if body.reading is None else node.args, leaves.append)
    if body.reading is not None:
        if getattr(node.target, "__name__", "") not in _PASS_ON:
            return []
        readings = {other.reading for other in called}
        last = max(
            place for place, value in enumerate(leaves) if isinstance(value, Node) and value in readings
        )
        leaves = [value for value in leaves[last + 1 :] if not isinstance(value, str)]
    count = len(body.module.graph.find_nodes(op="placeholder"))
    return leaves if len(leaves) == count else []
