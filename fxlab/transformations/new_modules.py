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
    linear = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(linear)
    linear.in_features, linear.out_features = in_features, out_features
    _set_parameters(linear, weight, bias, like)
    return linear


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
    conv = nn.Conv2d.__new__(nn.Conv2d)
    nn.Module.__init__(conv)
    for name in (*nn.Conv2d.__constants__, "_reversed_padding_repeated_twice"):
        setattr(conv, name, getattr(like, name))
    _set_parameters(conv, weight, bias, like)
    return conv


def _set_parameters(
    module: nn.Module, weight: torch.Tensor, bias: torch.Tensor | None, like: nn.Linear | nn.Conv2d
) -> None:
    module.weight = nn.Parameter(weight, like.weight.requires_grad)
    if bias is None:
        module.register_parameter("bias", None)
    else:
        source = like._parameters["bias"]
        module.bias = nn.Parameter(bias, (like.weight if source is None else source).requires_grad)
    module.train(like.training)
