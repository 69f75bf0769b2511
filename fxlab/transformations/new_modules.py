"""Making modules from tensors that are there: nothing is initialised, and no random number is drawn."""

import torch
from torch import nn


def new_linear(weight: torch.Tensor, bias: torch.Tensor | None, like: nn.Linear) -> nn.Linear:
    """Make a linear layer.

    Parameters
    ----------
    weight
        Of shape ``(out_features, in_features)``.
    bias
        Of shape ``(out_features,)``, or ``None``.
    like
        The layer whose mode and ``requires_grad`` it takes over.
    """
    out_features, in_features = weight.shape
    linear = nn.Linear(in_features, out_features, bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight, like.weight.requires_grad)
    if bias is not None:
        source = like.weight if like.bias is None else like.bias
        linear.bias = nn.Parameter(bias, source.requires_grad)
    return linear.train(like.training)


def new_conv2d(weight: torch.Tensor, bias: torch.Tensor, like: nn.Conv2d) -> nn.Conv2d:
    """Make a convolution with a bias, with the geometry, mode and ``requires_grad`` of another.

    Parameters
    ----------
    weight
        Of the shape that the weight of ``like`` has.
    bias
        Of shape ``(out_channels,)``.
    like
        The other convolution.
    """
    conv = nn.Conv2d(like.in_channels, like.out_channels, 1, device="meta")
    for name in (*nn.Conv2d.__constants__, "_reversed_padding_repeated_twice"):
        setattr(conv, name, getattr(like, name))
    conv.weight = nn.Parameter(weight, like.weight.requires_grad)
    source = like.weight if like.bias is None else like.bias
    conv.bias = nn.Parameter(bias, source.requires_grad)
    return conv.train(like.training)
