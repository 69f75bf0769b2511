"""Run two graphs in step for ``compare_nodes``, node by node, as they are and in float64."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Interpreter, Node

from fxlab.base.interrupts import RestoringStack
from fxlab.base.torch_private import pytree
from fxlab.graphs.matching import match_nodes
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.models.graph_modules.parts import Requirement
from fxlab.models.running.arguments import Inputs, placeholder_values
from fxlab.models.running.running import seed_generators, takes_derivatives
from fxlab.models.state.model_state import memory_of
from fxlab.operators import draws_random_numbers, written_arguments
from fxlab.operators.node_info import attribute_at
from fxlab.transformations.analysis.aliasing_and_writes import Writes, keeps_state
from fxlab.validation.verdicts.draws import Draw, Draws, DrawsMode, first_difference, replayable
from fxlab.validation.verdicts.float64_run import Float64Interpreter, Widen, widened
from fxlab.validation.verdicts.new_values import TRIES, NewValues
from fxlab.validation.verdicts.own_run import Dtypes, dtypes_of
from fxlab.validation.verdicts.runs import Runs
from fxlab.values.tensors import tensors_by_path

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
        modes = (getattr(part, "training", False) for part in called.modules())  # frozen TorchScript has none
        return not isinstance(called, Requirement) and any(modes)


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


@dataclass(frozen=True)
class Exact:
    """The float64 results of a pair of nodes on the original's inputs."""

    original: Any
    transformed: Any
    rounded_anew: list[Any]
    """The transformed one with new values rounded again; empty if there are none."""
    is_rounded: tuple[bool, bool]
    """Whether the node of the original, and the other, has no float64, or an unmatched node before it."""


@dataclass(frozen=True)
class Pair:
    """Two nodes that match, and their values."""

    node: Node
    original: Node
    expected: Any
    """The value in the original."""
    accumulated: Any
    """The value in the transformed graph."""
    introduced: Any
    """The value that the node of the transformed graph computes from the original's values."""
    exact: Callable[[], Exact]
    """Computes both in float64, from the original's values, as long as this is the latest pair."""


