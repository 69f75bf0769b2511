"""Fake results of torch's recurrent and transformer modules, and of packing sequences, for recorded calls.

Torch fixes such a module to the sizes of a run, and packs sequences to sizes that no run has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from fxlab.tracing.shapes.fake_mode import are_plain, made
from fxlab.tracing.shapes.fake_state import call_on_data, environment_of, give_data, has_data
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

    ``input``: the sequences, with or without a batch dimension, or packed. ``hx``: the initial state.
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


_STREAMS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Transformer: ("src", "tgt"),
    nn.TransformerDecoder: ("tgt", "memory"),
    nn.TransformerDecoderLayer: ("tgt", "memory"),
    nn.TransformerEncoder: ("src",),
    nn.TransformerEncoderLayer: ("src",),
}
"""Module -> its first arguments, all of the module's width."""
_PARTS = {
    *_STREAMS,
    nn.MultiheadAttention,
    nn.ModuleList,
    nn.Linear,
    nn.modules.linear.NonDynamicallyQuantizableLinear,
    nn.LayerNorm,
    nn.Dropout,
    nn.ReLU,
    nn.GELU,
}
"""Classes of torch that make up a transformer, none of which changes shapes in another way."""
_OF_TRANSFORMERS = (nn.functional.relu, nn.functional.gelu)


def transformer_result(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return a tensor of the shape that ``torch.nn`` documents for a transformer module, or ``None``.

    ``module``: any module; for one that is not a transformer, or changed by its user, there is no answer.
    """
    names = _STREAMS.get(type(module), ())
    if not names or not all(map(_is_torchs_own, module.modules())):
        return None
    given = dict(zip(names, args, strict=False))
    streams: list[Any] = [given.get(name, kwargs.get(name)) for name in names]
    stream = streams[names.index("tgt" if "tgt" in names else "src")]
    if not all(isinstance(s, FakeTensor) for s in streams):
        return None
    device = stream.device.type
    # Under autocast the dtype of the result is another one; the meta device has none.
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return None
    width = next(part.embed_dim for part in module.modules() if isinstance(part, nn.MultiheadAttention))
    if any(s.shape[-1] != width for s in streams):
        return None  # the module itself raises the error
    result = torch.empty_like(stream)
    if all(map(has_data, streams)):
        weights = dict(module.named_parameters())
        give_data(result, call_on_data(torch.func.functional_call, (module, weights, args, dict(kwargs)), {}))
    return result


def _is_torchs_own(part: nn.Module) -> bool:
    """Tell whether a part of a transformer is one that torch itself puts there, without hooks."""
    activation = vars(part).get("activation", nn.functional.relu)
    is_known = type(part) in _PARTS and (activation in _OF_TRANSFORMERS or type(activation) in _PARTS)
    return is_known and not (part._forward_hooks or part._forward_pre_hooks)
