"""Lanes: graphs that are run one node at a time, as they are and in float64."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Interpreter, Node

from fxlab.base.torch_private import pytree
from fxlab.models.graph_modules.graph_module import share_tensors_copy
from fxlab.models.graph_modules.own_modules import Requirement
from fxlab.models.running.running import Inputs, placeholder_values, seed_generators, takes_derivatives
from fxlab.models.state.model_state import memory_of
from fxlab.operators import draws_random_numbers
from fxlab.operators.node_info import attribute_at
from fxlab.transformations.analysis.aliasing_and_writes import Writes, keeps_state
from fxlab.validation.verdicts.draws import Draw, Draws, DrawsMode, first_difference, replayable
from fxlab.validation.verdicts.float64_run import Float64Interpreter, Widen, widened
from fxlab.validation.verdicts.new_values import TRIES, NewValues
from fxlab.validation.verdicts.own_run import Dtypes, dtypes_of
from fxlab.validation.verdicts.runs import Runs

NOT_THERE = object()
"""Stands for the value of a node that has none in the run of the original."""


class NodeRunner:
    """Runs nodes of a graph one at a time."""

    def __init__(self, module: GraphModule, name: str, inputs: Inputs) -> None:
        self.module, self.graph = module, module.graph
        self.values: dict[Node, Any] = {}
        self.dtypes: dict[Node, Dtypes] = {}
        self.drawn: dict[Node, list[Draw]] = {}
        """The random numbers that nodes have drawn, or were given."""
        self.to_draw: Mapping[str, list[Draw]] = {}
        """Name of a node -> its random numbers."""
        self._name = name
        self._interpreter = Interpreter(with_own_state(module))
        self._interpreter.extra_traceback = False
        try:
            arguments = placeholder_values(module, inputs)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        self._interpreter.args_iter = iter(module.graph.process_inputs(*arguments))
        inputs_of_graph = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.given = {node: self._interpreter.run_node(node) for node in inputs_of_graph}

    def run(self, node: Node, values: dict[Node, Any]) -> None:
        """Run a node and keep its value."""
        self.values[node] = self.computed(node, values)
        self.dtypes[node] = dtypes_of(self.values[node])

    def computed(self, node: Node, values: Mapping[Node, Any]) -> Any:
        """Run a node. Random numbers that it is not given are the same for every node, so of both graphs."""
        if node.op == "placeholder":
            return self.given[node]
        seed_generators(0)
        self._interpreter.env = values  # type: ignore[assignment]
        draws = Draws(self.to_draw.get(node.name))
        try:
            with DrawsMode(draws) if self.may_draw(node) else nullcontext():
                result = self._interpreter.run_node(node)
            self.drawn[node] = draws.drawn
            return result
        except Exception as error:  # a model may refuse inputs with any error
            raise ValueError(
                f"{self._name}: node {node.name!r} does not run on these inputs: {error}"
            ) from error

    def may_draw(self, node: Node) -> bool:
        """Tell whether a node may draw random numbers."""
        if node.name in self.to_draw:
            return True
        if node.op != "call_module":
            return draws_random_numbers(node)
        called = self.module.get_submodule(str(node.target))
        return not isinstance(called, Requirement) and any(part.training for part in called.modules())


def give_the_same_draws(first: NodeRunner, second: NodeRunner, inputs: Inputs) -> None:
    """Give the nodes of two graphs the random numbers that those of the first draw, if both draw alike."""
    if not any(lane.may_draw(node) for lane in (first, second) for node in lane.graph.nodes):
        return
    try:
        runs = Runs(first.module, "original", inputs), Runs(second.module, "transformed", inputs)
        ours, theirs = (each.draws.drawn for each in runs)
    except Exception:  # its nodes do not run in their order alone
        return
    if ours and not first_difference(ours, theirs):
        second.to_draw = _by_node(theirs, replayable(ours, theirs))
        first.to_draw = _by_node(ours, ours)


def _by_node(drawn: Sequence[Draw], given: Sequence[Draw]) -> Mapping[str, list[Draw]]:
    found: dict[str, list[Draw]] = defaultdict(list)
    for draw, values in zip(drawn, given, strict=True):
        found[draw.node].append(values)
    return found


def _exact_interpreter(
    module: GraphModule, lane: NodeRunner, widen: Widen | None = None
) -> Float64Interpreter:
    """Return an interpreter that runs the nodes of a lane in float64, on tensors of a copy of its module."""
    return Float64Interpreter(module, widen, own_dtypes=lane.dtypes.__getitem__)


class ExactLanes:
    """Runs nodes of both graphs in float64, on the original's values and on kept float64 values."""

    def __init__(self, original: NodeRunner, transformed: NodeRunner) -> None:
        self.new = NewValues(original.module, transformed.module)
        self._given = {**original.given, **transformed.given}
        self._lanes = original, transformed
        first, second = with_own_state(original.module), with_own_state(transformed.module)
        generator = torch.Generator().manual_seed(0)

        def rounded_anew(tensor: torch.Tensor) -> torch.Tensor:
            return self.new.rounded_anew(tensor, generator)

        self._rounded_anew = rounded_anew
        self._original = _exact_interpreter(first, original)
        self._transformed = _exact_interpreter(second, transformed)
        self._rounding = _exact_interpreter(second, transformed, rounded_anew)
        self._kept: dict[Node, list[Any]] = {}
        """Of nodes without a match: the value, and those with new values rounded again."""
        self._rounded: set[Node] = set()
        """Nodes whose values come from nodes that have no float64."""

    def is_rounded(self, node: Node) -> bool:
        """Tell whether a node that has run has no float64, or one before it without a match."""
        return node in self._rounded

    def original(self, node: Node, start: Callable[[Node], Any]) -> Any:
        """Run a node of the original; ``start`` returns values of the own run, or ``NOT_THERE``."""
        return self._run(self._original, node, start, 0)

    def transformed(self, node: Node, start: Callable[[Node], Any]) -> list[Any]:
        """Run one of the transformed graph, and again with new values rounded once more, if it has any."""
        exact = self._run(self._transformed, node, start, 0)
        inputs = [self._kept.get(value, ()) for value in node.all_input_nodes if start(value) is NOT_THERE]
        if not self._holds_new_values(node) and all(len(values) < 2 for values in inputs):
            return [exact]
        return [exact, *(self._run(self._rounding, node, start, k) for k in range(1, TRIES + 1))]

    def keep(self, node: Node, start: Callable[[Node], Any], *, of_original: bool) -> None:
        """Run a node without a match, and keep its values; those of single nodes have no derivatives."""
        if not takes_derivatives(node) and self.can_run(node, start):
            values = [self.original(node, start)] if of_original else self.transformed(node, start)
            self._kept[node] = values

    def drop(self, node: Node) -> None:
        """Forget the value of a node."""
        self._kept.pop(node, None)

    def _run(self, interpreter: Float64Interpreter, node: Node, start: Callable[[Node], Any], k: int) -> Any:
        if node.op == "placeholder":
            move = self._rounded_anew if k else widened
            return pytree.tree_map_only(torch.Tensor, move, self._given[node])
        values: dict[Node, Any] = {}
        is_rounded = False
        for value in node.all_input_nodes:
            given = start(value)
            is_rounded |= takes_derivatives(value)
            if given is NOT_THERE:
                is_rounded |= value in self._rounded
                kept = self._kept[value]
                given = kept[k if k < len(kept) else 0]
            values[value] = widened(pytree.tree_map_only(torch.Tensor, torch.clone, given))
        interpreter.env = values
        interpreter.give(next((lane.drawn[node] for lane in self._lanes if node in lane.drawn), ()))
        result = interpreter.run_node(node)
        if is_rounded or node.name in interpreter.in_own_dtype:
            self._rounded.add(node)
        return result

    def can_run(self, node: Node, start: Callable[[Node], Any]) -> bool:
        """Return whether the node can run in float64: not if it reads a gradient without a counterpart."""
        return all(value in self._kept or start(value) is not NOT_THERE for value in node.all_input_nodes)

    def _holds_new_values(self, node: Node) -> bool:
        if node.op == "placeholder":
            held = pytree.tree_leaves(self._given[node])
        elif node.op == "get_attr":
            held = [self._transformed.fetch_attr(str(node.target))]
        elif node.op == "call_module":
            module = self._transformed.fetch_attr(str(node.target))
            held = [*module.parameters(), *module.buffers()]
        else:
            return False
        return any(isinstance(tensor, torch.Tensor) and tensor in self.new for tensor in held)


