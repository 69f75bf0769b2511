"""Recurrent modules on fake tensors: torch unrolls them, which would fix the number of steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor


def is_recurrent_on_fakes(module: nn.Module, args: tuple[Any, ...]) -> bool:
    """Tell whether a call of a recurrent module of torch needs nothing but the shapes of its results."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    return type(module) in (nn.RNN, nn.GRU, nn.LSTM) and isinstance(args[0], FakeTensor) and not hooked


def recurrent_results(module: Any, inputs: torch.Tensor) -> Any:
    """Return tensors of the shapes that ``torch.nn`` documents for ``RNN``, ``GRU`` and ``LSTM``.

    Parameters
    ----------
    module
        The recurrent module.
    inputs
        The sequences, with or without a batch dimension.
    """
    directions = 2 if module.bidirectional else 1
    features = module.proj_size or module.hidden_size
    layers = module.num_layers * directions
    output = inputs.new_empty(*inputs.shape[:-1], directions * features)
    batch = inputs.shape[0 if module.batch_first else 1 : None][:1] if inputs.dim() == 3 else ()
    hidden = inputs.new_empty(layers, *batch, features)
    if isinstance(module, nn.LSTM):
        return output, (hidden, inputs.new_empty(layers, *batch, module.hidden_size))
    return output, hidden
