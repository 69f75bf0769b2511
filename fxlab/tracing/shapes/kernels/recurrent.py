"""Recurrent modules on fake tensors: torch unrolls them, which would fix the number of steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fxlab.tracing.shapes.fake_data import call_on_data, give_data, has_data
from fxlab.tracing.torch_private import FakeTensor
from fxlab.values.nested import tensors_inside


def is_recurrent_on_fakes(module: nn.Module, args: tuple[Any, ...]) -> bool:
    """Tell whether a call of a recurrent module of torch needs nothing but the shapes of its results."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    of_torch = type(module) in (nn.RNN, nn.GRU, nn.LSTM)
    return of_torch and isinstance(args[0], FakeTensor) and not hooked


def recurrent_results(module: Any, input: torch.Tensor, hx: Any = None) -> Any:
    """Return tensors of the shapes that ``torch.nn`` documents for ``RNN``, ``GRU`` and ``LSTM``.

    ``input``: the sequences, with or without a batch dimension. ``hx``: what it begins with, if not with
    zeros.
    """
    directions = 2 if module.bidirectional else 1
    features = module.proj_size or module.hidden_size
    layers = module.num_layers * directions
    output = input.new_empty(*input.shape[:-1], directions * features)
    batch = input.shape[0 if module.batch_first else 1 : None][:1] if input.dim() == 3 else ()
    hidden = input.new_empty(layers, *batch, features)
    is_lstm = isinstance(module, nn.LSTM)
    cell = (input.new_empty(layers, *batch, module.hidden_size),) if is_lstm else ()
    if has_data(input):
        made = _computed(module, input, hx)
        for result, data in zip((output, hidden, *cell), made, strict=True):
            give_data(result, data)
    return output, (hidden, *cell) if cell else hidden


def _computed(module: Any, inputs: Any, state: Any) -> list[torch.Tensor]:
    """Return what the module gives for the data that comes along with fake tensors."""
    weights = dict(module.named_parameters())
    results = call_on_data(torch.func.functional_call, (module, weights, (inputs, state)), {})
    return [tensor for _, tensor in tensors_inside(results)]