class SideBySide:
    """Runs two graphs in step and yields the pairs of nodes that match.

    The transformed graph runs by itself, and each node that does something else than its original is run once
    more on the original's values, together with the nodes before it that have no original (a merged linear
    before its slice). Values are dropped after their last use. Each of these runs has its own copy of the
    buffers and parameters that the graph writes, and the modules are left as they are; random number
    generators are seeded again for each node, and the caller restores them. ``in_float64``: whether
    :attr:`Pair.exact` will be called, which costs further runs of nodes without a match.
    """

    def __init__(
        self, original: GraphModule, transformed: GraphModule, inputs: Inputs, *, in_float64: bool = False
    ) -> None:
        if transformed is original:  # values are kept by node
            transformed = share_tensors_copy(original)
        self._matching = match_nodes(original, transformed)
        self._takes_derivatives = any(
            takes_derivatives(node) for graph in (original, transformed) for node in graph.graph.nodes
        )
        self._first = NodeRunner(original, "original", inputs)
        self._second = NodeRunner(transformed, "transformed", inputs)
        self._again = NodeRunner(transformed, "transformed", inputs)
        """Nodes of the transformed graph on the original's values; holds those without an original."""
        give_the_same_draws(self._first, self._second, inputs)
        self._again.to_draw = self._second.to_draw
        self._exact = ExactLanes(self._first, self._second) if in_float64 else None
        self._partners = {other: node for node, other in self._matching.originals.items()}
        held = ("placeholder", "get_attr")
        self._rest = sorted(original.graph.nodes, key=lambda node: node.op not in held)[::-1]
        """The nodes of the original to run, the next one last; placeholders and attributes run first."""
        self._before: dict[Node, Any] = {}
        """Copies of the values that the latest node of the original has read and may have written to."""
        self._incomparable: set[Node] = set()
        self._needed = Counter(
            {node: len(node.users) for graph in (original, transformed) for node in graph.graph.nodes}
        )
        for node, other in self._matching.originals.items():
            self._needed[other] += 1 + len(node.users)

    def pairs(self) -> Iterator[Pair]:
        """Yield the pairs in the order of the transformed graph; not those of ``output`` nodes."""
        finished = None
        for node in self._second.graph.nodes:
            # Not around the yield: the mode is the caller's there.
            with self._gradients():
                if finished is not None:
                    self._finish(finished)
                pair = self._step(node)
            finished = node
            if pair is not None:
                yield pair

    def _step(self, node: Node) -> Pair | None:
        if node.op == "output":
            return None
        self._second.run(node, self._second.values)
        other = self._matching.originals.get(node)
        self._before = {}
        if other is not None:
            if not self._is_same_step(node):
                self._keep_inputs(node, other)
            self._run_original_up_to(other)
            expected, accumulated = self._first.values[other], self._second.values[node]
            if _comparable(expected, accumulated) and self._has_exact(node, other):
                introduced = expected if self._is_same_step(node) else self._on_originals(node)
                return Pair(node, other, expected, accumulated, introduced, lambda: self._in_float64(node))
            self._incomparable.update((node, other))
        return None

    def _gradients(self) -> AbstractContextManager[Any]:
        """Return a context without gradients, or with them if either graph takes derivatives itself."""
        return RestoringStack(torch.enable_grad() if self._takes_derivatives else torch.no_grad())

    def _is_same_step(self, node: Node) -> bool:
        """Tell whether a node does the same as its original; a derivative is one of all nodes before it."""
        return node in self._matching.unchanged or takes_derivatives(node)

    def _has_exact(self, node: Node, other: Node) -> bool:
        """Tell whether a pair can be run in float64, should that be asked for."""
        if self._exact is None or self._is_same_step(node):
            return True
        return self._exact.can_run(other, self._value_for_first) and self._exact.can_run(
            node, self._value_for_second
        )

    def _finish(self, node: Node) -> None:
        """Compute the values that later nodes need of this one, and drop those that no node needs."""
        other = self._matching.originals.get(node)
        if node.op != "output" and not self._is_boundary(node):
            # Of values that others have computed there are no derivatives.
            is_derivative = takes_derivatives(node)
            self._again.values[node] = (
                self._second.values[node] if is_derivative else self._on_originals(node)
            )
            if self._exact is not None:
                self._exact.keep(node, self._value_for_second, of_original=False)
        if other is not None and other.op != "output":
            if other in self._incomparable and self._exact is not None:
                self._exact.keep(other, self._value_for_first, of_original=True)
            self._release(other)
            for value in other.all_input_nodes:
                self._release(value)
        for value in node.all_input_nodes:
            self._release(value)
            if value in self._matching.originals:
                self._release(self._matching.originals[value])
        self._release_unread(node)

    def _keep_inputs(self, node: Node, other: Node) -> None:
        """Copy the values that a pair of nodes reads, if either writes to them, before the original does."""
        if not (_writes(node, self._second.module) or _writes(other, self._first.module)):
            return
        self._run_original_up_to(other, inclusive=False)
        partners = (self._matching.originals.get(value) for value in node.all_input_nodes)
        for value in (*other.all_input_nodes, *partners):
            if value is not None and value in self._first.values:
                self._before[value] = _copy(self._first.values[value])

    def _run_original_up_to(self, node: Node, *, inclusive: bool = True) -> None:
        while node not in self._first.values and (inclusive or self._rest[-1] is not node):
            current = self._rest.pop()
            self._first.run(current, self._first.values)
            if current in self._partners:
                continue  # its inputs are kept for its partner
            if self._exact is not None:
                self._exact.keep(current, self._value_for_first, of_original=True)
            for value in current.all_input_nodes:
                self._release(value)
            self._release_unread(current)

    def _on_originals(self, node: Node) -> Any:
        """Run a node of the transformed graph on the original's values, or copies where it may write."""
        values = {value: self._value_again(value) for value in node.all_input_nodes}
        copies = {value: _copy(values[value]) for value in written_arguments(node)}
        return self._again.computed(node, values | copies)

    def _in_float64(self, node: Node) -> Exact:
        if self._exact is None:
            raise ValueError("in_float64: nothing was kept to run in float64. Give in_float64=True.")
        other = self._matching.originals[node]
        with self._gradients():
            transformed = self._exact.transformed(node, self._value_for_second)
            exact = self._exact.original(other, self._value_for_first)
            is_rounded = self._exact.is_rounded(other), self._exact.is_rounded(node)
            return Exact(exact, transformed[0], transformed[1:], is_rounded)

    def _is_boundary(self, node: Node) -> bool:
        """Tell whether runs on the original's values start again at a node of either graph."""
        return node not in self._incomparable and (node in self._partners or node in self._matching.originals)

    def _value_again(self, node: Node) -> Any:
        value = self._value_for_second(node)
        return self._again.values[node] if value is NOT_THERE else value

    def _value_for_second(self, node: Node) -> Any:
        """Return the value to start a float64 run of the transformed graph from, if it starts there."""
        return self._of_original(self._matching.originals[node]) if self._is_boundary(node) else NOT_THERE

    def _value_for_first(self, node: Node) -> Any:
        return self._of_original(node) if self._is_boundary(node) else NOT_THERE

    def _of_original(self, node: Node) -> Any:
        """Return the value of a node of the original, for the latest pair as it was before."""
        return self._before[node] if node in self._before else self._first.values[node]

    def _release(self, node: Node) -> None:
        self._needed[node] -= 1
        self._release_unread(node)

    def _release_unread(self, node: Node) -> None:
        if self._needed[node] <= 0:
            for lane in (self._first, self._second, self._again):
                lane.values.pop(node, None)
            if self._exact is not None:
                self._exact.drop(node)


def _writes(node: Node, module: GraphModule) -> bool:
    """Tell whether a node may write into its arguments."""
    if node.op == "call_module":
        return bool(getattr(attribute_at(module, str(node.target)), "inplace", False))
    return bool(written_arguments(node))


def _copy(value: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.clone, value)


def _comparable(a: Any, b: Any) -> bool:
    """Tell whether one value can stand for the other."""
    ours, theirs = tensors_by_path(a), tensors_by_path(b)
    return (
        type(a) is type(b)
        and ours.keys() == theirs.keys()
        and all(
            (ours[path].shape, ours[path].dtype) == (theirs[path].shape, theirs[path].dtype) for path in ours
        )
    )
