"""The step of an optimizer, run on tensors that are given: recorded updates and eager checks call it."""

import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from fxlab.base.checks import type_error
from fxlab.models.parallel.placements import local_part
from fxlab.models.state.module_state import python_noted
from fxlab.tracing.report import TraceError
from fxlab.transformations.signature import digest
from fxlab.values.nested import tensors_inside

Slot = tuple[str, str]
"""A key in the state of an optimizer, and the parameter that it belongs to."""


class OptimizerStep:
    """An optimizer that can be run on given tensors.

    ``optimizer``: the optimizer, which is only read. ``model``: the model whose parameters it has. Raises
    TypeError or ValueError if it is no optimizer of this model, or cannot be recorded.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise type_error("optimizer", "a torch.optim.Optimizer", optimizer)
        self._optimizer, self.class_name = optimizer, type(optimizer).__name__
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
        vars(copy).update(self._copied())
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

    def _copied(self) -> dict[str, Any]:
        """Return its attributes, with copies of containers and objects, which a step may write."""
        copies = {k: v for k, v in vars(self._optimizer).items() if k not in _NOT_COPIED}
        own = {id(parameter) for parameter in self._parameters}
        shared = {id(value): value for _, value in tensors_inside(copies) if id(value) not in own}
        for name, value in copies.items():
            with suppress(Exception):  # an object that cannot be copied, such as a lock
                copies[name] = deepcopy(value, shared)
            if not own.isdisjoint(shared):
                raise TraceError(
                    f"optimizer: self.{name} leads to its parameters, as a model or scheduler does. A graph "
                    f"has them in param_groups alone: keep {name} elsewhere, or trace without the optimizer."
                )
        return copies

    @property
    def names(self) -> list[str]:
        """The parameters that it updates, in its order."""
        return [name for group in self._groups for name in group]

    @property
    def _parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for group in self._optimizer.param_groups for parameter in group["params"])


_NOT_COPIED = ("step", "state", "param_groups")


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


def _number_name(place: int, count: int) -> str:
    return "lr" if count == 1 else f"lr of group {place}"
