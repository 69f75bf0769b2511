"""Settings of torch, environment, clock and random numbers that the Python of a recorded model reads."""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import logging
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import nn

from fxlab.base.exchanged import __file__ as exchanged_file
from fxlab.base.exchanged import instead, patched_functions
from fxlab.base.interrupts import RestoringStack
from fxlab.models.state.settings import GRADIENTS, Setting, of_environment
from fxlab.tracing.model_code.model_files import exchanged_in, files_of
from fxlab.tracing.model_code.running_code import is_model_code, is_of_modules, where_asked
from fxlab.values.containers import is_a

_READS_A_SETTING = re.compile(
    r"(is|are)_\w*enabled|\w+_sdp_enabled|get_(autocast|default|deterministic|fastpath|float32|num)_\w+"
)
_FLAG: Any = torch.backends.ContextProp
_MATMUL: Any = type(torch.backends.cuda.matmul)


class SettingReads:
    """Notes reads of settings, which a graph does not repeat when it runs.

    A setting that the model itself has changed is its own choice, and not noted. ``is_seen``: tells whether
    the running code is recorded; a module that is one node reads again when the graph runs. ``held``: the
    first read of each setting. ``reads_autocast``: whether a setting of autocast has been read.
    """

    def __init__(self, model: nn.Module, is_seen: Callable[[], bool]) -> None:
        self.held: dict[str, Setting] = {}
        self.reads_autocast = False
        self._files = files_of(model)
        self._is_seen = is_seen

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note reads for a while."""
        readers = {f"{module.__name__}.{name}()": getattr(module, name) for module, name in _reader_names()}
        # Of autocast the graph checks the whole state, whichever part of it is read.
        around = {name: reader() for name, reader in readers.items() if "autocast" not in name}
        asking = {id(reader): instead(self._asked(name, reader, around)) for name, reader in readers.items()}
        reads = exchanged_in((*_modules(), *self._files), asking)
        with RestoringStack(*reads, *self._flags_watched()):
            yield

    def _asked(self, name: str, reader: Callable[..., Any], around: dict[str, Any]) -> Callable[..., Any]:
        @functools.wraps(reader)
        def ask(*args: Any, **kwargs: Any) -> Any:
            value = reader(*args, **kwargs)
            if self._is_asked_by_model():
                if "autocast" in name:
                    self.reads_autocast = True
                elif value == around[name]:
                    self._note(name, value)
            return value

        return ask

    def _flags_watched(self) -> tuple[AbstractContextManager[None], ...]:
        """Note reads of attributes of ``torch.backends``, such as ``torch.backends.cudnn.deterministic``."""

        def flag(get: Any, prop: Any, module: Any, owner: Any = None) -> Any:
            value = get(prop, module, owner)
            if module is not None and self._is_asked_by_model():
                self._note(f"{module.__name__}.{_name_in(type(module), prop)}", value)
            return value

        def flag_of_matmul(get: Any, module: Any, name: str) -> Any:
            value = get(module, name)
            if self._is_asked_by_model():
                self._note(f"torch.backends.cuda.matmul.{name}", value)
            return value

        return (
            # A descriptor and `__getattr__` read these flags: there is no function to exchange.
            patched_functions(_FLAG, {"__get__": lambda get: functools.partial(flag, get)}),
            patched_functions(_MATMUL, {"__getattr__": lambda get: functools.partial(flag_of_matmul, get)}),
        )

    def _is_asked_by_model(self) -> bool:
        file = _callers(_EXCHANGED)[-1].f_code.co_filename
        return (is_model_code(file) or is_of_modules(file)) and self._is_seen()

    def hold_gradients(self) -> None:
        """Note that the model has read a value that depends on whether gradients are on."""
        self._note(GRADIENTS, True)

    def _note(self, name: str, value: Any) -> None:
        self.held.setdefault(name, (name, value, where_asked()))


def _modules() -> list[ModuleType]:
    backends = [value for value in vars(torch.backends).values() if type(value) is ModuleType]
    return [torch, *(module for module in backends if module.__name__.startswith("torch.backends."))]


@functools.cache
def _reader_names() -> list[tuple[ModuleType, str]]:
    return [
        (module, name)
        for module in _modules()
        for name, value in vars(module).items()
        if _READS_A_SETTING.fullmatch(name) and callable(value)
    ]


_EXCHANGED = (exchanged_file, __file__)


def _callers(passing_on: tuple[str, ...]) -> list[FrameType]:
    """Return the callers of an exchanged function, up to the first whose file does not pass calls on."""
    found = [sys._getframe(1)]
    while found[-1].f_code.co_filename.startswith(passing_on) and found[-1].f_back is not None:
        found.append(found[-1].f_back)
    return found


def _name_in(owner: type, value: Any) -> str:
    return next(name for cls in owner.__mro__ for name, other in vars(cls).items() if other is value)


_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time")
_PYTHONS = {os.path.dirname(file) for file in (os.__file__, logging.__file__)}
"""The folders of Python's own code, such as loggers, which say when it is."""
_PASSING_ON = (*_EXCHANGED, os.__file__, contextlib.__file__, "<frozen ")
_FILES = ("access", "getcwd", "listdir", "lstat", "open", "readlink", "scandir", "stat", "statvfs")
"""The functions of ``os`` that read the file system, by which others do, such as ``os.path.exists``."""
_OF_FILES = tuple(
    os.path.join(os.path.dirname(os.__file__), name)
    for name in ("codecs", "configparser", "genericpath", "glob", "gzip", "ntpath", "pathlib", "posixpath")
)
"""Where Python comes by to read a file for somebody, other than the lines of a warning."""
_SEEDING = ("manual_seed", "seed", "set_state", "graphsafe_set_state", "set_offset")
"""The methods by which each way to seed a generator, or to put it back, ends in torch's own."""
_OF_RANDOM = tuple(
    os.path.join(os.path.dirname(torch.__file__), *path.split("/"))
    for path in ("random.py", "_compile.py", "_dynamo/", "cuda/", "xpu/", "mps/", "mtia/")
)
"""Where torch comes by to seed a generator, other than for a checkpoint."""