def with_own_state(module: GraphModule) -> GraphModule:
    """Return a copy of a module with its own copies of tensors that a run may write; others are shared.

    A module that no run can change is returned as it is. The graph tells which tensors may be written: those
    read by ``get_attr`` and written in place, those of batch norms in training and of embeddings with a
    ``max_norm``, and all tensors of modules of other libraries, or with hooks.
    """
    keepers = [part for part in _called(module) if any(map(_may_keep_state, part.modules()))]
    written = {memory_of(tensor) for tensor in _written_attributes(module)}
    written |= {memory_of(tensor) for part in keepers for tensor in (*part.parameters(), *part.buffers())}
    if not keepers and not written:
        return module
    return share_tensors_copy(module, own=lambda tensor: memory_of(tensor) in written)


def _called(module: GraphModule) -> Iterator[nn.Module]:
    for node in module.graph.find_nodes(op="call_module"):
        yield module.get_submodule(str(node.target))


def _written_attributes(module: GraphModule) -> Iterator[torch.Tensor]:
    nodes = module.graph.find_nodes(op="get_attr")
    writes = Writes(module) if nodes else None
    for node in nodes:
        value = attribute_at(module, str(node.target))
        if isinstance(value, torch.Tensor) and writes is not None and writes.is_written(node):
            yield value


def _may_keep_state(module: nn.Module) -> bool:
    return bool(
        not type(module).__module__.startswith("torch.")
        or module._forward_hooks
        or module._forward_pre_hooks
        or keeps_state(module)
    )
