"""How far rounding can move what a graph module returns: a bound that is carried from node to node.

Each node is computed in double precision, together with a bound of the error of the same node in the dtype
that the module works in: what the errors of its inputs become, and what the rounding of its own result adds.
Two modules that compute the same differ by no more than the sum of their bounds. A bound is infinite where a
comparison, an overflow or a batch norm in training could make anything of a small error.
(Higham 2002, Accuracy and Stability of Numerical Algorithms, section 3.3: running error analysis.)
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from random_modules import Arithmetic, Doubled, Doubling, MatrixProduct
from torch import fx, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils import _pytree as pytree

from fxlab.models.graph_modules.modes import Requirement
from fxlab.tracing.recording.opaque.opaque_calls import require_result
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.views.batch_norm import as_batch_norm
from fxlab.transformations.views.convolution import as_convolution
from fxlab.transformations.views.layer import Layer
from fxlab.transformations.views.linear import TransposedLinear, as_linear


@dataclass
class Bounded:
    """The exact value of a tensor of some dtype, in double precision, and the error that it may have."""

    value: torch.Tensor
    error: torch.Tensor
    dtype: torch.dtype

    @classmethod
    def exact(cls, tensor: torch.Tensor) -> "Bounded":
        value = precise(tensor.detach())
        return cls(value, torch.zeros(value.shape, dtype=torch.float64), tensor.dtype)

    def write(self, other: "Bounded") -> "Bounded":
        """Write another value in place."""
        self.error.copy_(rounded(other.value, other.error, self.dtype).error)
        self.value.copy_(other.value)
        return self

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "Bounded":
        """Apply what moves numbers but does not compute; views stay views."""
        return Bounded(function(self.value), function(self.error), self.dtype)


def precise(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64, copy=True)


def rounded(value: torch.Tensor, error: torch.Tensor, dtype: torch.dtype, operations: int = 1) -> Bounded:
    """Add the rounding of a result of some operations, each as large as the result."""
    if not is_inexact(dtype):
        return _whole(value, error, dtype)
    limits = torch.finfo(dtype)
    size = value.abs()
    error = error + (2 * operations * limits.eps) * size + operations * limits.tiny
    if not value.is_complex():
        overflows = size - error > limits.max
        value = torch.where(overflows, value.sign() * torch.inf, value)
        error = torch.where((size + error > limits.max) & ~overflows, torch.inf, error)
    error = torch.where(value.isfinite(), error, 0.0)
    return Bounded(value, torch.where(error.isnan(), torch.inf, error), dtype)


def _whole(value: torch.Tensor, error: torch.Tensor, dtype: torch.dtype) -> Bounded:
    """Round to an integer or a boolean, of which a double holds no more than 53 bits."""
    value = (value != 0).double() if dtype == torch.bool else value.trunc()
    return Bounded(value, torch.where(value.abs() < 2**53, uncertain(error), torch.inf), dtype)


def uncertain(error: torch.Tensor) -> torch.Tensor:
    """Return an infinite error wherever there is any: what follows is not continuous."""
    return torch.where(error > 0, torch.inf, torch.zeros_like(error))


def is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


class RoundingBound(fx.Interpreter):
    """Runs a graph module on bounded values; its result is bounded as well."""

    def run_node(self, node: fx.Node) -> Any:
        if node.op != "call_function":
            return super().run_node(node)
        facts = GraphFacts(self.module)
        if node.target in _RETURN_STATISTICS:
            results = (as_batch_norm(user, facts) for user in node.users)  # which others may read as well
            return (self._run_layer(next(layer for layer in results if layer is not None)),)
        layer = as_linear(node, facts) or as_convolution(node, facts) or as_batch_norm(node, facts)
        return super().run_node(node) if layer is None or layer.call is not node else self._run_layer(layer)

    def _run_layer(self, layer: Layer[Any]) -> Bounded:
        args, kwargs = self.fetch_args_kwargs_from_env(layer.call)
        args, kwargs = pytree.tree_map(_rounded_value, (args, kwargs))
        sample = layer.call.target(*args, **kwargs)
        sample = sample[0] if isinstance(sample, tuple) else sample
        bounded = _LAYERS[type(layer.module)](layer.module, self.env[layer.input])
        return bounded.map(lambda tensor: laid_out_like(sample, tensor))

    def get_attr(self, target: str, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return Bounded.exact(value) if isinstance(value, torch.Tensor) else value

    def call_module(self, target: str, args: Any, kwargs: Any) -> Bounded:
        module = self.fetch_attr(target)
        if isinstance(module, Requirement):
            return module(*pytree.tree_map(_rounded_value, args))
        if not args and not kwargs:  # a parametrization
            return Bounded.exact(module())
        (x,) = (*args, *kwargs.values())
        for _ in _doublings(module._forward_pre_hooks) if args else ():
            x = multiply(x, 2)
        plain_class = _plain_class(module)
        if plain_class in _LAYERS:  # what it returns lies in memory as its own result does
            sample = module.forward(x.value.to(x.dtype))
            result = _LAYERS[plain_class](module, x).map(lambda tensor: laid_out_like(sample, tensor))
        elif plain_class in _OTHERS:
            result = _OTHERS[plain_class](module, x)
        else:  # a part that the trace kept whole
            result = RoundingBound(fx.symbolic_trace(module)).run(x)
        for _ in _doublings(module._forward_hooks):
            result = multiply(result, 2)
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is require_result:  # a check, of a part that the trace kept whole
            return target(*pytree.tree_map(_rounded_value, args), **kwargs)
        if target in _SPELLINGS:
            return _SPELLINGS[target](*args, **kwargs)
        return self._call(target.__name__.partition(".")[0], target, args, kwargs)

    def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
        return self._call(target, lambda x, *a, **k: getattr(x, target)(*a, **k), args, kwargs)

    def _call(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if not any(isinstance(value, Bounded) for value in pytree.tree_leaves((args, kwargs))):
            return function(*args, **kwargs)
        kwargs = dict(kwargs)
        out = kwargs.pop("out", args[0] if name.endswith("_") or kwargs.pop("inplace", False) else None)
        if name in ("getitem", "len") and isinstance(args[0], tuple):
            return function(*args)
        if name == "chunk":
            parts = zip(
                *(function(tensor, *args[1:]) for tensor in (args[0].value, args[0].error)), strict=True
            )
            return tuple(Bounded(value, error, args[0].dtype) for value, error in parts)
        if name in _MOVES:
            return args[0].map(lambda tensor: function(tensor, *args[1:], **kwargs))
        if name == "dropout":  # in evaluation
            return args[0]
        if name in ("size", "dim", "getattr"):
            return function(args[0].value, *args[1:])
        result = _COMPUTES[name.removesuffix("_")](*args, **kwargs)
        return result if out is None else out.write(result)


def _rounded_value(value: Any) -> Any:
    return value.value.to(value.dtype) if isinstance(value, Bounded) else value


def _doublings(hooks: dict[int, Any]) -> list[Any]:
    return [hook for hook in hooks.values() if isinstance(getattr(hook, "__self__", None), Doubling)]


def _plain_class(module: nn.Module) -> type[nn.Module]:
    return type(module).__bases__[0] if nn.utils.parametrize.is_parametrized(module) else type(module)


# Operations


def _dtype(*values: Any) -> torch.dtype:
    """Return the dtype that torch gives a combination of tensors and numbers."""
    samples = [
        torch.empty(value.value.shape, dtype=value.dtype, device="meta")
        if isinstance(value, Bounded)
        else value
        for value in values
    ]
    return torch.result_type(*samples)


def _parts(value: Any) -> tuple[Any, Any]:
    return (value.value, value.error) if isinstance(value, Bounded) else (value, 0.0)


def add(a: Any, b: Any) -> Bounded:
    (x, x_error), (y, y_error) = _parts(a), _parts(b)
    return rounded(x + y, torch.as_tensor(x_error + y_error).expand((x + y).shape), _dtype(a, b))


def multiply(input: Any, other: Any) -> Bounded:
    (x, x_error), (y, y_error) = _parts(input), _parts(other)
    error = _times(abs(x), y_error) + _times(x_error, abs(y)) + _times(x_error, y_error)
    return rounded(x * y, torch.as_tensor(error).expand((x * y).shape), _dtype(input, other), 2)


def divide(input: Bounded, other: Any, rounding_mode: None = None) -> Bounded:
    dtype = _dtype(input, other)
    error = input.error / abs(other) if other else uncertain(input.error)
    return rounded(input.value / other, error, dtype if is_inexact(dtype) else torch.get_default_dtype(), 2)


def _times(a: Any, b: Any) -> Any:
    """Multiply errors: none remains none, whatever it is multiplied by."""
    product = a * b
    if isinstance(product, torch.Tensor):
        return torch.where((torch.as_tensor(a) == 0) | (torch.as_tensor(b) == 0), 0.0, product)
    return 0.0 if 0 in (a, b) else product


def matmul(a: Bounded, b: Bounded) -> Bounded:
    x, y = a.value.abs(), b.value.abs()
    error = x @ b.error + a.error @ y + a.error @ b.error + (x.shape[-1] + 2) * epsilon(a.dtype) * (x @ y)
    return rounded(a.value @ b.value, error, _dtype(a, b))


def epsilon(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps if is_inexact(dtype) else 0.0


def summed(x: Bounded, *dims: int) -> Bounded:
    magnitude = x.value.numel() * epsilon(x.dtype) * x.value.abs().sum(*dims)
    dtype = x.dtype if is_inexact(x.dtype) else torch.int64
    return rounded(x.value.sum(*dims), x.error.sum(*dims) + magnitude, dtype)


def mean(x: Bounded, dim: int, keepdim: bool) -> Bounded:
    operations = x.value.shape[dim] + 1 if x.value.dim() else 1
    magnitude = operations * epsilon(x.dtype) * x.value.abs().mean(dim, keepdim)
    limit = torch.finfo(torch.promote_types(x.dtype, torch.float32)).max
    error = torch.where(x.value.abs().sum(dim, keepdim) < limit, x.error.mean(dim, keepdim), torch.inf)
    return rounded(x.value.mean(dim, keepdim), error + magnitude, x.dtype)


def rsqrt(x: Bounded) -> Bounded:
    value = x.value.rsqrt()
    error = (x.value - x.error).rsqrt() - value
    return rounded(value, torch.where(x.error < x.value, error, torch.inf), x.dtype, 2)


def subtract(a: Any, b: Any) -> Bounded:
    return add(a, multiply(b, -1))


def rms_norm(
    input: Bounded, normalized_shape: Any, weight: Bounded | None, eps: float, centred: bool = False
) -> Bounded:
    """Bound what the function computes, which is no worse than what is written out."""
    value = subtract(input, mean(input, -1, keepdim=True)) if centred else input
    root = rsqrt(add(mean(multiply(value, value), -1, keepdim=True), eps))
    result = multiply(value, root)
    return result if weight is None else multiply(weight, result)


def layer_norm(
    input: Bounded, normalized_shape: Any, weight: Bounded | None, bias: Bounded | None, eps: float
) -> Bounded:
    result = rms_norm(input, normalized_shape, weight, eps, centred=True)
    return result if bias is None else add(result, bias)


def softmax(x: Bounded, dim: int) -> Bounded:
    value = x.value.softmax(dim)
    largest = x.error.amax(dim, keepdim=True) if x.error.numel() else x.error
    error = torch.where(largest > 0.25, torch.inf, 4 * largest * value)
    operations = 8 + (x.value.shape[dim] if x.value.dim() else 1)
    return rounded(value, error + operations * epsilon(x.dtype) * x.value.abs() * value, x.dtype, operations)


def attention(
    query: Bounded, key: Bounded, value: Bounded, attn_mask: Bounded | None, dropout_p: float, scale: float
) -> Bounded:
    scores = multiply(matmul(query, key.map(lambda tensor: tensor.transpose(-1, -2))), scale)
    return matmul(softmax(scores if attn_mask is None else add(scores, attn_mask), -1), value)


def concatenated(parts: tuple[Bounded, ...], dim: int) -> Bounded:
    dtype = _dtype(*parts)
    value, error = (
        torch.cat(tensors, dim) for tensors in ([p.value for p in parts], [p.error for p in parts])
    )
    return rounded(value, error, dtype)


def relu(x: Bounded) -> Bounded:
    return Bounded(x.value.relu(), x.error.clone(), x.dtype)


def tanh(x: Bounded, function: Callable[[torch.Tensor], torch.Tensor] = torch.tanh) -> Bounded:
    """Bound a function that nowhere rises faster than its argument, or hardly so."""
    error = 1.2 * x.error
    dtype = x.dtype if is_inexact(x.dtype) else torch.get_default_dtype()
    return rounded(function(x.value), error, dtype, 4)


def activation(x: Bounded, function: Callable[[torch.Tensor], torch.Tensor]) -> Bounded:
    """Bound the product of a value with a function of it, of which differences may be computed."""
    result = tanh(x, function)
    error = result.error + 8 * epsilon(x.dtype) * x.value.abs()
    return Bounded(result.value, torch.where(error.isnan(), torch.inf, error), result.dtype)


def power(x: Bounded, exponent: float) -> Bounded:
    square = multiply(x, x)
    return square if exponent == 2 else multiply(square, x)


def cast(x: Bounded, dtype: torch.dtype) -> Bounded:
    if dtype == x.dtype:
        return x
    value = x.value.real if x.value.is_complex() and not dtype.is_complex else x.value
    return rounded(value, x.error, dtype)


def pad(x: Bounded, sizes: Any, value: float) -> Bounded:
    return Bounded(F.pad(x.value, sizes, value=value), F.pad(x.error, sizes), x.dtype)


def positive(x: Bounded, other: float) -> Bounded:
    return Bounded((x.value > other).double(), uncertain(x.error), torch.bool)


def filled_with_zeros(x: Bounded) -> Bounded:
    return Bounded(torch.zeros_like(x.value), torch.zeros_like(x.error), x.dtype)


_MOVES_TEXT = """
    view reshape flatten transpose permute unsqueeze squeeze contiguous getitem clone detach narrow unflatten
    select expand slice
