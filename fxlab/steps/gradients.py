"""Record forward, loss and backward of a model as one graph, the larger part of a traced step."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.func import functional_call

from fxlab.models.parallel.placements import Layout, layout_of, local_part, whole_of
from fxlab.models.running.autocast import autocast_set
from fxlab.models.state.model_state import python_generators
from fxlab.operators import written_arguments
from fxlab.steps.arguments import Batch, called, loss_of
from fxlab.steps.places import OperatorNotes, Places, copy_source_lines, with_places
from fxlab.steps.recorded_calls import IN_LAYOUT, eager_losses, lists_followed
from fxlab.steps.repairs import functional, with_guards, with_one_draw, with_workspaces, without_hidden_writes
from fxlab.steps.sharding import Sharding
from fxlab.tracing import torch_private
from fxlab.tracing.messages import placed_line
from fxlab.tracing.model_code.twin import Twin
from fxlab.tracing.report import TraceError

LOSS = "loss"


@dataclass(frozen=True)
class RecordedPasses:
    """A recorded step: from parameters, buffers and a batch to loss, gradients and new buffers."""

    graph: fx.Graph
    module: fx.GraphModule
    parameters: dict[str, torch.Tensor]
    """Detached, in the order of the model; they share its memory."""
    buffers: dict[str, torch.Tensor]
    batch: Batch
    gradients: tuple[str, ...]
    """The parameters that the loss depends on and that have gradients."""
    written: tuple[str, ...]
    """The buffers that a step writes."""
    layouts: Mapping[str, Layout]
    """The layouts of parameters and buffers that are spread over ranks."""
    storage: Mapping[str, torch.layout]
    """The storage layouts of gradients: those of ``nn.Embedding(sparse=True)`` are sparse."""


def hooks_of(model: nn.Module) -> dict[str, tuple[Callable[..., Any], ...]]:
    """Return the hooks that change gradients of parameters, by name; TraceError for hooks after that."""
    found = {}
    for name, parameter in model.named_parameters():
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise TraceError(
                f"{name} has a hook that runs after its gradient has been accumulated, which a graph would "
                "leave out. Remove it, and do the same in the optimizer's step."
            )
        if hooks := parameter._backward_hooks:
            found[name] = tuple(hooks.values())
    return found


class Forward:
    """The computation of the loss and the gradients by a twin of the model, on given tensors."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any] | None) -> None:
        own = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
        sharding = Sharding(model)
        twin = Twin(model, lambda tensor: tensor if id(tensor) in own else tensor.clone())
        # A loss that reads the model, such as one with weight decay, must read the twin.
        self.model, self._loss, self._twin = twin.model, twin.of(loss), twin
        self.drawn: dict[str, None] = {}
        """The random number generators of Python that runs have drawn from."""
        self._hooks = {name: tuple(map(twin.of, hooks)) for name, hooks in hooks_of(model).items()}
        self.sharding = sharding.of_twin(twin)

    def __call__(
        self,
        parameters: Mapping[str, torch.Tensor],
        buffers: Mapping[str, torch.Tensor],
        given: Any,
        places: Places | None = None,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return the loss, the gradients of parameters that it depends on, and the new buffers."""
        buffers = {name: self.sharding.buffer(value) for name, value in buffers.items()}
        asked = {name: value for name, value in parameters.items() if value.requires_grad}
        whole = _Whole(self, self._loss, list(asked.values()), places)
        with (
            torch.enable_grad(),
            # Modes that record act on this thread alone, so the backward pass must run in it.
            torch.autograd.set_multithreading_enabled(False),
            self.sharding.averaging(asked.values()),
            ExitStack() as hooked,
        ):
            for name in asked.keys() & self._hooks.keys():
                for hook in self._hooks[name]:
                    hooked.callback(asked[name].register_hook(hook).remove)  # type: ignore[no-untyped-call]
            drawn = python_generators()
            everything = {**parameters, **buffers}
            held = {f"model.{name}": self.sharding.held(name, value) for name, value in everything.items()}
            loss, found = functional_call(whole, held, (given,), tie_weights=True)
        now = python_generators()
        self.drawn |= dict.fromkeys(name for name, state in drawn.items() if now[name] != state)
        gradients = {name: value for name, value in zip(asked, found, strict=True) if value is not None}
        after = (held[f"model.{name}"] for name in buffers)
        parts = (value if layout_of(value) is None else local_part(value) for value in after)
        return loss, gradients, dict(zip(buffers, parts, strict=True))

    def changed(self) -> list[str]:
        """Return what runs have changed in the model, besides data of tensors, by its paths."""
        return self._twin.changed()


class _Whole(nn.Module):
    """A model, its loss and the backward pass, in which checkpoints call the model again."""

    def __init__(
        self,
        forward: Forward,
        loss: Callable[..., Any] | None,
        asked: Sequence[torch.Tensor],
        places: Places | None,
    ) -> None:
        super().__init__()
        self.model, self._loss, self._asked, self._places = forward.model, loss, asked, places
        self._sharding = forward.sharding

    def forward(self, given: Any) -> tuple[torch.Tensor, Sequence[torch.Tensor | None]]:
        places = self._places
        with nullcontext() if places is None else places.modules_of(self.model), self._sharding.gathering():
            output, beside = called(self.model, self._loss, given)
            box: AbstractContextManager[None] = nullcontext()
            if places is not None and self._loss is None:
                places.rest_is(LOSS)
            elif places is not None:
                name = str(getattr(self._loss, "__name__", type(self._loss).__name__)).strip("<>")
                box = places.inside(LOSS, name)
            with box:
                loss = whole_of(loss_of(self._loss, output, beside))
            with autocast_set():
                if places is None:
                    return loss, _accumulated(loss, self._asked)
                with places.backward_from(loss):
                    return loss, torch.autograd.grad(loss, self._asked, allow_unused=True)


def _accumulated(loss: torch.Tensor, asked: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Return gradients as training accumulates them.

    ``torch.autograd.grad`` leaves out those that an operator, as a reentrant checkpoint, accumulates.
    """
    loss.backward()  # type: ignore[no-untyped-call]
    found = [tensor.grad for tensor in asked]
    for tensor in asked:
        tensor.grad = None
    return found


def record_forward_backward(forward: Forward, model: nn.Module, batch: Batch) -> RecordedPasses:
    """Record a step on the real parameters, so that branches go as in training."""
    parameters = {name: local_part(value) for name, value in model.named_parameters()}
    for value, parameter in zip(parameters.values(), model.parameters(), strict=True):
        value.requires_grad_(parameter.requires_grad)
    buffers = {name: local_part(value) for name, value in model.named_buffers()}
    storage: dict[str, torch.layout] = {}

    def step(*tensors: torch.Tensor) -> list[torch.Tensor]:
        at = len(parameters)
        own = dict(zip(parameters, tensors, strict=False))
        state = dict(zip(buffers, tensors[at:], strict=False))
        graph = torch_private.get_proxy_mode().tracer.graph
        given = batch.with_tensors(tensors[at + len(buffers) :])
        with OperatorNotes(graph), lists_followed(), eager_losses():
            loss, found, after = forward(own, state, given, Places(graph))
        storage.update({name: value.layout for name, value in found.items()})
        return [loss, *found.values(), *after.values(), *own.values()]

    # The schemas of some operators do not declare their writes of running statistics.
    given = *parameters.values(), *(buffer.clone() for buffer in buffers.values()), *batch.tensors
    # The tensors by which torch functionalizes writes cannot hold tensors of several ranks.
    is_spread = bool(forward.sharding.layouts)
    try:
        with torch_private.one_fake_mode():
            module = _made(step if is_spread else functional(step), given)
            if is_spread and any(map(written_arguments, module.graph.nodes)):
                module = _made(functional(with_places(module)), given)
    except TraceError:
        raise
    except Exception as error:  # whatever a model raises, or torch where it cannot record
        raise TraceError(
            f"{type(model).__name__} could not be recorded as a training step. It raised "
            f"{type(error).__name__}: {placed_line(error)}"
        ) from error
    without_hidden_writes(module.graph)
    with_workspaces(module)
    with_one_draw(module.graph)
    with_guards(module.graph)
    copy_source_lines(module.graph)
    written = _written(module.graph, [*parameters, *buffers], [*buffers, *parameters])
    if changed := next((name for name in parameters if name in written), None):
        raise TraceError(
            f"The forward pass writes the parameter {changed}, as an embedding with max_norm does, and a "
            "step has one new value of it: that of the optimizer. Write it outside of the step."
        )
    layouts = forward.sharding.layouts
    return RecordedPasses(
        module.graph, module, parameters, buffers, batch, tuple(storage), written, layouts, storage
    )


def _made(function: Callable[..., Any], given: tuple[torch.Tensor, ...]) -> fx.GraphModule:
    module: fx.GraphModule = torch_private.make_fx(
        function, decomposition_table=IN_LAYOUT, tracing_mode="real", _error_on_data_dependent_ops=False
    )(*given)
    return module


def results_of(graph: fx.Graph) -> list[Any]:
    """Return the values that a recorded graph returns in a list."""
    return list(graph.output_node().args[0])  # type: ignore[arg-type]


def _written(graph: fx.Graph, given: Sequence[str], returned: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the given inputs whose values change, by the last results of a step."""
    before = dict(zip(given, graph.find_nodes(op="placeholder"), strict=False))
    after = dict(zip(reversed(returned), reversed(results_of(graph)), strict=False))
    return tuple(name for name in returned if before[name] is not after[name])
