"""Fake results of functions whose own fake kernels fix sizes or are slow: each recorded call asks here first.

Linear layers, convolutions and batch norms, which a model spends most of its calls on, torch takes apart into
ten or more calls each, and each of those asks a dozen questions about symbolic sizes: made in one step, a
transformer is traced in half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from fxlab.tracing.report import Obstacle
from fxlab.tracing.shapes.fake_mode import are_equal, are_plain, made, spreads_over
from fxlab.tracing.shapes.fake_modules import pack_padded, pad_packed
from fxlab.tracing.shapes.fake_state import call_on_data, give_data, has_data
from fxlab.tracing.torch_private import FakeTensor
from fxlab.values.nested import tensors_inside


def fake_result(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return a fake tensor of the shape that a call gives, or ``None`` if torch can make the call itself."""
    if (maker := _MAKERS.get(func)) is None or kwargs.get("out") is not None:
        return None
    tensors = [tensor for _, tensor in tensors_inside((args, dict(kwargs)))]
    result = maker(*args, **kwargs)
    if isinstance(result, torch.Tensor) and tensors and all(map(has_data, tensors)):
        give_data(result, call_on_data(func, args, kwargs))
    return result


def _grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor | None:
    """Products of groups of rows: torch's fake kernel takes bfloat16 alone, its kernel for the CPU more."""
    if not isinstance(a, FakeTensor) or not isinstance(b, FakeTensor):
        return None
    groups = offs.shape[:1] if offs is not None and a.dim() == b.dim() == 2 else ()
    batch = a.shape[:-2] if a.dim() == b.dim() else ()
    return a.new_empty(*groups, *batch, a.shape[-2], b.shape[-1], dtype=out_dtype or a.dtype)


def _grad(
    outputs: tuple[torch.Tensor, ...],
    inputs: tuple[torch.Tensor, ...],
    *,
    create_graph: bool = False,
    allow_unused: bool = False,
    materialize_grads: bool = False,
    is_grads_batched: bool = False,
    **options: Any,
) -> tuple[torch.Tensor, ...] | None:
    """Derivatives have the shapes of their inputs; no tensor here has a history to go back."""
    if not all(isinstance(tensor, FakeTensor) for tensor in inputs):
        return None
    if not (any(t.requires_grad for t in outputs) and all(t.requires_grad for t in inputs)):
        return None  # an error of torch's own
    unused = allow_unused and not materialize_grads
    if unused or is_grads_batched or any(map(has_data, inputs)):
        raise Obstacle.DERIVATIVE_OF_DATA()
    made = tuple(torch.empty_like(tensor).requires_grad_(create_graph) for tensor in inputs)
    return tuple(map(torch.ops.aten.alias, made)) if create_graph else made


def _linspace(
    start: Any,
    end: Any,
    steps: Any,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    **options: Any,
) -> torch.Tensor | None:
    """Torch fixes the number of steps."""
    if not isinstance(steps, torch.SymInt) or options.get("out") is not None:
        return None
    return torch.empty(steps, dtype=dtype, device=device)


def _randn(*size: Any, generator: torch.Generator | None = None, **options: Any) -> torch.Tensor | None:
    """Torch wants plain sizes where a generator is named, be it none."""
    sizes = size[0] if len(size) == 1 and isinstance(size[0], list | tuple) else size
    if options.get("out") is not None or not any(isinstance(item, torch.SymInt) for item in sizes):
        return None
    return torch.empty(sizes, **options)


