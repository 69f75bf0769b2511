"""All that one graph of a step holds for, but the data on which it decides something."""

from __future__ import annotations

import torch
from torch import nn

from fxlab.steps.arguments import Batch
from fxlab.steps.update import Update


def step_key(model: nn.Module, batch: Batch, update: Update | None) -> object:
    """Return something that is equal where the same graph holds."""
    return (
        tuple((name, t.shape, t.dtype, t.device) for name, t in zip(batch.names, batch.tensors, strict=True)),
        repr([leaf for leaf in batch.leaves if not isinstance(leaf, torch.Tensor)]),
        tuple((name, p.requires_grad, p.dtype, p.device) for name, p in model.named_parameters()),
        tuple(module.training for module in model.modules()),
        None if update is None else update.fixed(),
    )
