"""Torch's own log, silent in a thread: traces, updates, exports and memory report errors themselves."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_logs_silent(*imported_later: str) -> Iterator[None]:
    """Keep torch from logging in this thread, unless ``TORCH_LOGS`` asks it to.

    ``imported_later``: the names of loggers of files that torch imports in the block.
    """
    thread = threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    # But for what TORCH_TRACE writes: its handler goes with its first record where nobody asked for it, and
    # until then torch makes each record, with its stack and a digest.
    torchs = (name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "torch")
    names = {name for name in torchs if name != "torch.__trace"} | {*imported_later}
    loggers = [] if os.environ.get("TORCH_LOGS") else list(map(logging.getLogger, names))
    for logger in loggers:
        logger.addFilter(is_of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_of_others)
