"""Graphs on their way through the passes of pipelines, which a recorder finds, and their stages."""

import copy
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, GraphModule, Node

from fxlab.base.torch_private import FakeTensor, pytree
from fxlab.compiler.graphs.slots import Slot, random_like
from fxlab.compiler.recording.recorder import TORCH, WHOLE, Recording, Stack, Step
from fxlab.compiler.recording.snapshot import Snapshot, State
from fxlab.models.graph_modules.free_paths import graph_module_of
from fxlab.models.running.running import Inputs, bound_values, call_arguments
from fxlab.operators.node_info import attribute_at
from fxlab.values.tensors import is_floating, known_number, same_bits


class Pipeline:
    """The passes that one graph has gone through; ``why``: why none can be switched off."""

    def __init__(self, graph_module: GraphModule, why: str) -> None:
        self._why = why
        self._values = _Values()
        self._numbers = Counter[str]()
        self.at = weakref.ref(graph_module)
        """The module that its last pass has left."""
        self._previous = "the beginning"
        self.known: list[Slot | None] = []
        """The values that the placeholders of the first graph stand for, if a program has told."""
        self.model_name = str(getattr(graph_module, "_get_name", lambda: "GraphModule")())
        self.stack = Stack(WHOLE, self._taken(graph_module))

    @property
    def recording(self) -> Recording:
        """The recording that the session of a compile is made of."""
        return Recording({WHOLE: self.stack})

    @property
    def remarks(self) -> list[str]:
        """Notes on anything that could not be kept as it was."""
        return self._values.remarks

    def begin_pass(self, name: str, graph_module: GraphModule) -> None:
        """Note the graph before a pass."""
        self._note(f"between passes, after {self._previous}", graph_module)
        self._numbers[name] += 1
        number = self._numbers[name]
        self._previous = name + (f" ({number})" if number > 1 else "")
        self._began = time.perf_counter()

    def end_pass(self, graph_module: GraphModule) -> None:
        """Note the graph after the pass that began last."""
        seconds = time.perf_counter() - self._began
        self._note(self._previous, graph_module, also_same=True)
        self.stack.steps[-1].seconds = seconds
        self.at = weakref.ref(graph_module)

    def finish(self) -> None:
        """Release the graphs of others."""
        for snapshot in (self.stack.first, *(step.after for step in self.stack.steps)):
            snapshot.state.finish()
        self._values = _Values(self._values.remarks)

    def _note(self, name: str, graph_module: GraphModule, *, also_same: bool = False) -> None:
        last = self.stack.last
        is_same = State(graph_module) == last.state and all(
            self._values.kept(path, attribute_at(graph_module, path)) is copied
            for path, copied in last.held.items()
        )
        after = last if is_same else self._taken(graph_module)
        if after is not last or also_same:
            self.stack.steps.append(Step(name, last, after, self._why, can_exclude=False))

    def _taken(self, graph_module: GraphModule) -> Snapshot:
        snapshot = Snapshot(graph_module, TORCH, {})
        snapshot.held = {path: self._values.kept(path, value) for path, value in snapshot.held.items()}
        return snapshot


class _Values:
    """Copies of the tensors of graphs, one for each value that they had: a later pass may write to them."""

    def __init__(self, remarks: Sequence[str] = ()) -> None:
        self.remarks = [*remarks]
        self._copies: dict[int, tuple[Any, Any]] = {}
        """By ``id``: the value, held so that no other gets its ``id``, and its last copy."""

    def kept(self, path: str, value: Any) -> Any:
        """Return a copy of a tensor or a module as it is now; the last one if it has not changed."""
        if not isinstance(value, torch.Tensor | nn.Module):
            return value
        known = self._copies.get(id(value))
        if known is None or not _is_same(value, known[1]):
            known = self._copies[id(value)] = value, self._copied(path, value)
        return known[1]

    def _copied(self, path: str, value: Any) -> Any:
        try:
            if isinstance(value, nn.Module):
                return copy.deepcopy(value)
            copied = value.detach().clone().requires_grad_(value.requires_grad)
            return nn.Parameter(copied, value.requires_grad) if isinstance(value, nn.Parameter) else copied
        except Exception:
            self.remarks.append(f"{path} cannot be copied: if a pass has written to it, all stages show so.")
            return value


def _is_same(value: Any, copied: Any) -> bool:
    ours, theirs = _tensors(value), _tensors(copied)
    if ours.keys() != theirs.keys():
        return False
    # Fake tensors have no bits.
    return all(isinstance(ours[name], FakeTensor) or same_bits(ours[name], theirs[name]) for name in ours)


