"""Records the update of an optimizer as a graph, the last part of a traced step."""

import itertools
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from fxlab.base.exchanged import patched_functions
from fxlab.base.torch_logs import torch_logs_silent
from fxlab.models.running.step_record import IN_PLACE
from fxlab.operators import casts, filled_with, operator_for, operator_of
from fxlab.operators.node_info import known_shape
from fxlab.steps.optimizer_step import OptimizerStep, Slot
from fxlab.steps.recorded_calls import IN_LAYOUT
from fxlab.steps.repairs import functional
from fxlab.tracing import torch_private
from fxlab.tracing.report import TraceError


@dataclass(frozen=True)
class Updated:
    """A recorded update: a graph of parameters, gradients, state and numbers."""

    module: fx.GraphModule
    """It returns the new parameters, then the new state."""
    numbers: dict[str, torch.Tensor]
    """The learning rates that are inputs."""
    fixed: dict[str, float]
    """The learning rates that the graph has as numbers."""
    state: dict[Slot, torch.Tensor]
    """The state that it takes."""
    slots: tuple[Slot, ...]
    """The state that it returns."""


def recorded_update(
    update: OptimizerStep,
    parameters: Mapping[str, torch.Tensor],
    gradients_in: Mapping[str, torch.layout],
    spread: Container[str] = (),
) -> Updated:
    """Record the update of parameters.

    It is recorded on fake tensors: numbers that an optimizer reads, such as the count of steps, become
    symbols, so that the graph computes with them as the optimizer's own Python does. Of parameters that are
    ``spread`` over ranks it has the parts of this rank. ``gradients_in``: the storage layouts of gradients,
    by the parameters that have one. Raises TraceError if the optimizer branches on values that it reads.
    """
    if sparse := [name for name, layout in gradients_in.items() if layout is not torch.strided]:
        raise TraceError(
            f"optimizer: the gradient of {sparse[0]} is sparse (as of nn.Embedding with sparse=True), and no "
            "update by such is recorded. Trace without the optimizer, and let it do its step by itself, or "
            "make the gradient dense (sparse=False)."
        )
    state, slots = update.state(), list[Slot]()
    gradients = {name: parameters[name] for name in gradients_in}  # of the same shapes and dtypes

    def run_with(numbers: Mapping[str, torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
        def step(*tensors: torch.Tensor) -> list[torch.Tensor]:
            slots.clear()
            rest = iter(tensors)
            own = {name: next(rest) for name in parameters}
            grads = {name: next(rest) for name in gradients}
            held = {slot: next(rest) for slot in state}
            rates = {name: next(rest) for name in numbers}
            given = {name: rate if update.is_tensor(name) else rate.item() for name, rate in rates.items()}
            with _UpdateCalls():
                after = update.run(own, grads, held, given)
            slots.extend(after)
            return [*own.values(), *after.values()]

        return step

    error: Exception | None = None
    every = update.numbers()
    # First with learning rates as inputs; if the step needs one as a number, it is fixed in the graph.
    for numbers in (every, {name: value for name, value in every.items() if update.is_tensor(name)}):
        values = [*parameters.values(), *gradients.values(), *state.values(), *numbers.values()]
        # Parameters keep their sizes, so that numbers alone become symbols.
        mode = torch_private.FakeTensorMode(
            shape_env=torch_private.ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True
        )
        with mode:
            fakes = [
                torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
                for value in values
            ]
        try:
            with torch.no_grad(), torch_logs_silent(), _square_roots_of_symbols(), _fused_kernels_apart():
                function = functional(run_with(numbers))
                module = torch_private.make_fx(
                    function, IN_LAYOUT, tracing_mode="real", _error_on_data_dependent_ops=False
                )(*fakes)
        except (torch_private.GuardOnDataDependentSymNode, _NeedsNumberError) as raised:
            error = error or raised
            continue
        except TraceError:
            raise
        except Exception as raised:  # whatever torch raises where it cannot record
            raise TraceError(
                f"optimizer: the step of {update.class_name} could not be recorded. It raised "
                f"{type(raised).__name__}: {raised}. Trace without it, which leaves that to the optimizer."
            ) from raised
        if any(name in spread for name in parameters):
            _check_elementwise(module.graph, update)
        fixed = {name: value.item() for name, value in every.items() if name not in numbers}
        return Updated(module, numbers, fixed, state, tuple(slots))
    raise TraceError(
        f"optimizer: {update.class_name} decides something by the numbers in its state, so no one graph "
        "holds for all steps. Trace without it, and let it do its step by itself."
    ) from error


def _check_elementwise(graph: fx.Graph, update: OptimizerStep) -> None:
    """Refuse an optimizer that computes an element from several, some of which another rank may hold."""
    for node in graph.nodes:
        operator = operator_of(node)
        tensors = [value for value in node.all_input_nodes if known_shape(value) not in (None, ())]
        if operator is None or not tensors or operator.may_alias or operator.is_pointwise:
            continue
        name = operator.name
        is_known = operator.computes == "copy" or casts(node) or filled_with(node) is not None
        if not is_known and not name.startswith("_fused_") and not _is_list_of_pointwise(name):
            raise TraceError(
                f"optimizer: {update.class_name} computes {name} of whole parameters, and each rank has a "
                "part of them. Trace without it, and let it do its step by itself."
            )


def _is_list_of_pointwise(name: str) -> bool:
    """Tell whether an operator computes each of several tensors element by element."""
    if not name.startswith("_foreach_"):
        return False
    one = operator_for(getattr(torch.ops.aten, name.removeprefix("_foreach_").rstrip("_"), None))
    return one is not None and (one.is_pointwise or one.computes == "copy")


@contextmanager
def _square_roots_of_symbols() -> Iterator[None]:
    """Let ``math.sqrt`` of a symbol be a symbol; torch turns it into a number."""

    def made(root: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda value: torch.sym_sqrt(value) if isinstance(value, torch.SymFloat) else root(value)

    with patched_functions(math, {"sqrt": made}):
        yield


class _UpdateCalls(TorchFunctionMode):
    """Notes writes in place of an update that is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self._graph = torch_private.get_proxy_mode().tracer.graph

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        last = next(iter(reversed(self._graph.nodes)))
        result = func(*args, **(kwargs or {}))
        if (name.endswith("_") and not name.endswith("__")) or name.startswith("__i"):
            for node in itertools.takewhile(lambda node: node is not last, reversed(self._graph.nodes)):
                node.meta[IN_PLACE] = True
        return result


class _NeedsNumberError(Exception):
    """A kernel takes a learning rate only as a number."""


_FUSED = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")


@contextmanager
def _fused_kernels_apart() -> Iterator[None]:
    """Make fused kernels return their written lists: torch functionalizes no writes to empty ones."""

    def made(name: str) -> Callable[[Any], Any]:
        apart = getattr(torch.ops.aten, name.removesuffix("_"))

        def kernel(*lists: Sequence[torch.Tensor], **settings: Any) -> None:
            if any(isinstance(value, torch.SymFloat) for value in settings.values()):
                raise _NeedsNumberError
            for given, values in zip(lists, apart(*lists, **settings), strict=False):
                for tensor, value in zip(given, values, strict=True):
                    tensor.copy_(value)

        return lambda _: kernel

    with patched_functions(torch, {name: made(name) for name in _FUSED if hasattr(torch, name)}):
        yield
