"""Running a model without leaving a trace in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fxlab.containers import contents, has_contents, is_same, put_back
from fxlab.interrupts import InterruptsHeld
from fxlab.tensors import same_bits, storage_of

_OF_EVERY_MODULE = vars(nn.Module()).keys()


@contextmanager
def module_state_kept(model: nn.Module, *, values: bool = False) -> Iterator[None]:
    """Put back, at the end, the attributes of each module: caches, registered buffers, counters.

    Parameters
    ----------
    model
        The module whose tree is kept.
    values
        Whether to put back what buffers hold as well, for runs that compute on real tensors.
    """
    modules = list(model.modules())
    attributes = [{name: (value, contents(value)) for name, value in vars(m).items()} for m in modules]
    buffers = [(b, b.detach(), b.detach().clone()) for b in model.buffers() if values and not b.is_meta]
    try:
        yield
    finally:
        with InterruptsHeld(), torch.no_grad():
            for module, kept in zip(modules, attributes, strict=True):
                _restore(vars(module), kept)
            for buffer, memory, before in buffers:
                # A buffer may have been resized, or given other memory; others may be views of its own.
                if not _lies_as(buffer, memory):
                    buffer.data = memory
                # Batch norm writes without counting a new version.
                if not same_bits(buffer, before):
                    buffer.copy_(before)


def attributes_of(model: nn.Module) -> dict[str, tuple[Any, Any]]:
    """Return what modules have besides parameters, buffers and submodules: value, and contents if any."""
    return {
        f"{path}.{name}" if path else name: (value, contents(value))
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name not in _OF_EVERY_MODULE
    }


def changed_attributes(before: dict[str, tuple[Any, Any]], model: nn.Module) -> list[str]:
    """Return the names of the attributes that are not what :func:`attributes_of` has returned before."""
    now = attributes_of(model)
    return [name for name in {**before, **now} if not _is_same(before.get(name), now.get(name))]


def attribute_of(model: nn.Module, name: str) -> Any:
    """Return an attribute of a model, ``None`` where asking for it raises anything."""
    try:
        return getattr(model, name, None)
    except Exception:  # a property, or ``__getattr__``, is the model's own code
        return None


def has_data(model: nn.Module) -> bool:
    """Tell whether a model can be run: it cannot on the meta device."""
    return not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


def _is_same(before: tuple[Any, Any] | None, now: tuple[Any, Any] | None) -> bool:
    if before is None or now is None:
        return False
    if before[0] is now[0]:
        return before[1] is None or has_contents(now[0], before[1])
    return is_same(before[0], now[0])


def _lies_as(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or type(tensor) is not torch.Tensor:
        return tensor.shape == other.shape  # it does not tell where it lies
    same_place = storage_of(tensor) == storage_of(other) and tensor.storage_offset() == other.storage_offset()
    return same_place and (tensor.shape, tensor.stride()) == (other.shape, other.stride())


def _restore(namespace: dict[str, Any], kept: dict[str, tuple[Any, Any]]) -> None:
    for name in [name for name in namespace if name not in kept]:
        del namespace[name]
    for name, (value, before) in kept.items():
        namespace[name] = value
        # The container itself is kept, for whoever else refers to it.
        put_back(value, before)
