"""Reads of the environment, the clock and the system's random numbers while a model is recorded."""

from __future__ import annotations

import functools
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from fxlab.exchanged import __file__ as exchanged_file
from fxlab.exchanged import exchanged, instead
from fxlab.interrupts import RestoringStack
from fxlab.models.settings import Setting, of_environment
from fxlab.tracing.model_code.model_files import names_in
from fxlab.tracing.model_code.source_lines import is_model_code, where_asked

_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time")
_PYTHONS = {os.path.dirname(file) for file in (os.__file__, logging.__file__)}
"""The folders of Python's own code, such as loggers, which say when it is."""
_PASSING_ON = (exchanged_file, os.__file__, "<frozen ")


class OutsideReads:
    """Notes reads of environment variables, which a graph checks, and of numbers that are others each time.

    ``files``: the files of the model. ``is_seen``: tells whether what runs now is recorded.

    Attributes
    ----------
    environment : dict of str to Setting
        The first read of each variable.
    numbers : dict of str to str
        The function that gave a number -> ``file:line`` of what has called it.
    """

    def __init__(self, files: list[ModuleType], is_seen: Callable[[], bool]) -> None:
        self.environment: dict[str, Setting] = {}
        self.numbers: dict[str, str] = {}
        self._files, self._is_seen = files, is_seen

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note reads for a while."""
        noted = {
            id(getattr(time, name)): self._noted(f"time.{name}", getattr(time, name)) for name in _CLOCKS
        }
        noted[id(os.urandom)] = self._noted("os.urandom", os.urandom, of_anybody=True)
        reads = (
            exchanged(
                owner, {name: instead(noted[id(v)]) for name, v in names_in(owner).items() if id(v) in noted}
            )
            for owner in (time, os, random, *self._files)
        )
        variables = exchanged(type(os.environ), {"__getitem__": self._variable})
        with RestoringStack(*reads, variables):
            yield

    def _noted(self, name: str, function: Callable[..., Any], of_anybody: bool = False) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            if f"{name}()" not in self.numbers and self._is_seen() and (of_anybody or _is_asked_by_model()):
                self.numbers[f"{name}()"] = where_asked()
            return function(*args)

        return call

    def _variable(self, get: Callable[..., str]) -> Callable[..., str]:
        def read(environment: Any, name: str) -> str:
            value = None
            try:
                value = get(environment, name)
                return value
            finally:
                text = of_environment(name)
                is_new = environment is os.environ and text not in self.environment
                if is_new and self._is_seen() and _is_asked_by_model():
                    self.environment[text] = text, value, where_asked()

        return read


def _is_asked_by_model() -> bool:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PASSING_ON):
        frame = frame.f_back
    file = frame.f_code.co_filename
    return is_model_code(file) and os.path.dirname(file) not in _PYTHONS
