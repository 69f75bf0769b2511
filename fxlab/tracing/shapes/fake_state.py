"""Fake tensors in place of the parameters and buffers of a model, their data, and those left by a run."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CellType, FrameType
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from fxlab.base.interrupts import RestoringStack
from fxlab.models.state.settings import put_settings_back, settings_now
from fxlab.tracing.model_code.caches import Unused
from fxlab.tracing.model_code.mode_reads import set_modes
from fxlab.tracing.model_code.surroundings import Surroundings
from fxlab.tracing.model_code.twin import Twin
from fxlab.tracing.report import TraceError
from fxlab.tracing.torch_private import (
    FakeTensor,
    FakeTensorMode,
    ShapeEnv,
    no_python_dispatcher,
    unset_fake_temporarily,
)
from fxlab.values.containers import is_a, replace_item, replaceable_items
from fxlab.values.nested import map_tensors


def has_data(tensor: torch.Tensor) -> bool:
    """Tell whether data comes along with a fake tensor."""
    return isinstance(tensor, FakeTensor) and tensor.real_tensor is not None


def data_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the data that comes along with a fake tensor."""
    assert isinstance(tensor, FakeTensor)
    assert tensor.real_tensor is not None
    return tensor.real_tensor


def give_data(tensor: torch.Tensor, data: torch.Tensor | None) -> None:
    """Attach data to a fake tensor, or remove it."""
    assert isinstance(tensor, FakeTensor)
    tensor.real_tensor = data


def environment_of(tensor: torch.Tensor) -> ShapeEnv:
    """Return what torch knows of the symbolic sizes of a fake tensor."""
    assert isinstance(tensor, FakeTensor)
    env = tensor.fake_mode.shape_env
    assert env is not None
    return env