def _tensors(value: Any) -> dict[str, torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return {"": value}
    return {**dict(value.named_parameters()), **dict(value.named_buffers())}


class PipelineFrame:
    """The part that all stages of a pipeline have in common: their inputs, or ``None`` to make them up."""

    def __init__(self, pipeline: Pipeline, inputs: Inputs | ExportedProgram | None) -> None:
        self.pipeline = pipeline
        first = pipeline.stack.first
        nodes = first.graph.find_nodes(op="placeholder")
        known: list[Slot | None] = pipeline.known or [None] * len(nodes)
        if isinstance(inputs, ExportedProgram):
            known = known_values(inputs)
            if len(known) != len(nodes):
                raise ValueError(
                    f"the program has {len(known)} inputs and parameters, and it has {len(nodes)}"
                )
        elif inputs is not None:
            places = [place for place, one in enumerate(known) if one is None or one.path is None]
            values = bound_values(_called_with([nodes[place] for place in places]), *call_arguments(inputs))
            for place, value in zip(places, values, strict=True):
                known[place] = Slot(nodes[place].name, None, value)
        generator = torch.Generator().manual_seed(0)
        made = {node.name: one or _made_up(node, generator) for node, one in zip(nodes, known, strict=True)}
        self._is_runnable = all(made.values())
        self._slots = {
            name: replace(one, name=name) if one else Slot(name, None, None) for name, one in made.items()
        }

    def inputs(self, kind: str) -> list[Slot] | None:
        """Return the inputs of all stages; ``None`` unless the origin of all is known."""
        return [slot for slot in self._slots.values() if slot.path is None] if self._is_runnable else None

    def name_of(self, snapshot: Snapshot, name: str) -> str:
        """Return the name of a node in stages: that of the pipeline."""
        return name

    def names_of_inputs(self, snapshot: Snapshot) -> dict[str, str]:
        """Return no names: placeholders are called as in the pipeline."""
        return {}

    def module(self, snapshot: Snapshot, kind: str) -> GraphModule:
        """Return a snapshot as a graph module that takes the inputs of the first one, before all others."""
        graph, copies, held = Graph(), dict[Node, Node](), dict(snapshot.held)
        placeholders = {node.name: node for node in snapshot.graph.find_nodes(op="placeholder")}
        is_held = [name for name in placeholders if name in self._slots and self._slots[name].path]
        own = (name for name, slot in self._slots.items() if slot.path is None)
        for name in dict.fromkeys([*own, *placeholders]):
            if name in is_held:
                continue
            node = placeholders.get(name)  # unless a pass has removed it
            # Its target is its name in calls, which may be another one.
            new = graph.create_node("placeholder", name, node.args if node else (), name=name)
            if node is not None:
                copies[node] = new
        for name in is_held:
            path = str(self._slots[name].path)
            copies[placeholders[name]] = graph.create_node("get_attr", path, name=name)
            held[path] = self._slots[name].value
        for node in snapshot.graph.nodes:
            if node.op != "placeholder":
                copies[node] = graph.node_copy(node, copies.__getitem__)
        for node, copied in copies.items():
            copied.meta = dict(node.meta)
        module = graph_module_of(held, graph, self.pipeline.model_name)
        module.meta["class_name"] = self.pipeline.model_name
        return module


def _called_with(nodes: Sequence[Node]) -> GraphModule:
    """Return a module that takes the values that some placeholders stand for."""
    graph = Graph()
    for node in nodes:
        graph.create_node("placeholder", str(node.target), node.args, name=node.name)
    graph.output(None)
    return GraphModule(nn.Module(), graph)


def known_values(program: ExportedProgram) -> list[Slot | None]:
    """Return the value behind each placeholder of a program's graph, in their order; ``None`` if unknown."""
    specs = program.graph_signature.input_specs
    inputs: list[Any] = pytree.tree_leaves(program.example_inputs, is_leaf=lambda value: value is None)
    of_user = [spec for spec in specs if spec.kind is InputKind.USER_INPUT]
    are_known = len(of_user) == len(inputs)
    values = iter(inputs)
    held = {**program.constants, **program.state_dict}
    known: list[Slot | None] = []
    for spec in specs:
        if spec.kind is InputKind.USER_INPUT:
            known.append(Slot(spec.arg.name, None, next(values)) if are_known else None)
        else:
            known.append(Slot(spec.arg.name, spec.target, held[spec.target]) if spec.target in held else None)
    return known


def _made_up(node: Node, generator: torch.Generator) -> Slot | None:
    """Return random numbers for an input of known shape, zeros for whole numbers; else ``None``."""
    known = node.meta.get("val", node.meta.get("example_value"))
    if isinstance(known, torch.Tensor):
        try:
            value = random_like(known, generator)
        except (RuntimeError, TypeError, ValueError):
            return None
        is_real = is_floating(known)
        return Slot(node.name, None, value if is_real else torch.zeros_like(value))
    number = known_number(known)
    return Slot(node.name, None, number) if isinstance(number, int | float | bool) else None


ONCE = "it was recorded while its pipeline ran; fxlab.from_callable makes a switch of a pass"


class PassRecorder:
    """Finds the pipeline of each graph that a pass begins with."""

    def __init__(self) -> None:
        self.pipelines: list[Pipeline] = []
        self.remarks: list[str] = []

    def begin_pass(self, name: str, graph_module: GraphModule, program: ExportedProgram | None) -> None:
        """Go on with the pipeline that has left this graph, or begin with another one."""
        self._now = self._found(graph_module)
        if program is not None and not self._now.stack.steps:
            self._now.known = known_values(program)
        self._now.begin_pass(name, graph_module)

    def end_pass(self, graph_module: GraphModule | None) -> None:
        """Note the change of the pass, if it has not raised."""
        if graph_module is not None:
            self._now.end_pass(graph_module)

    def _found(self, graph_module: GraphModule) -> Pipeline:
        latest = self.pipelines[::-1]
        found = next((one for one in latest if one.at() is graph_module), None)
        if found is None:
            # A program that a pass has returned holds a copy of the module that the pass has left.
            state = State(graph_module)
            found = next((one for one in latest if one.stack.last.state == state), None)
        if found is None:
            found = Pipeline(graph_module, ONCE)
            self.pipelines.append(found)
        return found
