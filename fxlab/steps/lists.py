"""Lists and arrays that Python reads from tensors while a step is recorded, and tensors made of lists."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import numpy as np
import torch

from fxlab.base.exchanged import instead, patched_functions
from fxlab.base.torch_private import pytree
from fxlab.tracing.report import TraceError

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
