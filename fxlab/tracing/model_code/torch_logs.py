"""Torch's own log, silent while a model is traced: its messages are errors, or in the report."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_logs_silent() -> Iterator[None]:
    """Keep torch from logging in this thread, unless ``TORCH_LOGS`` asks it to."""
    thread = threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "torch"]
    loggers = [] if os.environ.get("TORCH_LOGS") else list(map(logging.getLogger, names))
    for logger in loggers:
        logger.addFilter(is_of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_of_others)