def call_on_data(function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Call a function on the data that comes along with fake tensors, which nothing else is to see."""
    args, kwargs = map_tensors(lambda _, tensor: data_of(tensor), (tuple(args), dict(kwargs)))
    unseen = torch._C.DisableTorchFunction()
    with unseen, unset_fake_temporarily(), no_python_dispatcher(), torch.no_grad():
        return function(*args, **kwargs)


class Originals:
    """The model's own tensors, by the fake tensors that stand for them.

    Without fakes each tensor is its own original.
    """

    def __init__(self, twin: Twin | None = None) -> None:
        # By identity; the fake is held, so that no other tensor takes its identity.
        self._of = {id(fake): (fake, original) for original, fake in (twin.tensors() if twin else ())}

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor that a fake one stands for, or the tensor itself."""
        _, original = self._of.get(id(tensor), (None, tensor))
        return original


def fake_twin(model: nn.Module, mode: FakeTensorMode, training: bool | None = None) -> Twin:
    """Return a twin of a model that holds a fake tensor in place of each tensor of the model.

    Nothing that the twin computes has data, and nothing that it writes reaches the model. ``training``: the
    mode to put the twin in, if that is another one.
    """

    def fake_of(value: torch.Tensor) -> torch.Tensor:
        if isinstance(value, FakeTensor):
            return value
        # The sizes of weights are no symbols: a graph is for one model.
        fake = mode.from_tensor(value, static_shapes=True)
        if has_data(fake):
            give_data(fake, value.detach().clone())  # torch leaves out the data of parameters
        return fake

    twin = Twin(model, fake_of, Unused)
    if training is not None:
        set_modes(twin.model, training)
    return twin


@contextmanager
def data_in_place(module: nn.Module | None) -> Iterator[list[torch.Tensor]]:
    """Put the data that comes along with the fake tensors of a module in their place for a while.

    Gives the data.
    """
    fakes: dict[int, torch.Tensor] = {}
    data: list[torch.Tensor] = []

    def data_for(value: Any) -> Any:
        if not has_data(value):
            return value
        real = data_of(value)
        fakes[id(real)] = value
        data.append(real)
        return real

    if module is not None:
        replace_tensors(module, data_for)
    try:
        yield data
    finally:
        if module is not None:
            replace_tensors(module, lambda value: fakes.get(id(value), value))


def replace_tensors(model: nn.Module, replacement: Callable[[Any], Any]) -> None:
    """Replace each tensor that a module holds, as attribute or in a list or dict."""
    for module in model.modules():
        for holder in (vars(module), *vars(module).values()):
            for key, value in replaceable_items(holder):
                if is_a(value, torch.Tensor):
                    replace_item(holder, key, replacement(value))


_MOST_SEARCHED = 50
"""Holders whose own holders are looked for, each among all objects, when words for one are asked."""


@contextmanager
def put_back_after(around: Surroundings, mode: FakeTensorMode | None = None) -> Iterator[list[str]]:
    """Put the Python around a model, and settings of torch, back after a run, without a mode's fake tensors.

    Gives the changes that the run has made there, once the block has ended.
    """

    def is_of_run(value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            return isinstance(value, FakeTensor) and value.fake_mode is mode
        return mode is not None and value.node.shape_env is mode.shape_env

    changed: list[str] = []
    settings = settings_now()
    with RestoringStack() as restoring:
        restoring.callback(lambda: changed.extend(put_settings_back(settings)))
        restoring.callback(lambda: changed.extend(around.put_back(is_of_run)))
        yield changed


class TensorKeptError(TraceError):
    """A tensor of a run is held by something from which it cannot be taken away."""

    code = "tensor-kept"

    def __init__(self, holder: str, tensors: list[weakref.ref[torch.Tensor]]) -> None:
        super().__init__(
            f"The model keeps a tensor that it has computed outside of its modules, in a {holder}. It could "
            "not be taken away from there, and is a fake one: empty what holds it, and name the module that "
            "puts it there in leaf_modules."
        )
        self.tensors = tensors

    @property
    def is_over(self) -> bool:
        """Whether these tensors have no holder any more."""
        return _holder(self.tensors) is None


def still_there(references: list[weakref.ref[torch.Tensor]]) -> list[weakref.ref[torch.Tensor]]:
    """Return those fake tensors of a run that has ended which something still holds."""
    alive = [reference() for reference in references]
    tensors = [tensor for tensor in alive if isinstance(tensor, FakeTensor)]
    if tensors:
        for attributes in map(vars, tensors):
            # One with its own result as an attribute holds itself, through autograd's objects in C++.
            held = [name for name, value in attributes.items() if isinstance(value, FakeTensor)]
            for name in held:
                del attributes[name]
        del alive, tensors, attributes
        gc.collect()  # looks among the objects of the run alone, as those before are put aside
    return [reference for reference in references if isinstance(reference(), FakeTensor)]


def require_gone(left: list[weakref.ref[torch.Tensor]]) -> None:
    """Raise :class:`TensorKeptError` if a tensor of a run that has ended still has a holder."""
    if left and (holder := _holder(left)) is not None:
        raise TensorKeptError(holder, left)


def _holder(references: list[weakref.ref[torch.Tensor]]) -> str | None:
    tensors = [alive for alive in (reference() for reference in references) if alive is not None]
    for tensor in tensors:  # a generator, or a variable that is assigned in one, would be found to hold it
        if (holder := _holder_of(tensor, tensors)) is not None:
            return holder
    return None


def _holder_of(tensor: torch.Tensor, left: list[torch.Tensor]) -> str | None:
    """Return words for the object that a tensor can be reached from.

    Frames will end, and the run's own objects go with it; nodes of graphs hold fake tensors on purpose.
    """
    ahead: list[Any] = [tensor]
    ours: list[Any] = [left, ahead]  # the containers of this search itself
    known, seen = {id(left), id(ahead), id(ours)}, {id(tensor)}
    for value in ahead:
        found = gc.get_referrers(value)
        ours.append(found)
        known.add(id(found))
        holders = [holder for holder in found if id(holder) not in known]
        ours.append(holders)
        known.add(id(holders))
        if not holders and value is not tensor:  # something in C does
            return type(value).__name__
        for holder in holders:
            is_own = type(holder).__module__.startswith("fxlab.tracing.") or is_a(holder, Node)
            if id(holder) in seen or is_own or is_a(holder, FrameType):
                continue
            if not is_a(holder, dict, list, tuple, set, CellType):
                return f"{type(holder).__module__}.{type(holder).__qualname__}"
            seen.add(id(holder))
            ahead.append(holder)
        if len(ahead) > _MOST_SEARCHED:
            return type(ahead[-1]).__name__
    return None
