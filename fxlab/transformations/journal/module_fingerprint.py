"""A module that stands in for others: what it was when it was made, and what was done to it since."""

import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from fxlab.values.lazy import LazyTensor
from fxlab.values.tensors import bits_of, same_bits


@dataclass(frozen=True)
class ModulePrint:
    """A fingerprint of a module: its tensors, flags and mode."""

    tensors: dict[str, tuple[object, ...]]
    """Dtype, device, shape and a checksum of each: another tuple once it is written, moved or cast."""
    requires_grad: dict[str, bool]
    training: bool

    @classmethod
    def of(cls, module: nn.Module, names: Collection[str] | None = None) -> "ModulePrint":
        """Take the print of a module; of its tensors, those with certain names if names are given."""
        return cls(
            {
                name: (tensor.dtype, str(tensor.device), tuple(tensor.shape), _checksum(tensor))
                for name, tensor in module.named_parameters()
                if names is None or name in names
            },
            {name: parameter.requires_grad for name, parameter in module.named_parameters()},
            module.training,
        )


def carry_tensor(module: nn.Module, name: str, value: torch.Tensor) -> None:
    """Give a parameter of a module a new value, dtype or device, and leave it the object that it is.

    Nothing is written when the value is what the parameter has. Only where a parameter cannot become the
    other, as on the meta device, there is a new one, as there is after ``Module.to``.
    """
    parameter, value = module.get_parameter(name), value.detach()
    if same_bits(parameter.detach(), value):
        return
    if (parameter.dtype, parameter.device) == (value.dtype, value.device):
        with torch.no_grad():
            parameter.data.copy_(value)
        return
    value = value.clone(memory_format=torch.preserve_format)
    if torch._has_compatible_shallow_copy_type(parameter, value):
        parameter.data = value
    else:
        setattr(module, name, nn.Parameter(value, parameter.requires_grad))


def carry_flags(current: nn.Module, made: ModulePrint, originals: Iterator[nn.Module]) -> None:
    """Bring a new mode and ``requires_grad`` of a replacement to the modules it stands in for."""
    frozen_or_freed = {
        name: parameter.requires_grad
        for name, parameter in current.named_parameters()
        if made.requires_grad.get(name, parameter.requires_grad) != parameter.requires_grad
    }
    for original in originals:
        if current.training != made.training:
            original.train(current.training)
        if not frozen_or_freed:
            continue
        for name, parameter in original.named_parameters():
            if name not in made.requires_grad or name in frozen_or_freed:
                parameter.requires_grad_(frozen_or_freed.get(name, next(iter(frozen_or_freed.values()))))


def _checksum(tensor: torch.Tensor) -> int | None:
    """Return a checksum of the bits of a tensor; ``None`` for one without any, as on the meta device."""
    if tensor.is_meta:
        return None
    if isinstance(tensor, LazyTensor):
        return zlib.crc32(tensor.text().encode())  # none of its numbers is read for it
    return zlib.crc32(bits_of(tensor).cpu().numpy().data)
