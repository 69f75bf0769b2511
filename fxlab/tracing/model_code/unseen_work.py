"""Work of a model that a recorder does not see: in other threads, and tensors made by numpy or code in C."""

from __future__ import annotations

import gc
import threading
from types import TracebackType
from typing import Any

import torch

from fxlab.base.garbage import is_frozen
from fxlab.tracing.model_code.running_code import where_asked
from fxlab.tracing.report import Obstacle
from fxlab.values.nested import tensors_inside


class OneThread:
    """Knows the thread that is recorded, and notices work on tensors of the run in any other.

    Nothing is raised in that thread: the error might be lost there, and the model might wait for ever.
    ``is_paused``: whether a module or function is running that is one node. It may use threads.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._noticed = ""
        self.is_paused = False

    def is_here(self) -> bool:
        """Tell whether the thread that is running is the recorded one."""
        return threading.get_ident() == self._thread

    def notice(self) -> None:
        """Note that something is done with tensors of the run, if that is in another thread."""
        if not self.is_paused and not self.is_here():
            self._noticed = self._noticed or where_asked() or "an unknown line"

    def require(self) -> None:
        """Raise :class:`TraceError` if another thread has worked on tensors of the run."""
        if self._noticed:
            raise Obstacle.OTHER_THREAD(where=self._noticed)


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
