"""Making modules from tensors that are there: nothing is initialised, and no random number is drawn."""

from typing import TypeVar

import torch
from torch import nn

from fxlab.torch_private import AnyConv
from fxlab.transformations.views.linear import TransposedLinear

Conv = TypeVar("Conv", bound=AnyConv)


def new_linear(weight: torch.Tensor, bias: torch.Tensor | None, like: nn.Linear) -> nn.Linear:
    """Make a linear layer.

    Parameters
    ----------
    weight
        Of shape ``(out_features, in_features)``, or transposed if that of ``like`` is.
    bias
        Of shape ``(out_features,)``, or ``None``.
    like
        The layer whose mode and ``requires_grad`` it takes over.
    """
    linear: nn.Linear
    if isinstance(like, TransposedLinear):
        linear, (in_features, out_features) = TransposedLinear.__new__(TransposedLinear), weight.shape
    else:
        linear, (out_features, in_features) = nn.Linear.__new__(nn.Linear), weight.shape
    nn.Module.__init__(linear)
    linear.in_features, linear.out_features = in_features, out_features
    _set_parameters(linear, weight, bias, like)
    return linear


def new_conv(weight: torch.Tensor, bias: torch.Tensor | None, like: Conv) -> Conv:
    """Make a convolution of the class, geometry, mode and ``requires_grad`` of another.

    Parameters
    ----------
    weight
        Of the shape that the weight of ``like`` has.
    bias
        Of shape ``(out_channels,)``, or ``None``.
    like
        The other convolution, which may be a transposed one.
    """
    conv = type(like).__new__(type(like))
    nn.Module.__init__(conv)
    geometry = (*like.__constants__, "transposed", "_reversed_padding_repeated_twice")
    vars(conv).update({name: getattr(like, name) for name in geometry})
    _set_parameters(conv, weight, bias, like)
    return conv


def new_layer(
    weight: torch.Tensor, bias: torch.Tensor | None, like: nn.Linear | AnyConv
) -> nn.Linear | AnyConv:
    """Make a linear layer or a convolution, whichever the other one is."""
    return new_linear(weight, bias, like) if isinstance(like, nn.Linear) else new_conv(weight, bias, like)


def _set_parameters(
    module: nn.Module, weight: torch.Tensor, bias: torch.Tensor | None, like: nn.Linear | AnyConv
) -> None:
    module._parameters["weight"] = nn.Parameter(weight, like.weight.requires_grad)
    module._parameters["bias"] = None
    if bias is not None:
        source = like._parameters["bias"]
        trained = (like.weight if source is None else source).requires_grad
        module._parameters["bias"] = nn.Parameter(bias, trained)
    module.training = like.training
