"""Lowerings of Inductor judged one by one: the generated code of each call against ATen's kernel for it."""

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from fxlab.compiler.code.compiled_code import CompiledCode
from fxlab.compiler.code.hooks import FALLS_BACK, generated_for, has_lowering
from fxlab.models.free_paths import graph_module_of
from fxlab.models.model_state import state_kept
from fxlab.models.running import generators_kept, placeholder_values
from fxlab.node_info import attribute_at, line_of, target_text
from fxlab.operators import why_not_pure
from fxlab.validation import Reference, Status, Verdict
from fxlab.validation.nodes.bisect import needed_items
from fxlab.validation.verdicts.judgement import Judgement
from fxlab.values.tensors import storage_of

_MOST_ROUNDS = 32
"""Calls of one kind that are judged."""


@dataclass(frozen=True)
class Lowering:
    """The generated code of one call and ATen's kernel, both on the values that the graph computes."""

    node: Node
    judgement: Judgement

    @property
    def is_wrong(self) -> bool:
        """Whether it computes something else, or rounds worse."""
        return self.judgement.status is Status.DIFFERENT

    @property
    def ratio(self) -> float:
        """Its error as a multiple of that of ATen's kernel."""
        errors = self.judgement.errors
        return errors.ratio if errors else math.inf if self.is_wrong else 1.0

    @property
    def error(self) -> float | None:
        """Its relative error, if it took a float64 run to measure it."""
        return self.judgement.errors.transformed if self.judgement.errors else None


@dataclass(frozen=True)
class Fault:
    """The cause of a mistake in generated code."""

    nodes: tuple[Node, ...]
    """The first call of each operator whose lowering is wrong; empty if no lowering is."""
    words: str


class LoweredGraph:
    """The last graph of a compile, of ATen operators, which Inductor generates code for."""

    def __init__(self, graph_module: GraphModule, inputs: Mapping[str, Any]) -> None:
        self._module = graph_module
        self._inputs = {name: _as_copied(value) for name, value in inputs.items()}
        self._lowered = [node for node in graph_module.graph.nodes if has_lowering(node.target)]

    def verdict(self, falling_back: Collection[Node] = ()) -> Verdict:
        """Judge the code of the graph, in which some calls are left to ATen's kernels."""
        return self._reference.verdict(_with_code(self._module, self._inputs, falling_back))

    def lowerings(self) -> list[Lowering]:
        """Judge each lowering by itself, on the values that ATen's kernels compute.

        All calls become one graph in which none reads another. Calls of one operator with the same shapes,
        strides, dtypes and numbers have one code, which runs on the values of each.
        """
        alike = defaultdict[Any, list[Node]](list)
        for node in self._lowered:
            if why_not_pure(node) is None and _is_new(node, self._values):
                alike[_kind(node, self._values)].append(node)
        kinds = list(alike.values())
        if not kinds:
            return []
        # All kinds in one compile, which takes far longer than the calls.
        first = _Apart([nodes[0] for nodes in kinds], self._values)
        code = generated_for(first.module, first.values)
        found: dict[Node, Judgement] = {}
        for number in range(min(_MOST_ROUNDS, max(map(len, kinds)))):
            places = [place for place, nodes in enumerate(kinds) if len(nodes) > number]
            calls = _Apart([kinds[place][number] for place in places], self._values)
            run = CompiledCode(first.part(code, places), calls.values, has_gradients=False)
            found |= calls.judgements(
                Reference(calls.module, calls.inputs).verdict(_calling(run, calls.module))
            )
        return [Lowering(node, found[node]) for node in self._lowered if node in found]

    def fault(self) -> Fault | None:
        """Find the lowerings that make the code wrong; ``None`` if no verdict says that it is.

        The code is right with ATen's kernels in their place. Those that are wrong by themselves are tried
        first, the worst alone, then all; else the lowered operators are halved.
        """
        if self.verdict().status is not Status.DIFFERENT:
            return None
        wrong = [one for one in self.lowerings() if one.is_wrong]
        for few in (sorted(wrong, key=lambda one: -one.ratio)[:1], wrong):
            targets = dict.fromkeys(one.node.target for one in few)
            if targets and self.verdict(self._calls_of(targets)).agrees:
                reasons = {one.node: one.judgement.reason for one in reversed(wrong)}
                nodes = (next(one.node for one in wrong if one.node.target is target) for target in targets)
                return _fault(nodes, reasons)

        def breaks(lowered: Collection[Any]) -> bool:
            others = self._calls_of(node.target for node in self._lowered if node.target not in lowered)
            return self.verdict(others).status is Status.DIFFERENT

        if breaks(()):
            return Fault((), "no lowering: it is as wrong with ATen's kernel for each operator")
        targets = dict.fromkeys(node.target for node in self._lowered)
        together = needed_items(list(targets), breaks)
        return _fault((self._calls_of([target])[0] for target in together), {})

    def _calls_of(self, targets: Iterable[Any]) -> list[Node]:
        asked = {*targets}
        return [node for node in self._lowered if node.target in asked]

    @cached_property
    def _reference(self) -> Reference:
        return Reference(self._module, self._inputs)

    @cached_property
    def _values(self) -> dict[Node, Any]:
        """The value of each node, by ATen's kernels."""
        # Each call is judged on the values of ATen's kernels, so that mistakes do not add up.
        interpreter = Interpreter(self._module, garbage_collect_values=False)
        interpreter.extra_traceback = False
        with torch.no_grad(), generators_kept(), state_kept(self._module, watch=False):
            interpreter.run(*placeholder_values(self._module, self._inputs))
        return interpreter.env


