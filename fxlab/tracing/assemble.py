"""Graph modules of recorded graphs, for a trace: of a whole run, or up to the call at which it raises."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node, map_arg

from fxlab.models.graph_modules.graph_module import code_on_demand, ensure_picklable
from fxlab.models.graph_modules.parts import Container, free_paths
from fxlab.tracing.model_code.given_model import attribute_of
from fxlab.tracing.recording.run import RecordingState
from fxlab.tracing.report import TraceError
from fxlab.values.nested import RAISED


def assemble(
    model: nn.Module, graph: Graph, constants: Mapping[str, torch.Tensor], branches: Mapping[str, GraphModule]
) -> GraphModule:
    """Return a graph module that holds the parts of a model that a graph uses.

    Modules, parameters and buffers are the model's own objects, at the same paths and in the same order;
    modules that only hold others are replaced by empty ones. A name that graph modules use themselves, such
    as ``graph``, becomes ``graph_1``. ``constants``: tensors that the graph uses and the model does not have,
    by name. ``branches``: graphs that nodes of the graph call, by name.
    """
    result = GraphModule(nn.Module(), Graph(), class_name=type(model).__name__)
    result.train(model.training)
    readers = [node for node in graph.nodes if node.op in ("call_module", "get_attr")]
    used = {str(node.target) for node in readers}
    paths = free_paths(used)
    for path, module in model.named_modules():
        if path in used:
            parent, name = _parent(result, model, path, paths[path])
            parent.add_module(name, module)
            continue
        for name, parameter in module.named_parameters(path, recurse=False):
            if name in used:
                parent, last = _parent(result, model, name, paths[name])
                parent.register_parameter(last, parameter)
        for name, buffer in module.named_buffers(path, recurse=False):
            if name in used:
                parent, last = _parent(result, model, name, paths[name])
                persistent = name.rpartition(".")[2] not in module._non_persistent_buffers_set
                parent.register_buffer(last, buffer, persistent=persistent)
    for name, constant in constants.items():
        if name in used:
            result.register_buffer(name, constant, persistent=False)
    for name, branch in branches.items():
        if name in used:
            result.add_module(name, branch)
    for node in readers:
        if (path := paths[str(node.target)]) != node.target:
            node.target = path
    ensure_picklable(result)
    with code_on_demand(True):
        result.graph = graph
    if (config := attribute_of(model, "config")) is not None:
        result.config = config
    return result


def _parent(result: GraphModule, model: nn.Module, path: str, found: str) -> tuple[nn.Module, str]:
    """Return the module that holds the value at a path, made if there is none, and the value's name in it."""
    holder: nn.Module = result
    origin: nn.Module | None = model
    *parents, last = found.split(".")
    for name, original in zip(parents, path.split("."), strict=False):
        origin = origin._modules[original] if origin is not None else None
        if name not in holder._modules:
            holder.add_module(name, Container().train(origin is not None and origin.training))
        holder = holder.get_submodule(name)
    return holder, last


class FailedRun:
    """Keeps the graph of a run that fails; a run calls it with its state and the error of the model."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._place = model, list[str]()
        self.error: Exception | None = None
        self.graph_module: GraphModule | None = None

    def __call__(self, run: RecordingState, error: Exception) -> None:
        """End the graph with the call that has raised, which has no result."""
        recording, self.error = run.recording, error
        node = next((node for node in reversed(recording.graph.nodes) if node.op != "placeholder"), None)
        scopes = run.failed[1] if run.failed is not None and run.failed[0] is error else []
        path, cls = scopes[-1] if scopes else ("", type(self._model))
        self._place = [f"in {path} ({cls.__name__})"] if path else []
        if (call := run.errors.call_of(error)) is not None:
            with suppress(TraceError):
                arguments = recording.argument((call.args, dict(call.kwargs)))
                node = recording.here.create_node(call.op, call.target, *arguments)
                node.meta["nn_module_stack"] = {path: (path, cls) for path, cls in scopes if path}
                node.meta[RAISED] = str(error)
        recording.graph.output(node if node is not None and node.graph is recording.graph else None)
        self.graph_module = assemble(self._model, recording.graph, recording.constants, recording.branches)

    def put_into(self, error: TraceError) -> None:
        """Give an error the graph, and notes about the place and the arguments of the call."""
        error.graph_module = self.graph_module
        assert self.graph_module is not None
        failed = [node for node in self.graph_module.graph.nodes if RAISED in node.meta]
        calls = (_Trial(self.graph_module, node) for node in failed)
        for line in (*self._place, *(line for call in calls for line in (*call.arguments(), *call.causes()))):
            error.add_note(line)


class _Trial:
    """A call on tensors without data, also of other shapes than it has had."""

    def __init__(self, graph_module: GraphModule, node: Node) -> None:
        self._node = node
        self._module = graph_module.get_submodule(str(node.target)) if node.op == "call_module" else None
        state = {} if self._module is None else self._module.state_dict(keep_vars=True)
        given = {_name(source): source.meta.get("val") for source in node.all_input_nodes}
        self._state = state.keys()
        self._tensors = {n: t for n, t in (given | state).items() if isinstance(t, torch.Tensor)}

    def arguments(self) -> Iterator[str]:
        """Yield a line with the shapes of the call's arguments and weights."""
        shapes = [f"{name} {tuple(tensor.shape)}" for name, tensor in self._tensors.items()]
        if shapes:
            yield f"{self._node.name} was given {', '.join(shapes)}"

    def causes(self) -> Iterator[str]:
        """Yield a line with the sizes that do not fit: with a size of another tensor there, the call runs."""
        shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}
        if self._runs(shapes):
            return
        found: list[str] = []
        for name, shape in shapes.items():
            others = {size for other, sizes in shapes.items() if other != name for size in sizes}
            found += (
                f"{name}.shape[{dim}] is {size}, and would have to be {other}"
                for dim, size in enumerate(shape)
                for other in others - {size}
                if self._runs(shapes | {name: (*shape[:dim], other, *shape[dim + 1 :])})
            )
        if found:
            yield f"likely: {', or '.join(found[:4])}"

    def _runs(self, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        tensors = self._tensors.items()
        made = {name: torch.empty(shapes[name], dtype=of.dtype, device="meta") for name, of in tensors}
        given = self._node.args, self._node.kwargs
        args, kwargs = map_arg(given, lambda node: made.get(_name(node), node.meta.get("val")))
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if self._module is not None:
                    state = {name: made[name] for name in self._state}
                    torch.func.functional_call(self._module, state, args, kwargs)
                elif self._node.op == "call_method":
                    getattr(args[0], str(self._node.target))(*args[1:], **kwargs)
                else:
                    self._node.target(*args, **kwargs)  # type: ignore[operator]
        except Exception:  # a call may raise anything
            return False
        return True


def _name(node: Node) -> str:
    """Return the path of a weight that a node reads, or the name of the node."""
    return str(node.target) if node.op == "get_attr" else node.name
