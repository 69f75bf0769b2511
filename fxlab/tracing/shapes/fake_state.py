"""Fake tensors in place of the parameters and buffers of a model, and data that comes along with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fxlab.tracing.model_code.caches import Unused
from fxlab.tracing.model_code.mode_reads import set_modes
from fxlab.tracing.model_code.twin import Twin
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
