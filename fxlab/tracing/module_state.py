"""Running a model without leaving a trace in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fxlab.interrupts import InterruptsHeld
from fxlab.tensors import same_bits


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
    attributes = [{name: (value, _contents(value)) for name, value in vars(m).items()} for m in modules]
    buffers = [(b, b.detach().clone()) for b in model.buffers() if values and not b.is_meta]
    try:
        yield
    finally:
        with InterruptsHeld(), torch.no_grad():
            for module, kept in zip(modules, attributes, strict=True):
                _restore(vars(module), kept)
            for buffer, before in buffers:
                # Batch norm writes without counting a new version.
                if not same_bits(buffer, before):
                    buffer.copy_(before)


def has_data(model: nn.Module) -> bool:
    """Tell whether a model can be run: it cannot on the meta device."""
    return not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


def _contents(value: Any) -> Any:
    return value.copy() if isinstance(value, dict) or type(value) in (list, set) else None


def _restore(namespace: dict[str, Any], kept: dict[str, tuple[Any, Any]]) -> None:
    for name in [name for name in namespace if name not in kept]:
        del namespace[name]
    for name, (value, contents) in kept.items():
        namespace[name] = value
        # The container itself is kept, for whoever else refers to it.
        if isinstance(value, list) and contents is not None:
            value[:] = contents
        elif isinstance(value, dict | set) and _differs(value, contents):
            value.clear()
            value.update(contents)


def _differs(a: Any, b: Any) -> bool:
    return list(a) != list(b) or (isinstance(a, dict) and any(a[key] is not b[key] for key in a))
