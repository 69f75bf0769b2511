"""Fake tensors in place of the parameters and buffers of a model, while a run is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from fxlab.tracing.fake_data import give_data, has_data


class Originals:
    """The model's own tensors, by the fake tensors that stand for them.

    Without fakes each tensor is its own original.
    """

    def __init__(self, of: Mapping[torch.Tensor, torch.Tensor] | None = None) -> None:
        # By identity; the fake is held, so that no other tensor takes its identity.
        self._of = {id(fake): (fake, original) for fake, original in (of or {}).items()}

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor that a fake one stands for, or the tensor itself."""
        _, original = self._of.get(id(tensor), (None, tensor))
        return original


def put_fakes(model: nn.Module, mode: FakeTensorMode) -> Originals:
    """Replace each tensor that a module of a model holds, as attribute or in a list or dict, by a fake one.

    Nothing that the model then computes has data, and nothing it writes reaches the tensors themselves. What
    was there is put back by :func:`~fxlab.tracing.module_state.module_state_kept`.

    Parameters
    ----------
    model
        The module; it is changed.
    mode
        Makes the fakes; the same tensor always gets the same one.
    """
    made: dict[torch.Tensor, torch.Tensor] = {}

    def fake_of(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        fake = mode.from_tensor(value, static_shapes=True)
        if has_data(fake):
            give_data(fake, value.detach().clone())  # torch leaves out the data of parameters
        made[fake] = value
        return fake

    for module in model.modules():
        for holder in (vars(module), *vars(module).values()):
            if isinstance(holder, dict):
                holder.update({key: fake_of(v) for key, v in holder.items() if isinstance(v, torch.Tensor)})
            elif type(holder) is list:
                holder[:] = [fake_of(item) for item in holder]
    return Originals(made)