def _max_pool1d(
    input: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> torch.Tensor | None:
    """Torch fixes the length."""
    length: Any = input.shape[-1]
    if not isinstance(length, torch.SymInt) or ceil_mode or return_indices:
        return None
    size, step, pad, spread = (
        value[0] if isinstance(value, list | tuple) else value
        for value in (kernel_size, stride or kernel_size, padding, dilation)
    )
    steps = length + 2 * pad - spread * (size - 1) - 1
    if steps < 0:
        raise RuntimeError(f"max_pool1d: the input is shorter than the kernel of {size}")
    return made((*input.shape[:-1], steps // step + 1), input)


def _linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor | None:
    given = (input, weight) if bias is None else (input, weight, bias)
    if not are_plain(*given) or input.dim() < 2 or weight.dim() != 2:
        return None
    outputs, inputs = weight.shape
    if not are_equal(input.shape[-1:], (inputs,)) or (
        bias is not None and not are_equal(bias.shape, (outputs,))
    ):
        return None
    return made((*input.shape[:-1], outputs), *given)


def _scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor | None:
    given, mask = (query, key, value), () if attn_mask is None else (attn_mask,)
    if not are_plain(*given) or any(tensor.dim() != 4 for tensor in given) or enable_gqa or dropout_p:
        return None
    wanted = *query.shape[:2], *query.shape[:2], query.shape[3], key.shape[2]
    if not are_equal(wanted, (*key.shape[:2], *value.shape[:2], key.shape[3], value.shape[2])):
        return None
    scores = *query.shape[:3], key.shape[2]
    for added in mask:
        if is_causal or added.dtype not in (torch.bool, query.dtype) or not spreads_over(added.shape, scores):
            return None
    return made((*query.shape[:3], value.shape[3]), *given, *mask)


def _conv(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> torch.Tensor | None:
    given = (input, weight) if bias is None else (input, weight, bias)
    if not are_plain(*given) or input.dim() != weight.dim() or isinstance(padding, str):
        return None
    channels = weight.shape[1] * groups
    if not are_equal(input.shape[1:2], (channels,)) or not (input.is_contiguous() and weight.is_contiguous()):
        return None
    steps, pads, spreads = (
        value * (input.dim() - 2) if len(value) == 1 else value
        for value in (
            (value,) if isinstance(value, int) else tuple(value) for value in (stride, padding, dilation)
        )
    )
    sizes = [
        (size + 2 * pad - spread * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, spread in zip(
            input.shape[2:], weight.shape[2:], steps, pads, spreads, strict=True
        )
    ]
    if any(size <= 0 for size in sizes):
        return None  # torch says why not
    return made((input.shape[0], weight.shape[0], *sizes), *given)


def _batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor | None:
    state = [tensor for tensor in (running_mean, running_var, weight, bias) if tensor is not None]
    if running_mean is None or running_var is None or not are_plain(input, *state):
        return None
    if not all(are_equal(tensor.shape, input.shape[1:2]) for tensor in state) or not input.is_contiguous():
        return None
    if training:
        if has_data(input):
            return None  # statistics are written
        nn.functional._verify_batch_size(input.shape)  # type: ignore[attr-defined]
    return made(input.shape, input, *state)


def _cov(input: torch.Tensor, **options: Any) -> torch.Tensor | None:
    """Torch compares weights that are not given."""
    return made(input.shape[:1] * 2 if input.dim() == 2 else (), input) if input.is_floating_point() else None


def _reduced(shape: Any, reduction: str, *given: torch.Tensor) -> torch.Tensor:
    return made(shape if reduction == "none" else (), *given)


def _gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor | None:
    """Torch looks for negative variances, which are an error."""
    given = (input, target, var) if isinstance(var, torch.Tensor) else (input, target)
    shape = torch.broadcast_shapes(input.shape, target.shape)  # type: ignore[no-untyped-call]
    return _reduced(shape, reduction, *given) if are_plain(*given) else None


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor | None:
    """Torch reads the lengths."""
    return _reduced(log_probs.shape[1:2] if log_probs.dim() == 3 else (), reduction, log_probs)


def _adaptive_max_pool(
    dimensions: int, input: torch.Tensor, output_size: Any, return_indices: bool = False
) -> torch.Tensor | None:
    """Torch fixes the sizes that stay as they are."""
    sizes = (output_size,) * dimensions if isinstance(output_size, int) else tuple(output_size or ())
    if return_indices or len(sizes) != dimensions or None not in sizes:
        return None
    kept = input.shape[-dimensions:]
    wanted = (old if new is None else new for old, new in zip(kept, sizes, strict=True))
    return made((*input.shape[:-dimensions], *wanted), input)


def _activation(input: FakeTensor, *options: Any, **named: Any) -> torch.Tensor | None:
    """Functions of each element."""
    if not named.keys() <= _OPTIONS or not are_plain(input) or not input.is_floating_point():
        return None
    if input.constant is not None or has_data(input) or not input.is_contiguous():
        return None
    if any(option is True for option in options) or named.get("inplace"):
        return _written(input)
    return made(input.shape, input)


def _written(input: torch.Tensor) -> torch.Tensor | None:
    """Mark a tensor as written to; torch refuses some writes to views and to tensors with a gradient."""
    if input.requires_grad and (input.is_leaf or input._is_view()):
        return None
    torch.autograd.graph.increment_version(input)
    return input


_OPTIONS = {"alpha", "approximate", "inplace", "max_val", "min_val", "negative_slope"}
_ACTIVATIONS: tuple[Any, ...] = (
    *(nn.functional.elu, nn.functional.gelu, nn.functional.hardsigmoid, nn.functional.hardswish),
    *(nn.functional.hardtanh, nn.functional.leaky_relu, nn.functional.mish, nn.functional.relu),
    *(nn.functional.relu6, nn.functional.silu, torch.relu, torch.sigmoid, torch.tanh),
    *(torch.Tensor.relu, torch.Tensor.sigmoid, torch.Tensor.tanh),
)
_MAKERS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_ACTIVATIONS, _activation),
    torch.cov: _cov,
    torch.Tensor.cov: _cov,
    torch.corrcoef: _cov,
    torch.Tensor.corrcoef: _cov,
    nn.functional.gaussian_nll_loss: _gaussian_nll_loss,
    nn.functional.ctc_loss: _ctc_loss,
    **{
        getattr(nn.functional, f"{prefix}adaptive_max_pool{n}d"): partial(_adaptive_max_pool, n)
        for n in (2, 3)
        for prefix in ("", "_")
    },
    nn.functional.linear: _linear,
    nn.functional.batch_norm: _batch_norm,
    torch.conv1d: _conv,
    torch.conv2d: _conv,
    torch.conv3d: _conv,
    nn.functional.scaled_dot_product_attention: _scaled_dot_product_attention,
    torch._pack_padded_sequence: pack_padded,
    torch._pad_packed_sequence: pad_packed,
    torch.linspace: _linspace,
    nn.functional.max_pool1d: _max_pool1d,
    torch.randn: _randn,
    torch.autograd.grad: _grad,
}
# Older releases of torch lack these, and their models do not call them.
_MAKERS |= {
    getattr(home, name): _grouped_mm
    for home, name in ((nn.functional, "grouped_mm"), (torch, "_grouped_mm"))
    if hasattr(home, name)
}
