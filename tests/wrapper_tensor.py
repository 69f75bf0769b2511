"""Quantized weights as torchao makes them: tensors of a subclass that refuses most operations."""

import torch
from torch import nn

aten = torch.ops.aten


class Int8Weight(torch.Tensor):
    """A weight that lies in memory as bytes and a scale for each row; it computes a linear layer only."""

    def __new__(cls, data, scale):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype, device=data.device)

    def __init__(self, data, scale):
        self.data_bytes, self.scale = data, scale

    def __tensor_flatten__(self):
        return ["data_bytes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["data_bytes"], inner["scale"])

    def __repr__(self):
        return f"{type(self).__name__}({self.scale})"

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is nn.functional.linear:
            x, weight, bias = args
            return x @ (weight.data_bytes * weight.scale).t() + bias
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function in (aten.detach.default, aten.alias.default, aten.clone.default, aten._to_copy.default):
            inner = [getattr(args[0], name) for name in ("data_bytes", "scale")]
            return cls(*(part.clone() if function is aten.clone.default else part for part in inner))
        raise NotImplementedError(f"{cls.__name__} does not implement {function}")


class WithoutFlatten(Int8Weight):
    """The same without torch's protocol for wrappers."""

    __tensor_flatten__ = None


def quantize(module, cls=Int8Weight):
    """Quantize the weight of each linear layer, as torchao's ``quantize_`` does."""
    for linear in module.modules():
        if isinstance(linear, nn.Linear) and type(linear.weight) is nn.Parameter:
            weight = linear.weight.detach()
            scale = weight.abs().amax(1, keepdim=True) / 127
            data = (weight / scale).round().to(torch.int8)
            linear.weight = nn.Parameter(cls(data, scale), requires_grad=False)