class OutsideReads:
    """Notes reads of environment variables, which a graph checks, of files, and of numbers like the time.

    ``files``: the files of the model. ``is_seen``: tells whether the running code is recorded.
    ``environment``: the first read of each variable. ``numbers``: the function that gave a number ->
    ``file:line`` of its caller. ``seeds``, ``files``: the same of functions that seed torch's generators, and
    of those that read the file system.
    """

    def __init__(self, files: list[ModuleType], is_seen: Callable[[], bool]) -> None:
        self.environment: dict[str, Setting] = {}
        self.numbers: dict[str, str] = {}
        self.seeds: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self._files, self._is_seen = files, is_seen

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note reads for a while."""
        functions = {f"time.{name}": getattr(time, name) for name in _CLOCKS}
        noted = {id(read): self._noted(name, read, self.numbers) for name, read in functions.items()}
        # From anybody: `random`, `uuid` and `secrets` ask the system on behalf of the model.
        noted[id(os.urandom)] = self._noted("os.urandom", os.urandom, self.numbers, of_anybody=True)
        own = {f"os.{name}": getattr(os, name) for name in _FILES if hasattr(os, name)} | {"open": open}
        noted |= {id(read): self._noted(name, read, self.files) for name, read in own.items()}
        makes = {read: instead(note) for read, note in noted.items()}
        reads = exchanged_in((time, os, random, io, builtins, *self._files), makes)
        variables = patched_functions(type(os.environ), {"__getitem__": self._variable})
        named = {name: f"torch.Generator.{name}" for name in _SEEDING}
        # Torch's own code puts states back, as a checkpoint does, but seeds on behalf of the model alone.
        seeds = {
            name: functools.partial(self._noted, full, known=self.seeds, of_anybody=name.endswith("seed"))
            for name, full in named.items()
        }
        seeds["initial_seed"] = functools.partial(self._noted, "initial_seed", known=self.numbers)
        with RestoringStack(*reads, variables, patched_functions(torch._C.Generator, seeds)):
            yield

    def _noted(
        self, name: str, function: Callable[..., Any], known: dict[str, str], of_anybody: bool = False
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_apart = bool(args) and is_a(args[0], torch.Generator) and not _is_of_torch(args[0])
            if not is_apart and self._is_seen():
                callers = _callers(_PASSING_ON + (_OF_FILES if known is self.files else _OF_RANDOM))
                if of_anybody or _is_of_model(callers[-1]):
                    # Torch's functions come to a method of a generator.
                    torchs = (caller.f_code for caller in reversed(callers))
                    outer = (code.co_name for code in torchs if code.co_filename == torch.random.__file__)
                    called = next((f"torch.{each}" for each in outer), name)
                    known.setdefault(f"{called}()", where_asked())
            return function(*args, **kwargs)

        return call

    def _variable(self, get: Callable[..., str]) -> Callable[..., str]:
        def read(environment: Any, name: str) -> str:
            value = None
            try:
                value = get(environment, name)
                return value
            finally:
                # In the `finally`, as a missing variable is an answer too: the model may catch the error.
                text = of_environment(name)
                is_new = environment is os.environ and text not in self.environment
                if is_new and self._is_seen() and _is_of_model(_callers(_PASSING_ON + _OF_RANDOM)[-1]):
                    self.environment[text] = text, value, where_asked()

        return read


def _is_of_torch(generator: torch.Generator) -> bool:
    """Tell whether a generator is one that torch draws from if nobody names another."""
    if generator.device.type == "cpu":
        return generator is torch.default_generator
    of_device = torch.get_device_module(generator.device)
    return any(generator is own for own in getattr(of_device, "default_generators", (generator,)))


def _is_of_model(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return is_model_code(file) and os.path.dirname(file) not in _PYTHONS
