"""Patterns made of nodes that somebody has selected."""

import keyword
import linecache
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch.fx import GraphModule, Node
from torch.nn import functional

from fxlab.checks import described
from fxlab.node_info import function_text, known_result
from fxlab.operators import function_of, operator_of
from fxlab.torch_private import OpOverload, OpOverloadPacket
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.graph_index import GraphIndex, is_guard

_INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.matmul: "@",
    operator.pow: "**",
    operator.mod: "%",
}
_LAYERS = {"matmul": "torch.matmul"} | {
    name: f"torch.nn.functional.{name}" for name in ("linear", "layer_norm", "batch_norm")
}
"""Functions for what is written as several nodes where a graph is decomposed."""
_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool, torch.Size)
"""Results that a pattern captures rather than computes."""


class HasGraphModule(Protocol):
    """A session, or anything else that has a graph module."""

    @property
    def graph_module(self) -> GraphModule:
        """The graph that is looked at."""


def pattern_of(
    session: HasGraphModule | GraphModule, nodes: Iterable[Node | str], *, name: str = "pattern"
) -> Callable[..., Any]:
    """Make a pattern of some nodes: a function whose arguments are what they read.

    Weights and buffers are annotated as ``torch.nn.Parameter``, sizes that are computed are arguments, and
    numbers stand as they are. ``inspect.getsource`` returns its source, to be edited.

    Parameters
    ----------
    session
        A session, whose present model is looked at, or a graph module.
    nodes
        The nodes, or their names.
    name
        The name of the function.

    Raises
    ------
    TypeError
        If it is no session or graph module, or one of ``nodes`` no node or name.
    ValueError
        If there is no such node, one computes nothing, or one calls a function that is none of torch.

    Examples
    --------
    >>> import inspect
    >>> import torch
    >>> import fxlab
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) * 2 + torch.relu(x.cos()) * 2)
    >>> pattern = fxlab.pattern_of(traced, ["relu", "mul"])
    >>> print(inspect.getsource(pattern))
    def pattern(x):
        relu = torch.relu(x)
        mul = relu * 2
        return mul
    <BLANKLINE>
    >>> [match.roots for match in fxlab.find_matches(traced, pattern)]
    [(mul,), (mul_1,)]
    """
    graph_module = session if isinstance(session, GraphModule) else getattr(session, "graph_module", None)
    if not isinstance(graph_module, GraphModule):
        raise TypeError(f"session: expected a Session or a torch.fx.GraphModule, got {described(session)}.")
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"name: expected a name that a function can have, got {name!r}.")
    index = GraphIndex(GraphFacts(graph_module))
    source = _Source(index, _chosen(graph_module, nodes)).written(name)
    file = f"<fxlab pattern {abs(hash(source)):x}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    namespace: dict[str, Any] = {"torch": torch, "operator": operator}
    exec(compile(source, file, "exec"), namespace)
    made: Callable[..., Any] = namespace[name]
    return made


def _chosen(graph_module: GraphModule, nodes: Iterable[Node | str]) -> list[Node]:
    if isinstance(nodes, str | Node):
        nodes = [nodes]
    known = {node.name: node for node in graph_module.graph.nodes}
    names = set[str]()
    for each in nodes:
        if not isinstance(each, Node | str):
            raise TypeError(f"nodes: expected nodes or their names, got {described(each)}.")
        name = each.name if isinstance(each, Node) else each
        if name not in known:
            raise ValueError(f"nodes: the graph has no node {name!r}.")
        names.add(name)
    chosen = [node for node in graph_module.graph.nodes if node.name in names]
    calls = [node for node in chosen if node.op.startswith("call_") and not _is_number(node)]
    if not calls:
        raise ValueError("nodes: expected nodes that compute something, got inputs and weights alone.")
    return calls


def _is_number(node: Node) -> bool:
    result = known_result(node)
    return isinstance(result, _NUMBERS) or is_guard(node)


