"""Batch norm in evaluation mode as a scale and a shift, which a layer can absorb.

``y = (x - mean) / sqrt(var + eps) * weight + bias = x * scale + shift`` for each channel
(Ioffe and Szegedy 2015, section 3.1; a missing weight is one, a missing bias zero).
"""

from dataclasses import dataclass

import torch
from torch import nn

from fxlab.reasons import Reason, Refusal
from fxlab.torch_private import AnyBatchNorm
from fxlab.transformations.journal.module_fingerprint import carry_tensor
from fxlab.transformations.views.channels import precise


@dataclass(frozen=True)
class ScaleAndShift:
    """``scale`` and ``shift`` of each channel, both of shape ``(num_features,)`` and in double precision."""

    scale: torch.Tensor
    shift: torch.Tensor

    @classmethod
    def of(cls, batch_norm: AnyBatchNorm) -> "ScaleAndShift":
        """Compute them from the running statistics."""
        with torch.no_grad():
            mean, variance = (precise(statistic) for statistic in running_statistics(batch_norm))
            scale = torch.rsqrt(variance + batch_norm.eps)
            if batch_norm.weight is not None:
                scale = scale * precise(batch_norm.weight)
            shift = -mean * scale
            if batch_norm.bias is not None:
                shift = shift + precise(batch_norm.bias)
        return cls(scale, shift)


def running_statistics(batch_norm: AnyBatchNorm) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the running mean and variance."""
    mean, variance = batch_norm.running_mean, batch_norm.running_var
    if mean is None or variance is None:
        raise ValueError("A batch norm without running statistics was given; check why_not_fixed first.")
    return mean, variance


def why_not_fixed(batch_norm: AnyBatchNorm, channels: int) -> Refusal | None:
    """Return why a batch norm is no scaling and shift of so many channels; ``None`` if it is."""
    if batch_norm.training:
        return Reason.TRAINING_MODE(module="the batch norm")
    if batch_norm.running_mean is None or batch_norm.running_var is None:
        return Reason.NO_RUNNING_STATISTICS()
    for tensor in (*running_statistics(batch_norm), batch_norm.weight, batch_norm.bias):
        if tensor is not None and tensor.shape != (channels,):
            return Reason.FEATURES_DIFFER(features=tuple(tensor.shape), channels=channels)
    return None


def is_trained(module: nn.Module) -> bool:
    """Tell whether a parameter of a module is trained."""
    return any(parameter is not None and parameter.requires_grad for parameter in module._parameters.values())


def carry_bias(
    layer: nn.Module, batch_norm: AnyBatchNorm, to_layer: torch.Tensor, to_norm: torch.Tensor
) -> bool:
    """Bring a new bias back, to the layer if it has one, else to the batch norm; tell whether either has."""
    for module, value in ((layer, to_layer), (batch_norm, to_norm)):
        bias = module._parameters["bias"]
        if bias is not None:
            carry_tensor(module, "bias", value.to(bias.dtype))
            return True
    return False
