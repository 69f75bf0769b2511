"""Calls that a step records in eager's way: losses, random draws, lists and arrays of tensors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, reduce
from typing import Any

import numpy as np
import torch

from fxlab.base.exchanged import instead, patched_functions
from fxlab.base.torch_private import pytree
from fxlab.models.parallel.placements import layout_of
from fxlab.steps.places import ANY_SIZE
from fxlab.tracing import torch_private
from fxlab.tracing.report import TraceError

_MEAN = 1
"""The reduction, as torch's C++ numbers it."""


@contextmanager
def eager_losses() -> Iterator[None]:
    """Compute losses in the block as an eager step does.

    The C++ of a cross entropy selects the weights of the labels that count, and in a mode of torch sums all,
    with zeros for ignored labels. That of a CTC loss writes a list of lengths into the memory of a tensor,
    which tensors do not have while they are recorded.
    """
    with (
        patched_functions(torch._C._nn, {"cross_entropy_loss": _cross_entropy}),
        patched_functions(torch, {"ctc_loss": _ctc}),
    ):
        yield


def _ctc(original: Callable[..., Any]) -> Callable[..., Any]:
    def ctc_loss(*args: Any, **settings: Any) -> Any:
        by_name = {name: _as_tensor(value) for name, value in settings.items()}
        return original(*map(_as_tensor, args), **by_name)

    return ctc_loss


def _as_tensor(value: Any) -> Any:
    return torch.tensor(value, device="cpu") if isinstance(value, tuple | list) else value


def _cross_entropy(original: Callable[..., Any]) -> Callable[..., Any]:
    def cross_entropy_loss(
        values: torch.Tensor,
        target: torch.Tensor,
        weight: torch.Tensor | None = None,
        reduction: int = _MEAN,
        ignore_index: int = -100,
        smoothing: float = 0.0,
    ) -> Any:
        is_plain = weight is not None and not weight.is_meta and layout_of(weight) is None
        if is_plain and reduction == _MEAN and smoothing and not target.is_floating_point():
            return _smoothed_mean(values, target, weight, ignore_index, smoothing)
        return original(values, target, weight, reduction, ignore_index, smoothing)

    return cross_entropy_loss


def _smoothed_mean(
    values: torch.Tensor, target: torch.Tensor, weight: Any, ignore_index: int, smoothing: float
) -> Any:
    """Follow ``cross_entropy_loss_label_smoothing`` of ``aten/src/ATen/native/LossNLL.cpp``."""
    classes = min(1, values.dim() - 1)
    logs = torch.log_softmax(values, classes, values.dtype)
    exact = torch.ops.aten.nll_loss_nd(logs, target, weight, _MEAN, ignore_index)
    shape = [-1 if dim == classes else 1 for dim in range(values.dim())]
    smooth = -(logs * weight.view(shape)).sum(classes)
    ignored = target == ignore_index
    smooth = smooth.masked_fill(ignored, 0.0)
    counted = target.masked_select(~ignored)
    # Weights have no gradients here, so only this sum has the size, and a graph holds for any.
    next(reversed(torch_private.get_proxy_mode().tracer.graph.nodes)).meta[ANY_SIZE] = True
    total = weight.gather(0, counted).sum()
    return (1 - smoothing) * exact + smooth.sum() / total * (smoothing / values.shape[classes])


_BERNOULLI = torch.ops.aten.bernoulli.p


def _bernoulli(values: torch.Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Any:
    """Draw as ``bernoulli_`` does; torch's own functional form of it forgets the layout of ``values``."""
    if values.is_contiguous():
        return NotImplemented
    order = sorted(range(values.dim()), key=values.stride, reverse=True)
    back = [order.index(dim) for dim in range(values.dim())]
    if _follows_memory(values.device):
        return _BERNOULLI(values.permute(order), p, generator=generator).permute(back)
    return _BERNOULLI(values, p, generator=generator).permute(order).contiguous().permute(back)


@cache
def _follows_memory(device: torch.device) -> bool:
    """Tell whether numbers are drawn in the order of memory; MKL draws in that of the dimensions."""
    if device.type == "meta":
        return True

    def drawn(*strides: int) -> torch.Tensor:
        values = torch.empty_strided((8, 8), strides, device=device)
        return values.bernoulli_(generator=torch.Generator(device).manual_seed(0))

    with torch_private.disable_current_modes():
        return torch.equal(drawn(8, 1), drawn(1, 8).t())


def _random(
    values: torch.Tensor, low: int, high: int | None = None, *, generator: torch.Generator | None = None
) -> Any:
    """Draw as ``random_`` does, by an operator that a call of Python can name: ``from`` is a keyword."""
    if high is None or generator is not None:
        return NotImplemented
    return torch.randint_like(values, low, high)


IN_LAYOUT = {_BERNOULLI: _bernoulli, getattr(torch.ops.aten.random, "from"): _random}
"""Other forms of operators that draw, for ``make_fx``."""


_MOST = 10_000
"""Numbers that are read of one tensor: each gets nodes and a guard."""
_NUMPY = torch.Tensor.numpy


@contextmanager
def lists_followed() -> Iterator[None]:
    """Let ``tolist`` and ``numpy`` read number by number, and tensors of lists of tensors be stacked.

    Tensors that are recorded have no memory that torch could read there, and numbers get guards.
    """
    of_lists = dict.fromkeys(("tensor", "as_tensor"), _stacking)
    of_tensors = {"tolist": instead(_tolist), "numpy": instead(_numpy)}
    with patched_functions(torch.Tensor, of_tensors), patched_functions(torch, of_lists):
        yield


def _tolist(tensor: torch.Tensor) -> Any:
    if tensor.numel() > _MOST:
        raise TraceError(
            f"The model or the loss reads all {tensor.numel():,} numbers of a tensor, as a list or an array; "
            "a step is recorded for the numbers that Python reads. Compute with the tensor instead."
        )
    return [_tolist(part) for part in tensor.unbind()] if tensor.dim() else tensor.item()


def _numpy(tensor: torch.Tensor, *, force: bool = False) -> Any:
    if tensor.requires_grad and not force:
        return _NUMPY(tensor)  # it refuses
    dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
    return np.array(_tolist(tensor.detach()), dtype).reshape(tensor.shape)


def _stacking(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(part: Any, dtype: torch.dtype) -> torch.Tensor:
        if isinstance(part, list | tuple):
            return torch.stack([made(each, dtype) for each in part])
        is_recorded = isinstance(part, torch.Tensor)
        return part.detach().to("cpu", dtype) if is_recorded else original(part, dtype=dtype)

    def of_list(data: Any, dtype: Any = None, device: Any = None, **options: Any) -> torch.Tensor:
        items = pytree.tree_leaves(data) if isinstance(data, list | tuple) else []
        if not any(isinstance(item, torch.Tensor) for item in items):
            return original(data, dtype=dtype, device=device, **options)
        dtypes = [item.dtype if isinstance(item, torch.Tensor) else original(item).dtype for item in items]
        found = made(data, dtype or reduce(torch.promote_types, dtypes))
        found = found.to(device or torch.get_default_device())
        return found.requires_grad_(bool(options.get("requires_grad")))

    return of_list
