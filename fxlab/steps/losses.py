"""Losses that torch computes in another way while a graph is recorded, recorded in eager's way."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fxlab.base.exchanged import patched_functions
from fxlab.models.parallel.ranks import layout_of
from fxlab.steps.watch import ANY_SIZE
from fxlab.tracing import torch_private

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
