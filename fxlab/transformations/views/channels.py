"""Output channels of a layer's weight, so that a number for each channel can multiply it.

The weight of a convolution is of shape ``(out, in / groups, *kernel)``, that of a transposed one of shape
``(in, out / groups, *kernel)``, that of a linear layer of shape ``(out, in)``. The first dimension holds one
group after the other; the second holds the channels of the group that the first belongs to. Products of
matrices read the weight of a linear layer as ``(in, out)``.
"""

from typing import TypeAlias

import torch
from torch import nn

from fxlab.torch_private import AnyConv, AnyConvTranspose
from fxlab.transformations.views.linear import TransposedLinear

LayerModule: TypeAlias = nn.Linear | AnyConv

_INPUTS_FIRST = (AnyConvTranspose, TransposedLinear)


def output_channels(layer: LayerModule) -> int:
    """Return how many channels the result has, which the weight tells."""
    shape = layer.weight.shape
    return int(shape[1] * _groups(layer) if isinstance(layer, _INPUTS_FIRST) else shape[0])


def per_output(layer: LayerModule, values: torch.Tensor) -> torch.Tensor:
    """Shape a number for each output channel so that it multiplies the weight."""
    return _second(layer, values) if isinstance(layer, _INPUTS_FIRST) else _first(layer, values)


def _groups(layer: LayerModule) -> int:
    return 1 if isinstance(layer, nn.Linear) else layer.groups


def _first(layer: LayerModule, values: torch.Tensor) -> torch.Tensor:
    return values.reshape(-1, *[1] * (layer.weight.dim() - 1))


def _second(layer: LayerModule, values: torch.Tensor) -> torch.Tensor:
    rows, columns, *kernel = layer.weight.shape
    groups = _groups(layer)
    grouped = values.reshape(groups, 1, columns).expand(-1, rows // groups, -1)
    return grouped.reshape(rows, columns, *[1] * len(kernel))


def precise(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in double precision, or in single precision where its device has none."""
    return tensor.detach().to(torch.float32 if tensor.device.type == "mps" else torch.float64)
