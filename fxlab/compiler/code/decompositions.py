"""Decompositions of operators, each judged against the operator itself, on the values of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from fxlab.compiler.code.hooks import current_autograd_node, decompositions
from fxlab.models.free_paths import graph_module_of
from fxlab.models.model_state import state_kept
from fxlab.models.running import generators_kept, gradients_for, placeholder_values
from fxlab.torch_private import OpOverload, TorchDispatchMode, pytree
from fxlab.tracing.torch_private import make_fx
from fxlab.validation import Reference, Status
from fxlab.values.tensors import storage_of, tensor_leaves, tensors_by_path

_MOST_CALLS = 8
"""Calls of one operator on tensors of the same shapes that are judged."""


@dataclass(frozen=True)
class _Call:
    target: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    node: Node | None
    """The node that has made it, or whose derivative it is of."""


def wrong_decompositions(
    graph_module: GraphModule, inputs: Mapping[str, Any]
) -> Iterator[tuple[OpOverload, Node | None, str]]:
    """Yield operators that are decomposed to other functions, the node that calls each, and why."""
    found: set[OpOverload] = set()
    watched = _Watched(decompositions())
    running = _Running(graph_module, watched)
    kept = generators_kept(), state_kept(graph_module, watch=False)
    with gradients_for(graph_module), kept[0], kept[1], watched:
        running.run(*placeholder_values(graph_module, inputs))
    for call in watched.calls:  # grows by the calls of decompositions
        if call.target not in found and (why := watched.judged(call)):
            found.add(call.target)
            yield call.target, call.node, why


class _Running(Interpreter):
    """Notes which node runs, and of which node each derivative is."""

    def __init__(self, graph_module: GraphModule, watched: _Watched) -> None:
        super().__init__(graph_module)
        self.extra_traceback = False
        self._watched = watched

    def run_node(self, n: Node) -> Any:
        self._watched.node = n
        result = super().run_node(n)
        functions = [tensor.grad_fn for tensor in tensors_by_path(result).values()]
        while functions:
            function = functions.pop()
            if function is not None and function not in self._watched.nodes:
                self._watched.nodes[function] = n
                functions += [other for other, _ in function.next_functions]
        return result


class _Watched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps calls of operators that have decompositions."""

    def __init__(self, table: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._table = table
        self._counts = Counter[Any]()
        self.calls: list[_Call] = []
        self.node: Node | None = None
        self.nodes: dict[Any, Node] = {}
        """The nodes of the graph by the functions of autograd that they have left."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        is_pure = func in self._table and not func._schema.is_mutable
        if is_pure and torch.Tag.nondeterministic_seeded not in func.tags:
            given = pytree.tree_map(_facts, (args, kwargs or {}))
            self._counts[key := (func, str(given))] += 1
            read = {storage_of(tensor) for tensor in tensor_leaves((args, kwargs))}
            is_new = not any(storage_of(tensor) in read for tensor in tensor_leaves(result))
            if is_new and self._counts[key] <= _MOST_CALLS:
                kept = pytree.tree_map(_kept, (args, kwargs or {}))
                node = self.nodes.get(current_autograd_node(), self.node)
                self.calls.append(_Call(func, kept[0], kept[1], node))
        return result

    def judged(self, call: _Call) -> str:
        """Return why a decomposition computes another function than its operator; empty if it does not."""
        leaves, spec = pytree.tree_flatten((call.args, dict(call.kwargs)))
        tensors = tensor_leaves(leaves)

        def call_with(function: Callable[..., Any], values: Iterable[Any]) -> Any:
            rest = iter(values)
            given = [next(rest) if isinstance(one, torch.Tensor) else one for one in leaves]
            args, kwargs = pytree.tree_unflatten(given, spec)
            return function(*args, **kwargs)

        def decomposition(*values: Any) -> Any:
            result = call_with(self._table[call.target], values)
            return tuple(result) if isinstance(result, tuple) else result  # of a class without a name in code

        self.node = call.node
        try:
            with torch.no_grad():
                with self:
                    if decomposition(*tensors) is NotImplemented:
                        return ""
                decomposed, graph = make_fx(decomposition)(*tensors), Graph()
            names = [node.name for node in decomposed.graph.find_nodes(op="placeholder")]
            made = partial(graph.call_function, call.target)
            given = [graph.placeholder(name) for name in names]
            graph.output(call_with(lambda *args, **kwargs: made(args, kwargs), given))
            known = Reference(graph_module_of({}, graph, "Operator"), dict(zip(names, tensors, strict=True)))
            verdict = known.verdict(decomposed)
        except Exception:  # of an operator that has no such run: then nothing is said of it
            return ""
        judged = verdict.outputs.values()
        wrong = (one for one in judged if one.status is Status.DIFFERENT)
        return next((one.reason for one in wrong if one.errors is None or not one.errors.same_function), "")


def _facts(leaf: Any) -> Any:
    return (leaf.dtype, leaf.shape, leaf.stride()) if isinstance(leaf, torch.Tensor) else leaf


def _kept(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