class _Source:
    """Writes a function of the nodes that are chosen."""

    def __init__(self, index: GraphIndex, nodes: list[Node]) -> None:
        self._facts = index.facts
        self._layers = {
            node: term
            for node in nodes
            if (term := index.calls.term(node)) is not None and term.name in _LAYERS and len(term.nodes) > 1
        }
        inner = {each for term in self._layers.values() for each in term.nodes[1:]}
        self._nodes = [node for node in nodes if node not in inner]
        self._names: dict[Any, str] = {}
        self._arguments: list[str] = []

    def written(self, name: str) -> str:
        own = {*self._nodes}
        lines = [f"    {self._name(node)} = {self._call(node)}" for node in self._nodes]
        returned = [
            node for node in self._nodes if any(user not in own and not is_guard(user) for user in node.users)
        ]
        results = ", ".join(self._names[node] for node in returned or self._nodes[-1:])
        head = f"def {name}({', '.join(self._arguments)}):"
        return "\n".join([head, *lines, f"    return {results}", ""])

    def _name(self, key: Any, wanted: str | None = None) -> str:
        if key not in self._names:
            plain = re.sub(r"\W", "_", wanted or str(key)).lower()
            plain = f"_{plain}" if plain[:1].isdigit() or keyword.iskeyword(plain) or not plain else plain
            taken = {*self._names.values(), "torch", "operator"}
            free = (
                plain
                if plain not in taken
                else next(f"{plain}_{n}" for n in range(1, len(taken) + 2) if f"{plain}_{n}" not in taken)
            )
            self._names[key] = free
        return self._names[key]

    def _argument(self, key: Any, wanted: str, annotation: str = "") -> str:
        if key not in self._names:
            self._arguments.append(self._name(key, wanted) + annotation)
        return self._names[key]

    def _weight(self, path: str) -> str:
        return self._argument(("weight", path), "_".join(path.split(".")[-2:]), ": torch.nn.Parameter")

    def _text(self, value: Any) -> str:
        if isinstance(value, Node):
            if value in self._nodes:
                return self._names[value]
            is_weight = isinstance(self._facts.attribute(value), torch.Tensor)
            if is_weight and value.op == "get_attr":
                return self._weight(str(value.target))
            result = known_result(value)
            is_tensor = result is None or hasattr(result, "dtype")
            return self._argument(value, value.name if is_tensor else f"size_{value.name}")
        if isinstance(value, slice):
            parts = (self._text(each) for each in (value.start, value.stop, value.step))
            return f"slice({', '.join(parts)})"
        if isinstance(value, tuple | list):
            inner = ", ".join(map(self._text, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        if value is None or value is ... or isinstance(value, bool | int | str | torch.dtype | torch.layout):
            return "..." if value is ... else repr(value)
        if isinstance(value, float):
            return repr(value) if value == value and abs(value) != float("inf") else f"float({str(value)!r})"
        if isinstance(value, torch.device | torch.memory_format):
            return f"torch.{value!r}" if isinstance(value, torch.device) else str(value)
        raise ValueError(f"nodes: a pattern cannot hold {described(value)}.")

    def _call(self, node: Node) -> str:
        if node in self._layers:
            term = self._layers[node]
            given = [self._text(term.args["self"])]
            given += [f"{key}={self._text(each)}" for key, each in term.args.items() if key != "self"]
            return f"{_LAYERS[term.name]}({', '.join(given)})"
        if node.op == "call_module":
            return self._module(node)
        target: Any = node.target
        args = [self._text(each) for each in node.args]
        named = [f"{key}={self._text(each)}" for key, each in node.kwargs.items()]
        if node.op == "call_method":
            return f"{args[0]}.{target}({', '.join([*args[1:], *named])})"
        if target in _INFIX and len(args) == 2:
            return f"{args[0]} {_INFIX[target]} {args[1]}"
        if target is operator.getitem:
            return f"{args[0]}[{self._index(node.args[1])}]"
        if target is getattr and str(node.args[1]).isidentifier():
            return f"{args[0]}.{node.args[1]}"
        if operator_of(node) is None:
            raise ValueError(f"nodes: {node.name} calls a function that is none of torch.")
        return f"{_function(target)}({', '.join([*args, *named])})"

    def _index(self, index: Any) -> str:
        """Return an index as Python writes it between brackets."""
        if isinstance(index, tuple) and len(index) > 1:
            return ", ".join(map(self._index, index))
        if isinstance(index, slice):
            ends = ["" if each is None else self._text(each) for each in (index.start, index.stop)]
            step = "" if index.step is None else f":{self._text(index.step)}"
            return f"{ends[0]}:{ends[1]}{step}"
        return self._text(index)

    def _module(self, node: Node) -> str:
        module = self._facts.module(node)
        called = None if module is None else function_of(type(module))
        if module is None or called is None or called.function is None:
            raise ValueError(f"nodes: {node.name} calls a module that is none of torch.nn.")
        given = [self._text(each) for each in (*node.args, *node.kwargs.values())]
        for name, default in list(called.parameters.items())[1:]:
            value = getattr(module, name, None)
            if isinstance(value, torch.Tensor):
                given.append(f"{name}={self._weight(f'{node.target}.{name}')}")
            elif name == "training" or (value is not None and value != default and name != "inplace"):
                given.append(f"{name}={self._text(value)}")
        return f"{_function(called.function)}({', '.join(given)})"


def _function(function: Any) -> str:
    """Return the name by which the source calls a function."""
    name = str(getattr(function, "__name__", ""))
    if isinstance(function, OpOverload | OpOverloadPacket):
        return f"torch.ops.{function}"
    for prefix, owner in (("torch.nn.functional", functional), ("torch", torch), ("operator", operator)):
        if getattr(owner, name, None) is function:
            return f"{prefix}.{name}"
    return function_text(function)
