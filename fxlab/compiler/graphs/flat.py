"""The compiler's flat graphs, and its code, as graph modules with the model's weights: stages of sessions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from fxlab.base.checks import describe
from fxlab.base.torch_private import OpOverload
from fxlab.compiler.graphs import lineage
from fxlab.compiler.graphs.held_modules import paths_of
from fxlab.compiler.graphs.torch_private import (
    gradient_of,
    held_name,
    inductor_lowering,
    input_index,
    output_index,
    root_names,
    tangent_index,
)
from fxlab.compiler.recording.snapshot import Snapshot
from fxlab.compiler.recording.steps import TORCH, WHOLE, Recording, Stack
from fxlab.models.graph_modules.parts import graph_module_of
from fxlab.models.running.autocast import UnderAutocast
from fxlab.models.running.call_record import ALIASED_LATER
from fxlab.models.running.running import generators_kept
from fxlab.models.state.model_state import state_kept
from fxlab.operators.node_info import outputs_of


class NotRunnable:
    """The target of a node that only generated code can run: a lowering of Inductor."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to run."""
        raise RuntimeError(
            f"{self.__name__} is a lowering of Inductor: it exists in generated code alone, so this graph "
            "cannot be run. Switch the pass off that has put it there."
        )


class Frame:
    """The part that all stages of one graph have in common: inputs, parameters, names, modules.

    ``inputs``: the arguments by name; for the first graph of a model. ``ran``: their copies, which it got.
    """

    def __init__(
        self, model: nn.Module, inputs: Mapping[str, Any], ran: Mapping[str, Any], recording: Recording
    ) -> None:
        self._classes = lineage.class_paths(model)
        self._roots = paths_of(recording.modules, model)
        self._model_name = self._classes[""].rpartition(".")[2]
        self._recording = recording
        whole = recording.stacks[WHOLE]
        self._captured = whole.first
        self.names = lineage.Names()
        self._paths = {id(value): path for path, value in model.named_buffers()}
        self._paths |= {id(value): path for path, value in model.named_parameters()}
        self._slots = lineage.slots_of(self._paths, inputs, ran, recording, self.names)
        self._held = self._held_slots()
        for node in self._captured.graph.nodes:
            self.name_of(self._captured, node.name)
        self._tangents: dict[int, lineage.Slot] = {}
        self._saved: dict[str, lineage.Slot] = {}
        self._gradients: list[int] = []
        """Of which placeholders of Dynamo's graph there are gradients."""
        self._by_order: dict[Any, int] = {}
        """The placeholders of Dynamo's graph by descriptors, for a torch whose descriptors have no number."""
        self.remarks: list[str] = []
        """Facts about the graph that this torch does not tell, in words."""
        aten = next((s.after for s in whole.steps if s.after.dialect != TORCH), None)
        if aten is not None:
            self._join(aten)

    def inputs(self, kind: str) -> list[lineage.Slot]:
        """Return the inputs of all stages of a stack."""
        own = [slot for slot in self._slots if slot.path is None]
        tangents = list(self._tangents.values())
        if kind == "backward":
            self._save()
            first = self._recording.stacks[kind].first
            read = [self._slot(node, first) for node in first.graph.find_nodes(op="placeholder")]
            return [slot for slot in read if slot is not None and slot.path is None]
        return [*own, *tangents] if kind == WHOLE else own

    def name_of(self, snapshot: Snapshot, name: str) -> str:
        """Return the name in stages of a node of the compiler."""
        return self.names.of(snapshot.dialect, name, snapshot.made)

    def names_of_inputs(self, snapshot: Snapshot) -> dict[str, str]:
        """Return the names in stages of the compiler's placeholders, those that are known."""
        slots = {n.name: self._slot(n, snapshot) for n in snapshot.graph.find_nodes(op="placeholder")}
        return {name: slot.name for name, slot in slots.items() if slot is not None}

    def module(self, snapshot: Snapshot, kind: str) -> GraphModule:
        """Return a snapshot of a stack as a graph module."""
        graph, held = Graph(), dict(snapshot.held)
        if kind == "backward":
            self._save()
        slots = {node: self._slot(node, snapshot) for node in snapshot.graph.find_nodes(op="placeholder")}
        copies = self._copied_placeholders(graph, snapshot, kind, slots)
        held |= {known.path: known.value for known in slots.values() if known is not None and known.path}
        takes_derivatives = snapshot.dialect == TORCH and kind == WHOLE and self._gradients
        leaves = self._with_gradients(slots, copies) if takes_derivatives else {}
        inside = _in_autocast_around(snapshot) if self._recording.autocast else set()
        for node in snapshot.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if (written := _read_of_nothing(node)) is not None:
                copies[node] = copies[written]
                continue
            op, target = node.op, node.target
            if inductor_lowering(target):
                target = NotRunnable(target.__name__)
            elif node in inside:
                op, target = "call_function", UnderAutocast(target, self._recording.autocast)
            args, kwargs = (torch.fx.map_arg(value, copies.__getitem__) for value in (node.args, node.kwargs))
            name = self.name_of(snapshot, node.name)
            path = None
            if node.op == "get_attr":
                value = held.get(str(target))
                known = (slot.path for slot in self._held.values() if slot.value is value)
                path = self._paths.get(id(value)) or next(known, None)
            if path is not None:
                target, held[path] = path, held[str(target)]
            copies[node] = graph.create_node(op, target, args, kwargs, name, node.type)
            copies[node].meta = self._meta_of(node, path)
        self._return(graph, snapshot, kind, copies, leaves)
        for node in graph.find_nodes(op="get_attr"):
            if not node.users:
                graph.erase_node(node)
        captured = {node.name for node in self._captured.graph.nodes}
        lineage.fill_module_stacks(
            copy
            for node, copy in copies.items()
            if not (node.name in captured if snapshot.dialect == TORCH else root_names(node))
            and not getattr(node.target, "is_generated_code", False)  # of no module, but of all
        )
        module = graph_module_of(held, graph, self._model_name)
        module.meta["class_name"] = self._model_name
        if snapshot.dialect != TORCH and kind == WHOLE:
            module.meta[ALIASED_LATER] = frozenset(map(str, self._recording.aliased_later))
        return module

    @property
    def device_types(self) -> set[str]:
        """The types of device that the graph computes on."""
        return {v.device.type for v in self._recording.values if isinstance(v, torch.Tensor)} or {"cpu"}

    def code(self, recording: Recording) -> GraphModule:
        """Return a graph module that calls the code that was generated for Dynamo's graph."""
        placeholders = self._captured.graph.find_nodes(op="placeholder")
        now = recording.stacks[WHOLE].first.graph.find_nodes(op="placeholder")
        if recording.code is None or [n.name for n in now] != [n.name for n in placeholders]:
            raise ValueError("compiled code: Dynamo has captured another graph than in the first compile.")
        graph = Graph()
        values = [graph.create_node("placeholder", node.name, name=node.name) for node in placeholders]
        for value, node in zip(values, placeholders, strict=True):
            value.meta = dict(node.meta)
        run = CompiledCode(recording.code, recording.values, has_gradients=bool(self._gradients))
        results = graph.call_function(run, tuple(values))
        count = len(outputs_of(self._captured.graph))
        graph.output(tuple(graph.call_function(operator.getitem, (results, place)) for place in range(count)))
        return self.module(Snapshot(GraphModule(nn.Module(), graph), TORCH, {}), WHOLE)

    def _copied_placeholders(
        self, graph: Graph, snapshot: Snapshot, kind: str, slots: Mapping[Node, lineage.Slot | None]
    ) -> dict[Node, Node]:
        """Write inputs and the model's tensors into a graph; return the node of each placeholder."""
        # A stage takes all inputs, even those that the compiler's graph no longer has.
        inputs: dict[str, Node] = {}
        for slot in self.inputs(kind):
            new = inputs[slot.name] = graph.create_node("placeholder", slot.name, name=slot.name)
            is_tensor = isinstance(slot.value, torch.Tensor)
            new.meta["val"] = slot.value.detach().to("meta") if is_tensor else slot.value
        copies: dict[Node, Node] = {}
        for node, known in slots.items():
            name = self.name_of(snapshot, node.name) if known is None else known.name
            path = None if known is None else known.path
            if path is not None:
                new = graph.create_node("get_attr", path, name=name)
            else:
                new = inputs.get(name) or graph.create_node("placeholder", name, name=name)
            new.meta = self._meta_of(node, path)
            copies[node] = new
        return copies

    def _meta_of(self, node: Node, path: str | None) -> dict[str, Any]:
        """Return the ``meta`` of a node in stages; of a value at a path of the model it names the module."""
        meta = lineage.clean_meta(node, self._classes, self._roots)
        stack = {} if path is None else lineage.stack_of_path(path.rpartition(".")[0], self._classes)
        return {**meta, "nn_module_stack": stack} if stack else meta

    def _held_slots(self) -> dict[str, lineage.Slot]:
        """Return the tensors that Dynamo has put into its graph itself, such as weights to be frozen."""
        slots = {}
        for node in self._captured.graph.find_nodes(op="get_attr"):
            value = self._captured.held[str(node.target)]
            if str(node.target) in slots or not isinstance(value, torch.Tensor):
                continue
            path = self._paths.get(id(value), f"constants.{node.name}")
            name = self.names.give(TORCH, node.name, re.sub(r"\W+", "_", path).strip("_") or node.name)
            slots[str(node.target)] = lineage.Slot(name, path, value)
        return slots

    def _return(
        self,
        graph: Graph,
        snapshot: Snapshot,
        kind: str,
        copies: Mapping[Node, Node],
        leaves: Mapping[str, Node],
    ) -> None:
        """Return the outputs of Dynamo's graph, in its order, and gradients where they are compiled."""
        output = snapshot.graph.output_node()
        values: list[Any] = [
            torch.fx.map_arg(value, copies.__getitem__) for value in outputs_of(snapshot.graph)
        ]
        copies_of = {node.name: node for node in graph.find_nodes(op="placeholder")}
        if leaves:
            wanted = [leaves[self._slots[place].name] for place in self._gradients]
            tangents = [copies_of[slot.name] for slot in self._tangents.values()]
            of = [values[place] for place in self._tangents]
            arguments = of, wanted, tangents
            taken = graph.create_node("call_function", torch.autograd.grad, arguments, name="gradients")
            for number, place in enumerate(self._gradients):
                name = self.names.of(TORCH, f"gradient {place}", {})
                taken_from = taken, number
                values.append(graph.create_node("call_function", operator.getitem, taken_from, name=name))
        elif snapshot.dialect != TORCH and kind == WHOLE:
            known = output.meta.get("desc")
            places: list[tuple[str, int | None]] = []
            for one in known if isinstance(known, list | tuple) else ():
                output_place = output_index(one)
                gradient = "gradient", self._input_place(gradient_of(one))
                places.append(gradient if output_place is None else ("output", output_place))
            count = len(outputs_of(self._captured.graph))
            wanted_places = [("output", place) for place in range(count)]
            wanted_places += [("gradient", place) for place in self._gradients]
            if len(places) == len(values) and {*wanted_places} <= {*places}:
                values = [values[places.index(place)] for place in wanted_places]
        graph.output(tuple(values))

    def _with_gradients(
        self, slots: Mapping[Node, lineage.Slot | None], copies: dict[Node, Node]
    ) -> dict[str, Node]:
        """Make values that have gradients leaves, also where they run in another dtype."""
        wanted = {self._slots[place].name for place in self._gradients}
        leaves = {}
        for node, known in slots.items():
            if known is not None and known.name in wanted:
                held = copies[node]
                name = f"{known.name}_with_gradient"
                leaf = held.graph.create_node("call_method", "requires_grad_", (held,), name=name)
                leaf.meta = dict(held.meta)
                leaves[known.name] = copies[node] = leaf
        return leaves

    def _slot(self, node: Node, snapshot: Snapshot) -> lineage.Slot | None:
        """Return the value that a placeholder stands for; ``None`` if that is not known."""
        placeholders = snapshot.graph.find_nodes(op="placeholder")
        if snapshot.dialect == TORCH:
            return self._slots[placeholders.index(node)]
        if node.name in self._saved and snapshot.graph is not self._captured.graph:
            return self._saved[node.name]
        # Older releases of torch have no descriptors: inputs are told by their order.
        if not any("desc" in other.meta for other in placeholders):
            is_same = len(placeholders) == len(self._slots)
            return self._slots[placeholders.index(node)] if is_same else None
        if (name := held_name(node.meta.get("desc"))) is not None:
            return self._held.get(name)
        if (tangent := tangent_index(node.meta.get("desc"))) is not None:
            return self._tangents.get(tangent)
        place = self._input_place(node.meta.get("desc"))
        return None if place is None else self._slots[place]

    def _input_place(self, descriptor: Any) -> int | None:
        """Return which placeholder of Dynamo's graph a descriptor of AOTAutograd's is of."""
        place = input_index(descriptor)
        return self._by_order.get(descriptor) if place is None else place

    def _join(self, aten: Snapshot) -> None:
        """Name nodes of ATen operators after those that they stand for, and note the gradients."""
        for name, known in lineage.same_values(self._captured.graph, aten.graph).items():
            self.names.share(aten.dialect, name, self.name_of(self._captured, known))
        generator = torch.Generator().manual_seed(0)
        held = {slot.path: slot.name for slot in self._held.values()}
        for node in aten.graph.find_nodes(op="get_attr"):
            if (path := self._paths.get(id(aten.held[str(node.target)]))) in held:
                self.names.share(aten.dialect, node.name, held[path])
        placeholders = aten.graph.find_nodes(op="placeholder")
        of_inputs = [node.meta["desc"] for node in placeholders if node.meta.get("desc") is not None]
        numbers = {index for index in map(input_index, of_inputs) if index is not None}
        others = [one for one in of_inputs if tangent_index(one) is None and held_name(one) is None]
        if not numbers and len(others) == len(self._slots):
            self._by_order = {one: place for place, one in enumerate(others)}
            words = f"told by their order alone: this torch ({torch.__version__}) describes them otherwise."
            self.remarks.append(f"Inputs of graphs of ATen operators are {words}")
        for node in placeholders:
            place = tangent_index(node.meta.get("desc"))
            if place is not None:
                # The compile knows only the shapes of tangents: any numbers will show a difference.
                value = lineage.random_like(node.meta["val"], generator)
                self._tangents[place] = lineage.Slot(self.name_of(aten, node.name), None, value)
        output = aten.graph.output_node()
        descriptors = output.meta.get("desc")
        if isinstance(descriptors, list | tuple):
            pairs = zip(descriptors, outputs_of(aten.graph), strict=True)
            places = (self._input_place(gradient_of(one)) for one, value in pairs if isinstance(value, Node))
            self._gradients = [place for place in places if place is not None]
        for place in self._gradients:
            # No node of ATen operators has the name, which would stand for the same.
            self.names.give(TORCH, f"gradient {place}", f"gradient_of_{self._slots[place].name}")

    def _save(self) -> None:
        """Run the forward graph for the values that the backward graph reads of it."""
        stacks: dict[str, Stack] = self._recording.stacks
        if self._saved or "forward" not in stacks:
            return
        forward, backward = stacks["forward"].first, stacks["backward"].first
        values = outputs_of(forward.graph)
        places = {node.name: place for place, node in enumerate(values) if isinstance(node, Node)}
        module = self.module(forward, "forward")
        with torch.no_grad(), generators_kept(), state_kept(module, watch=False):
            # The compile runs no backward graph, so its saved values have to be computed here.
            results = module(**{slot.name: slot.value for slot in self.inputs("forward")})
        for node in backward.graph.find_nodes(op="placeholder"):
            if node.name in places and self._input_place(node.meta.get("desc")) is None:
                value = results[places[node.name]]
                self._saved[node.name] = lineage.Slot(self.name_of(backward, node.name), None, value)


