"""Work in other threads, which modes of torch do not see: noticed, so that a trace can be refused."""

from __future__ import annotations

import threading

from fxlab.tracing.model_code.source_lines import where_asked
from fxlab.tracing.obstacles import Obstacle


class OneThread:
    """Knows the thread that is recorded, and notices work on tensors of the run in any other.

    Nothing is raised in that thread: the error might be lost there, and the model might wait for ever.
    ``is_paused``: whether a module or function is running that is one node. It may use as many threads as it
    likes.
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
