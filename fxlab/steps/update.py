"""Run an optimizer on given tensors, and record its update as a graph: the last part of a traced step."""

import inspect
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode

from fxlab.base.checks import type_error
from fxlab.base.exchanged import patched_functions
from fxlab.models.parallel.ranks import local_part
from fxlab.models.running.step_record import IN_PLACE
from fxlab.models.state.module_state import python_noted
from fxlab.operators import casts, filled_with, operator_for, operator_of
from fxlab.operators.node_info import known_shape
from fxlab.steps.recorded_calls import IN_LAYOUT
from fxlab.steps.repairs import functional
from fxlab.tracing import torch_private
from fxlab.tracing.messages import torch_logs_silent
from fxlab.tracing.report import TraceError
from fxlab.transformations.signature import digest
from fxlab.values.nested import tensors_inside

Slot = tuple[str, str]
"""A key in the state of an optimizer, and the parameter that it belongs to."""


class Update:
    """An optimizer that can be run on given tensors.

    ``optimizer``: the optimizer, which is only read. ``model``: the model whose parameters it has. Raises
    TypeError or ValueError if it is no optimizer of this model, or cannot be recorded.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise type_error("optimizer", "a torch.optim.Optimizer", optimizer)
        self._optimizer = optimizer
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._groups: list[list[str]] = []
        for number, group in enumerate(optimizer.param_groups):
            unknown = [at for at, parameter in enumerate(group["params"]) if id(parameter) not in names]
            if unknown:
                raise ValueError(
                    f"optimizer: parameter {unknown[0]} of its group {number} is not in the model. Make the "
                    "optimizer of model.parameters()."
                )
            self._groups.append([names[id(parameter)] for parameter in group["params"]])
        if any(getattr(optimizer, f"_optimizer_step_{when}_hooks", None) for when in ("pre", "post")):
            raise TraceError(
                "optimizer: it has hooks around step(), which may read or write anything, and which a graph "
                "would leave out. Remove them; to clip gradients, do so in the step of a subclass of the "
                "optimizer, over the parameters in self.param_groups."
            )
        # The wrappers of step() call a profiler and hooks, which must not be recorded.
        self.step = inspect.unwrap(type(optimizer).step)
        closure = inspect.signature(self.step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise TraceError(
                f"optimizer: {type(optimizer).__name__}.step calls the model again (closure), as often as it "
                "needs. A graph has one forward and one backward pass."
            )

    @property
    def class_name(self) -> str:
        """The name of its class."""
        return type(self._optimizer).__name__

    def state(self) -> dict[Slot, torch.Tensor]:
        """Return the tensors in its state; TraceError if a step may change other things there."""
        by_name = dict(zip(self.names, self._parameters, strict=True))
        found: dict[Slot, torch.Tensor] = {}
        for name, parameter in by_name.items():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    found[str(key), name] = local_part(value)
                elif value is not None:
                    raise TraceError(
                        f"optimizer: {self.class_name} keeps {key} = {value!r:.40} of {name}, which is no "
                        "tensor, and would be fixed in the graph. Keep it as a tensor, or trace without the "
                        "optimizer."
                    )
        return found

    @property
    def _rates(self) -> dict[str, Any]:
        """The learning rate of each group that has one."""
        groups = self._optimizer.param_groups
        named = ((_number_name(place, len(groups)), group) for place, group in enumerate(groups))
        return {name: group["lr"] for name, group in named if "lr" in group}

    def numbers(self) -> dict[str, torch.Tensor]:
        """Return the learning rate of each group in float64, or the tensor itself if it is one."""
        return {
            name: rate.detach()
            if isinstance(rate, torch.Tensor)
            else torch.tensor(rate, dtype=torch.float64, device="cpu")
            for name, rate in self._rates.items()
        }

    def has_numbers(self, numbers: Mapping[str, float]) -> bool:
        """Tell whether learning rates that a graph has fixed are still those of the optimizer."""
        now = self.numbers()
        return all(name in now and now[name].item() == value for name, value in numbers.items())

    def is_tensor(self, number: str) -> bool:
        """Tell whether a learning rate is a tensor already."""
        return isinstance(self._rates.get(number), torch.Tensor)

    def fixed(self) -> tuple[Any, ...]:
        """Return everything that is no input of the graph: settings except learning rates, and names."""
        settings = [
            {key: value for key, value in group.items() if key not in ("params", "lr", "initial_lr")}
            for group in self._optimizer.param_groups
        ]
        own = _keys_of(_attributes_of(self._optimizer))
        own.pop("self._opt_called", None)  # which schedulers look at
        state = ((slot, v.shape, v.dtype, v.layout, v.device) for slot, v in self.state().items())
        return repr(settings), tuple(state), tuple(own.items())

    def run(
        self,
        parameters: Mapping[str, torch.Tensor],
        gradients: Mapping[str, torch.Tensor],
        state: Mapping[Slot, torch.Tensor],
        numbers: Mapping[str, Any],
    ) -> dict[Slot, torch.Tensor]:
        """Write updated values into parameters, as the optimizer does; return the state after the step."""
        # Its own dictionary, so that the step never writes into the user's optimizer.
        copy = object.__new__(type(self._optimizer))
        # A scheduler sets a bound step there, which belongs to the user's optimizer.
        vars(copy).update(_copied({k: v for k, v in vars(self._optimizer).items() if k not in _NOT_COPIED}))
        held: defaultdict[torch.Tensor, Any] = defaultdict(dict)
        for (key, name), value in state.items():
            held[parameters[name]][key] = value
        for name, parameter in zip(self.names, self._parameters, strict=True):
            for key, value in self._optimizer.state.get(parameter, {}).items():
                held[parameters[name]].setdefault(key, value)
        copy.param_groups = []
        for place, (names, group) in enumerate(zip(self._groups, self._optimizer.param_groups, strict=True)):
            own = {**group, "params": [parameters[name] for name in names]}
            if (number := _number_name(place, len(self._groups))) in numbers:
                own["lr"] = numbers[number]
            copy.param_groups.append(own)
        copy.state = held
        for name in self.names:
            parameters[name].grad = gradients.get(name)
        before, read = _python_of(copy), python_noted(copy)
        with torch.no_grad():
            self.step(copy)
        # What its functions could not read before, such as a file that it has imported, is no change.
        known, after = before | read, _python_of(copy)
        now = after | python_noted(copy)
        changed = next((each for each in known | after if known.get(each) != now.get(each)), None)
        if changed is not None:
            raise TraceError(
                f"optimizer: a step of {self.class_name} changes {changed}, which is no tensor in its state, "
                "and would be fixed in the graph. Keep it there as one, or trace without the optimizer."
            )
        found: dict[Slot, torch.Tensor] = {}
        for name in self.names:
            parameters[name].grad = None
            for key, value in copy.state.get(parameters[name], {}).items():
                if isinstance(value, torch.Tensor):
                    found[str(key), name] = value
        return found

    @property
    def names(self) -> list[str]:
        """The parameters that it updates, in its order."""
        return [name for group in self._groups for name in group]

    @property
    def _parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for group in self._optimizer.param_groups for parameter in group["params"])


_NOT_COPIED = ("step", "state", "param_groups")


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes whose containers and objects a step may write; tensors are shared."""
    tensors = {id(value): value for _, value in tensors_inside(attributes)}
    try:
        return deepcopy(attributes, tensors)
    except Exception:  # an object that cannot be copied, such as a lock
        return attributes


