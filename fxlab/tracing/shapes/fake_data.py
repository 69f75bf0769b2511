"""Data that comes along with fake tensors, for a model to decide on (torch: real tensor propagation)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fxlab.tracing.torch_private import FakeTensor, no_python_dispatcher, unset_fake_temporarily
from fxlab.values.nested import map_tensors


def has_data(tensor: torch.Tensor) -> bool:
    """Tell whether data comes along with a fake tensor."""
    return isinstance(tensor, FakeTensor) and tensor.real_tensor is not None


def data_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the data that comes along with a fake tensor."""
    assert isinstance(tensor, FakeTensor)
    assert tensor.real_tensor is not None
    return tensor.real_tensor


def give_data(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """Let data come along with a fake tensor."""
    assert isinstance(tensor, FakeTensor)
    tensor.real_tensor = data


def call_on_data(function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Call a function on the data that comes along with fake tensors, which nothing else is to see."""
    args, kwargs = map_tensors(lambda _, tensor: data_of(tensor), (tuple(args), dict(kwargs)))
    unseen = torch._C.DisableTorchFunction()
    with unseen, unset_fake_temporarily(), no_python_dispatcher(), torch.no_grad():
        return function(*args, **kwargs)
