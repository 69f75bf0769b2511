"""Recurrent modules of torch, and the packed sequences that they take, on fake tensors.

Torch would fix the former to the sizes of a run, and makes the latter with sizes that no run has. A module is
one node, and decides by itself in each call: only the shapes of its results are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from fxlab.tracing.shapes.fake_state import call_on_data, environment_of, give_data, has_data
from fxlab.tracing.shapes.kernels.made_tensors import are_plain, made
from fxlab.tracing.shapes.symbolic_sizes import unknown_size
from fxlab.tracing.torch_private import FakeTensor, constrain_range_for_size
from fxlab.values.nested import tensors_inside

_BATCH = "_fxlab_batch"
"""The attribute of a fake tensor of the sizes of steps that has the first of them, a size of the input."""


def pack_padded(input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
    """Lengths decide how many steps there are, and how many elements all steps have."""
    if not are_plain(input) or not isinstance(lengths, FakeTensor) or input.dim() < 2:
        return None
    env, given = environment_of(input), (input, lengths)
    data = None
    if all(map(has_data, given)):
        data = call_on_data(torch._pack_padded_sequence, (*given, batch_first), {})
    counts = (None, None) if data is None else map(len, data)
    numbers = [unknown_size(env, count) for count in counts]
    for number in numbers:
        constrain_range_for_size(number)
    torch._check(numbers[1] <= input.shape[batch_first])  # type: ignore[no-untyped-call]  # or torch raises
    packed, steps = made((numbers[0], *input.shape[2:]), input), lengths.new_empty(numbers[1], device="cpu")
    setattr(steps, _BATCH, lengths.shape[0])
    return _with_data([packed, steps], data)


def pad_packed(
    data: torch.Tensor, steps: torch.Tensor, batch_first: bool, padding: float, length: Any
) -> Any:
    """The size of the batch is that of the tensor which was packed."""
    batch = getattr(steps, _BATCH, None)
    if batch is None or not are_plain(data):
        return None
    sizes = (batch, length) if batch_first else (length, batch)
    results = [made((*sizes, *data.shape[1:]), data), steps.new_empty(batch)]
    given = data, steps, batch_first, padding, length
    is_known = has_data(data) and has_data(steps)
    return _with_data(results, call_on_data(torch._pad_packed_sequence, given, {}) if is_known else None)


def is_recurrent_on_fakes(module: nn.Module, args: tuple[Any, ...]) -> bool:
    """Tell whether a call of a recurrent module of torch needs nothing but the shapes of its results."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    of_torch = type(module) in (nn.RNN, nn.GRU, nn.LSTM)
    given = args[0] if args else None
    is_packed = isinstance(given, PackedSequence) and hasattr(given.batch_sizes, _BATCH)
    return of_torch and (is_packed or isinstance(given, FakeTensor)) and not hooked


def recurrent_results(module: Any, input: Any, hx: Any = None) -> Any:
    """Return tensors of the shapes that ``torch.nn`` documents for ``RNN``, ``GRU`` and ``LSTM``.

    ``input``: the sequences, with or without a batch dimension, or packed. ``hx``: the initial state, if not
    zeros.
    """
    packed = input if isinstance(input, PackedSequence) else None
    data: torch.Tensor = input if packed is None else packed.data
    directions = 2 if module.bidirectional else 1
    features = module.proj_size or module.hidden_size
    layers = module.num_layers * directions
    batch: Sequence[Any]
    if packed is not None:
        batch = (getattr(packed.batch_sizes, _BATCH),)
    else:
        batch = data.shape[0 if module.batch_first else 1 : None][:1] if data.dim() == 3 else ()
    given = data, *module.parameters()
    output = made((*data.shape[:-1], directions * features), *given)
    hidden = made((layers, *batch, features), *given)
    is_lstm = isinstance(module, nn.LSTM)
    cell = (made((layers, *batch, module.hidden_size), *given),) if is_lstm else ()
    if has_data(data):
        computed = [tensor for _, tensor in tensors_inside(_computed(module, input, hx))]
        _with_data([output, hidden, *cell], [computed[0], *computed[-1 - len(cell) :]])
    result = output if packed is None else PackedSequence(output, *packed[1:])
    return result, (hidden, *cell) if cell else hidden


def _computed(module: Any, inputs: Any, state: Any) -> Any:
    """Return the module's results for the data that comes along with fake tensors."""
    weights = dict(module.named_parameters())
    return call_on_data(torch.func.functional_call, (module, weights, (inputs, state)), {})


def _with_data(results: list[torch.Tensor], data: Sequence[torch.Tensor] | None) -> tuple[torch.Tensor, ...]:
    for fake, real in zip(results, data or (), strict=data is not None):
        give_data(fake, real)
    return tuple(results)
