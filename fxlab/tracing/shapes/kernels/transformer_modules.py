"""Transformer modules of torch on fake tensors, which torch would fix to the sizes of a run.

Such a module is one node, and decides by itself in each call. Only the shape of its result is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fxlab.tracing.shapes.fake_state import call_on_data, give_data, has_data
from fxlab.tracing.torch_private import FakeTensor

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
_ACTIVATIONS = (functional.relu, functional.gelu)


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
    activation = vars(part).get("activation", functional.relu)
    is_known = type(part) in _PARTS and (activation in _ACTIVATIONS or type(activation) in _PARTS)
    return is_known and not (part._forward_hooks or part._forward_pre_hooks)