"""
_ATEN = torch.ops.aten
_RETURN_STATISTICS = (_ATEN._native_batch_norm_legit_no_training.default,)
_SPELLINGS: dict[Any, Callable[..., Bounded]] = {
    _ATEN.pad.default: lambda x, sizes, mode, value: pad(x, sizes, value),
    _ATEN.constant_pad_nd.default: lambda x, sizes, value: pad(x, sizes, value),
}
_MOVES = frozenset(_MOVES_TEXT.split())
_COMPUTES: dict[str, Callable[..., Bounded]] = {
    "add": add,
    "mul": multiply,
    "matmul": matmul,
    "sum": summed,
    "sub": subtract,
    "mean": mean,
    "pow": power,
    "rsqrt": rsqrt,
    "rms_norm": rms_norm,
    "layer_norm": layer_norm,
    "softmax": softmax,
    "scaled_dot_product_attention": attention,
    "cat": concatenated,
    "copy": lambda x, other: cast(other, x.dtype),
    "pad": pad,
    "gt": positive,
    "zero": filled_with_zeros,
    "relu": relu,
    "tanh": tanh,
    "sigmoid": lambda x: tanh(x, torch.sigmoid),
    "erf": lambda x: tanh(x, torch.erf),
    "silu": lambda x: activation(x, F.silu),
    "gelu": lambda x, approximate="none": activation(x, functools.partial(F.gelu, approximate=approximate)),
    "long": lambda x: cast(x, torch.int64),
    "float": lambda x: cast(x, torch.float32),
    "bfloat16": lambda x: cast(x, torch.bfloat16),
    "to": cast,
    **dict.fromkeys(("truediv", "div", "divide", "true_divide"), divide),
}

# Layers


def linear(module: nn.Linear, x: Bounded) -> Bounded:
    weight, bias = weight_and_bias(module)
    return affine(x, F.linear, weight, bias, module.in_features)


def conv(module: _ConvNd, x: Bounded) -> Bounded:
    weight, bias = weight_and_bias(module)
    if not isinstance(module, _ConvTransposeNd):
        return affine(x, module._conv_forward, weight, bias, weight[0].numel())
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[x.value.dim() - 3]
    geometry = (module.stride, module.padding, module.output_padding, module.groups, module.dilation)
    sizes = transposed_sizes(module, x.value.shape[2:])
    if 0 in sizes:  # torch computes nothing in half precision, and refuses to in double
        return Bounded.exact(torch.empty(len(x.value), module.out_channels, *sizes, dtype=x.dtype))
    return affine(x, lambda *tensors: function(*tensors, *geometry), weight, bias, weight[:, 0].numel())


def transposed_sizes(module: _ConvTransposeNd, sizes: torch.Size) -> list[int]:
    """Return the sizes of what a transposed convolution makes, as torch documents them."""
    return [
        (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1
        for size, stride, padding, dilation, kernel, output_padding in zip(
            sizes,
            module.stride,
            module.padding,
            module.dilation,
            module.kernel_size,
            module.output_padding,
            strict=True,
        )
    ]


def weight_and_bias(module: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    weight = module.weight.t() if isinstance(module, TransposedLinear) else module.weight
    return precise(weight), None if module.bias is None else precise(module.bias)


def affine(
    x: Bounded,
    function: Callable[..., torch.Tensor],
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    terms: int,
) -> Bounded:
    """Bound sums of products with a weight, which may itself have been rounded."""
    magnitude = function(x.value.abs(), weight.abs(), None if bias is None else bias.abs())
    error = function(x.error, weight.abs(), None) + (terms + 3) * torch.finfo(x.dtype).eps * magnitude
    return rounded(function(x.value, weight, bias), error, x.dtype)


def batch_norm(module: _BatchNorm, x: Bounded) -> Bounded:
    if not x.value.numel():
        return x
    shape = [1, -1, *[1] * (x.value.dim() - 2)]
    weight, bias = (
        torch.full((), default, dtype=torch.float64) if tensor is None else precise(tensor).reshape(shape)
        for tensor, default in ((module.weight, 1.0), (module.bias, 0.0))
    )
    others = [dim for dim in range(x.value.dim()) if dim != 1]
    batch = module.training or module.running_mean is None
    if batch:
        mean, variance = x.value.mean(others, keepdim=True), x.value.var(others, correction=0, keepdim=True)
    else:
        mean, variance = (precise(t).reshape(shape) for t in (module.running_mean, module.running_var))
    deviation = (variance + module.eps).sqrt()
    scale = (weight / deviation).abs()
    normal = (x.value - mean) / deviation
    error = x.error * scale
    if batch:
        largest = x.error.amax(others, keepdim=True)
        error = scale * largest * (2 + normal.abs() * normal.abs().amax(others, keepdim=True))
        squares_limit = torch.finfo(torch.promote_types(x.dtype, torch.float32)).max / x.value.numel()
        error = torch.where((largest > deviation / 10) | (variance > squares_limit), torch.inf, error)
    magnitude = (x.value.abs() + mean.abs()) * scale + bias.abs()
    operations = 8 + (x.value.numel() if batch else 0)
    error = error + operations * torch.finfo(x.dtype).eps * magnitude
    return rounded(normal * weight + bias, error, x.dtype)


def dropout(module: nn.Dropout, x: Bounded) -> Bounded:
    if not module.training:
        return x
    mask = F.dropout(torch.ones_like(x.value, dtype=x.dtype), module.p)
    return Bounded(x.value * mask, _times(x.error, mask.abs()), x.dtype)


def relu_module(module: nn.ReLU, x: Bounded) -> Bounded:
    if not module.inplace:
        return relu(x)
    x.value.relu_()
    return x


def written_norm(module: Arithmetic, x: Bounded) -> Bounded:
    """Bound a norm that a trace has kept whole."""
    weight, bias = (None if t is None else Bounded.exact(t) for t in (module.weight, module.bias))
    result = rms_norm(x, None, weight, 1e-3, centred=module.centred)
    return result if bias is None else add(result, bias)


def matrix_product(module: MatrixProduct, x: Bounded) -> Bounded:
    """Bound a product that a trace has kept whole."""
    result = matmul(x, Bounded.exact(module.weight))
    return result if module.bias is None else add(result, Bounded.exact(module.bias))


_LAYERS: dict[type[nn.Module], Callable[[Any, Bounded], Bounded]] = {
    **dict.fromkeys((nn.Linear, TransposedLinear), linear),
    Doubled: lambda module, x: multiply(linear(module, x), 2),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), conv),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), conv),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), batch_norm),
}
_OTHERS: dict[type[nn.Module], Callable[[Any, Bounded], Bounded]] = {
    Arithmetic: written_norm,
    MatrixProduct: matrix_product,
    nn.Identity: lambda module, x: x,
    nn.Dropout: dropout,
    nn.ReLU: relu_module,
    nn.Tanh: lambda module, x: tanh(x),
}


def laid_out_like(sample: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the strides of another."""
    return torch.empty_strided(sample.shape, sample.stride(), dtype=tensor.dtype).copy_(tensor)


def agree(a: torch.Tensor, b: torch.Tensor, *bounds: Bounded) -> bool:
    """Tell whether two tensors are of one kind, and differ by no more than rounding."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    x, y = precise(a), precise(b)
    limit = sum(bound.error for bound in bounds)
    return bool((((x - y).abs() <= limit) | (x == y) | (x.isnan() & y.isnan()) | limit.isinf()).all())