def _in_autocast_around(snapshot: Snapshot) -> set[Node]:
    """Return the calls of Dynamo's graph in the autocast around it, outside of regions of the model."""
    if snapshot.dialect != TORCH:
        return set()
    found, depth = set(), 0
    for node in snapshot.graph.nodes:
        name = getattr(node.target, "__name__", "")
        depth += (name == "_enter_autocast") - (name == "_exit_autocast")
        is_call = node.op in ("call_function", "call_method") and node.target is not operator.getitem
        if is_call and not depth and name != "_exit_autocast" and not isinstance(node.target, CompiledCode):
            found.add(node)
    return found


def _read_of_nothing(node: Node) -> Node | None:
    """Return the tensor that a ``_foreach`` operator wrote, for Inductor's node that reads it as a result."""
    if node.target is not operator.getitem or not isinstance(node.args[0], Node):
        return None
    call, place = node.args[0], node.args[1]
    if not isinstance(call.target, OpOverload) or call.target._schema.returns or not call.args:
        return None
    updated = call.args[0]
    return updated[place] if isinstance(updated, list | tuple) else None  # type: ignore[index, return-value]


class CompiledCode:
    """Runs the code that Inductor has generated, on the arguments it was generated for and nothing else.

    Guards of Dynamo stand before compiled code. It is called here without them, and reads memory as it is.
    ``values``: the arguments of the capture. ``has_gradients``: whether a backward graph was compiled too.
    """

    __name__ = __qualname__ = "compiled_code"
    is_generated_code = True
    """Tells a verdict that there is no float64 run of it."""

    def __init__(self, run: Callable[..., Any], values: Sequence[Any], *, has_gradients: bool) -> None:
        self._run, self._has_gradients = run, has_gradients
        self._given = [_known(value) for value in values]

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """Run it; ValueError if it was not generated for an argument, or for gradients that are wanted."""
        for place, (value, given) in enumerate(zip(values, self._given, strict=True)):
            now = _known(value)
            if now != given:
                came = now if isinstance(value, torch.Tensor) else describe(value)
                raise ValueError(f"compiled code: argument {place} is {came}; it was generated for {given}.")
        needs = torch.is_grad_enabled() and any(getattr(value, "requires_grad", False) for value in values)
        if needs and not self._has_gradients:
            raise ValueError(
                "compiled code: it was generated for inference, and has no gradients. Run it under "
                "torch.no_grad(), or compile them: "
                "fxlab.compiler.compile_session(model, inputs, training=True)."
            )
        return tuple(self._run(*values))

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledCode:
        return self


def _known(value: Any) -> Any:
    """Return, in words, the properties of a tensor that code requires; another value itself."""
    if not isinstance(value, torch.Tensor):
        return value
    shape, stride = list(value.shape), list(value.stride())
    return f"{value.dtype} of shape {shape} and strides {stride} on {value.device}"