def _python_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return keys of all in an optimizer, its groups and its state, but for tensors in this, by name."""
    values = _attributes_of(optimizer)
    for place, group in enumerate(optimizer.param_groups):
        values |= {f"param_groups[{place}]['{k}']": value for k, value in group.items() if k != "params"}
    for held in optimizer.state.values():
        numbers = {k: v for k, v in held.items() if v is not None and not isinstance(v, torch.Tensor)}
        values |= {f"state[...]['{k}']": value for k, value in numbers.items()}
    return _keys_of(values)


def _attributes_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the attributes of an optimizer, by name, but for its groups and its state."""
    own = (
        inspect.unwrap(part)
        for cls in type(optimizer).__mro__
        if cls.__module__.startswith("torch.optim.")
        for part in vars(cls).values()
    )
    flags = {name for part in own if inspect.isfunction(part) for name in part.__code__.co_names}
    return {
        f"self.{name}": value
        for name, value in vars(optimizer).items()
        # Torch's own step notes there that it has checked devices.
        if name not in _NOT_COPIED and not (name in flags and isinstance(value, bool))
    }


def _keys_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys of values, which are equal while these are, or are the same tensors."""
    # Symbols of sizes and rates are told by identity: to ask for their values would be a decision.
    by_identity = torch.Tensor | torch.SymFloat | torch.SymInt
    return {
        name: id(value) if isinstance(value, by_identity) else digest(value) for name, value in values.items()
    }


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
    update: Update,
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


def _check_elementwise(graph: fx.Graph, update: Update) -> None:
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


def _number_name(place: int, count: int) -> str:
    return "lr" if count == 1 else f"lr of group {place}"


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