class _Apart:
    """Calls as a graph that takes the values that each of them reads, and returns all that they compute."""

    def __init__(self, nodes: Sequence[Node], values: Mapping[Node, Any]) -> None:
        self._nodes = nodes
        self.inputs: dict[str, Any] = {}
        self._places: list[tuple[range, range]] = []
        """Of each call, the places of its inputs and of its results."""
        graph, results = Graph(), list[Node]()
        read: list[dict[Node, Any]] = []
        for node in nodes:
            given = {other: values[other] for other in node.all_input_nodes}
            for other, value in given.items():
                if isinstance(value, torch.Tensor):
                    given[other] = graph.placeholder(f"input_{len(self.inputs)}")
                    self.inputs[given[other].name] = _as_copied(value)
            read.append(given)
        taken = 0
        for node, given in zip(nodes, read, strict=True):
            args, kwargs = (torch.fx.map_arg(part, given.__getitem__) for part in (node.args, node.kwargs))
            made, before = graph.call_function(node.target, args, kwargs), len(results)  # type: ignore[arg-type]
            if isinstance(values[node], torch.Tensor):
                results.append(made)
            else:
                parts = (place for place, one in enumerate(values[node]) if isinstance(one, torch.Tensor))
                results += [graph.call_function(operator.getitem, (made, place)) for place in parts]
            count = sum(isinstance(one, Node) for one in given.values())
            self._places.append((range(taken, taken + count), range(before, len(results))))
            taken += count
        graph.output(tuple(results))
        self.module = graph_module_of({}, graph, "Apart")

    @property
    def values(self) -> list[Any]:
        """The values of its inputs."""
        return list(self.inputs.values())

    def part(self, code: Callable[..., Any], calls: Sequence[int]) -> Callable[..., Any]:
        """Return a function that runs its code for some of its calls, on other values."""
        read = [place for call in calls for place in self._places[call][0]]
        returned = [place for call in calls for place in self._places[call][1]]

        def run(*given: Any) -> list[Any]:
            values = self.values
            for place, value in zip(read, given, strict=True):
                values[place] = value
            results = code(values)
            return [results[place] for place in returned]

        return run

    def judgements(self, verdict: Verdict) -> dict[Node, Judgement]:
        """Return the judgement of each call: of its results, the worst."""
        found = {}
        for node, (_, results) in zip(self._nodes, self._places, strict=True):
            known = [verdict.outputs[str(place)] for place in results if str(place) in verdict.outputs]
            if known:
                found[node] = max(known, key=lambda one: one.status.rank)
        return found


