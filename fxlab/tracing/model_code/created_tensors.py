"""Tensors that were made while a model ran, none of which can be a constant.

``gc.freeze`` sets aside the objects that exist when a run begins. A tensor that is not among them was made
by code that the recorder did not see.
"""

from __future__ import annotations

import gc
from types import TracebackType
from typing import Any

import torch

from fxlab.base.garbage import is_frozen
from fxlab.values.nested import tensors_inside


class TensorsMade:
    """Tells which tensors are younger than the run, whether a thread, numpy or an extension in C made them.

    Python's garbage collector knows every tensor. Those that exist when the run begins are put aside by
    :func:`gc.freeze`, which takes no time, and put back at the end.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        self._is_frozen = False
        self._others: list[torch.Tensor] = []

    def __enter__(self) -> TensorsMade:
        if is_frozen():
            # By its type: `isinstance` asks a weak proxy for its referent, which may be gone.
            self._others += [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
        else:
            gc.freeze()
            self._is_frozen = True
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._is_frozen:
            gc.unfreeze()
        self._others.clear()

    def __contains__(self, tensor: object) -> bool:
        is_known = any(other is tensor for other in self._others)
        return not is_known and any(other is tensor for other in gc.get_objects())

    def allow(self, value: Any) -> None:
        """Register the tensors inside a value as constants: it is computed once, as in the model."""
        self._others += [tensor for _, tensor in tensors_inside(value)]
