"""Dynamo's capture of a model, compared with a run of the model itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from fxlab.models.state.tensor_state import named_tensors
from fxlab.validation.outputs.computed_tensors import GRADIENT, INPUT, STATE
from fxlab.values.tensors import is_floating, tensors_by_path

CAPTURE = "capture"
"""The name of the stage that Dynamo's capture is: what the model's Python computes becomes graphs."""


class Outcome:
    """The tensors that a call returns and writes, and gradients.

    ``module``: holds the modules that the call reads. ``arguments``: those of the call, by name.
    """

    def __init__(self, module: nn.Module, arguments: Mapping[str, Any]) -> None:
        self._module, self._arguments = module, arguments
        self._versions = {name: tensor._version for name, tensor in self._held()}

    def _held(self) -> list[tuple[str, torch.Tensor]]:
        held = [(STATE + name, tensor) for name, tensor in named_tensors(self._module)]
        held += [(INPUT + name, tensor) for name, tensor in tensors_by_path(self._arguments).items()]
        return [(name, tensor) for name, tensor in held if not tensor.is_inference()]

    def of(self, result: Any, *, gradients: bool) -> dict[str, torch.Tensor]:
        """Return copies of the tensors that the call has returned and written, and gradients if asked for."""
        returned = tensors_by_path(result)
        written = {name: t for name, t in self._held() if self._versions.get(name) != t._version}
        found = {path: tensor.detach().clone() for path, tensor in (returned | written).items()}
        return found | (self._gradients(returned) if gradients else {})

    def _gradients(self, returned: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        heads = {path: t for path, t in returned.items() if t.requires_grad and is_floating(t)}
        leaves = {name: tensor for name, tensor in self._held() if tensor.requires_grad and tensor.is_leaf}
        if not heads or not leaves:
            return {}
        generator = torch.Generator().manual_seed(0)
        drawn = [torch.randn(t.shape, generator=generator, device="cpu").to(t) for t in heads.values()]
        try:
            found = torch.autograd.grad([*heads.values()], [*leaves.values()], drawn, allow_unused=True)
        except RuntimeError:  # the model has run its backward pass itself
            return {}
        return {GRADIENT + name: g for name, g in zip(leaves, found, strict=True) if g is not None}