def at_line(node: Node) -> str:
    """Return the name of a node and the line that it comes from, in words."""
    place, code = line_of(node)
    return f"at {node.name}" + (f" ({place}: {code})" if place else "")


def _fault(nodes: Iterable[Node], reasons: Mapping[Node, str]) -> Fault:
    named, words = tuple(nodes), []
    for node in named:
        why = f", by itself: {reasons[node]}" if node in reasons else ""
        words.append(f"{target_text(node)} {at_line(node)}{why}")
    kind = "lowering" if len(named) == 1 else "lowerings"
    return Fault(
        named, f"the {kind} of {'; and of '.join(words)}. With ATen's kernel in its place it is right"
    )


def _with_code(module: GraphModule, inputs: Mapping[str, Any], falling_back: Collection[Node]) -> GraphModule:
    """Return a graph that calls the code of another one; the code takes the module's tensors as inputs."""
    graph, nodes = Graph(), _given(module)
    copies = {node: graph.create_node("placeholder", node.name, name=node.name) for node in nodes}
    values = placeholder_values(module, inputs)
    known = dict(zip(module.graph.find_nodes(op="placeholder"), values, strict=True))
    given = [known[node] if node in known else attribute_at(module, str(node.target)) for node in nodes]
    for node in module.graph.nodes:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if node in falling_back:
                copies[node].meta[FALLS_BACK] = True
    code = generated_for(GraphModule(module, graph), given)
    return _calling(CompiledCode(lambda *now: code([*now]), given, has_gradients=False), module)


def _calling(code: CompiledCode, module: GraphModule) -> GraphModule:
    """Return a graph with the inputs and outputs of another one that calls code."""
    graph, nodes = Graph(), _given(module)
    results = graph.call_function(code, tuple(map(graph.node_copy, nodes)))
    count = len(module.graph.output_node().args[0])  # type: ignore[arg-type]
    graph.output(tuple(graph.call_function(operator.getitem, (results, place)) for place in range(count)))
    held = {
        str(node.target): attribute_at(module, str(node.target)) for node in nodes if node.op == "get_attr"
    }
    return graph_module_of(held, graph, "Code")


def _given(module: GraphModule) -> list[Node]:
    """Return the nodes of a graph that its code takes as inputs: placeholders, and tensors of the module."""
    held = module.graph.find_nodes(op="get_attr")
    tensors = [node for node in held if isinstance(attribute_at(module, str(node.target)), torch.Tensor)]
    return [*module.graph.find_nodes(op="placeholder"), *tensors]


def _as_copied(value: Any) -> Any:
    """Return a value with the strides that copies of it have, on which code is judged."""
    if not isinstance(value, torch.Tensor):
        return value
    copied = value.detach().clone()
    return value if copied.stride() == value.stride() else copied


def _is_new(node: Node, values: Mapping[Node, Any]) -> bool:
    """Tell whether a call computes tensors, of tensors and numbers, that are no views of its arguments."""
    read = [values[other] for other in node.all_input_nodes]
    tensors = [value for value in read if isinstance(value, torch.Tensor)]
    made = values[node] if isinstance(values[node], list | tuple) else [values[node]]
    results = [value for value in made if isinstance(value, torch.Tensor)]
    numbers = all(isinstance(value, torch.Tensor | int | float | bool) for value in read)
    memory = {storage_of(tensor) for tensor in tensors}
    return numbers and bool(results) and not any(storage_of(tensor) in memory for tensor in results)


def _kind(node: Node, values: Mapping[Node, Any]) -> tuple[Any, ...]:
    """Return the facts about a call that its code depends on."""
    order = {other: place for place, other in enumerate(node.all_input_nodes)}

    def known(other: Node) -> Any:
        value = values[other]
        if not isinstance(value, torch.Tensor):
            return repr(value)
        return f"{order[other]} {value.dtype} {tuple(value.shape)} {value.stride()} {value.device}"

    return node.target, *(str(torch.fx.map_arg(part, known)) for part in (node.args, node.kwargs))
