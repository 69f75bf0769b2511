"""Which channels of a convolution a weight belongs to, so that numbers for each channel can multiply it.

The weight of a convolution is of shape ``(out, in / groups, *kernel)``, that of a transposed one of shape
``(in, out / groups, *kernel)``. The first dimension holds one group after the other; the second holds the
channels of the group that the first belongs to.
"""

import torch
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd


def output_channels(conv: _ConvNd) -> int:
    """Return how many channels the result has, which the weight tells."""
    shape = conv.weight.shape
    return int(shape[1] * conv.groups if isinstance(conv, _ConvTransposeNd) else shape[0])


def input_channels(conv: _ConvNd) -> int:
    """Return how many channels the input has, which the weight tells."""
    shape = conv.weight.shape
    return int(shape[0] if isinstance(conv, _ConvTransposeNd) else shape[1] * conv.groups)


def per_output(conv: _ConvNd, values: torch.Tensor) -> torch.Tensor:
    """Shape a number for each output channel so that it multiplies the weight."""
    return _second(conv, values) if isinstance(conv, _ConvTransposeNd) else _first(conv, values)


def per_input(conv: _ConvNd, values: torch.Tensor) -> torch.Tensor:
    """Shape a number for each input channel so that it multiplies the weight."""
    return _first(conv, values) if isinstance(conv, _ConvTransposeNd) else _second(conv, values)


def _first(conv: _ConvNd, values: torch.Tensor) -> torch.Tensor:
    return values.reshape(-1, *[1] * (conv.weight.dim() - 1))


def _second(conv: _ConvNd, values: torch.Tensor) -> torch.Tensor:
    rows, columns, *kernel = conv.weight.shape
    grouped = values.reshape(conv.groups, 1, columns).expand(-1, rows // conv.groups, -1)
    return grouped.reshape(rows, columns, *[1] * len(kernel))
