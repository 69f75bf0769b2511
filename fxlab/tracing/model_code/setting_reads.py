"""Settings of torch that the Python of a model reads while it is recorded: whether gradients are on, say."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import nn

from fxlab.interrupts import RestoringStack
from fxlab.models.settings import GRADIENTS, Setting
from fxlab.tracing.model_code.model_files import files_of, names_in
from fxlab.tracing.model_code.source_lines import is_model_code, is_of_modules, where_asked

_READS_A_SETTING = re.compile(
    r"(is|are)_\w*enabled|\w+_sdp_enabled|get_(autocast|default|deterministic|fastpath|float32|num)_\w+"
)
_FLAG: Any = torch.backends.ContextProp
_MATMUL: Any = type(torch.backends.cuda.matmul)


class SettingReads:
    """Notes reads of settings, which a graph does not repeat when it runs.

    What the model has set otherwise by itself is its own choice, and not noted.

    Parameters
    ----------
    model
        The module that is recorded.
    is_seen
        Tells whether what runs now is recorded; a module that is one node reads again when the graph runs.

    Attributes
    ----------
    held : dict of str to Setting
        The first read of each setting.
    reads_autocast : bool
        Whether a setting of autocast has been read.
    """

    def __init__(self, model: nn.Module, is_seen: Callable[[], bool]) -> None:
        self.held: dict[str, Setting] = {}
        self.reads_autocast = False
        self._model = model
        self._is_seen = is_seen

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note reads for a while."""
        readers = _readers()
        around = {name: reader() for name, reader in readers.items() if "autocast" not in name}
        asking = {reader: self._asked(name, reader, around) for name, reader in readers.items()}
        owners = [*_modules(), *files_of(self._model)]
        with RestoringStack(*(_exchanged(owner, asking) for owner in owners), self._flags_watched()):
            yield

    def _asked(self, name: str, reader: Callable[..., Any], around: dict[str, Any]) -> Callable[..., Any]:
        @functools.wraps(reader)
        def ask(*args: Any, **kwargs: Any) -> Any:
            value = reader(*args, **kwargs)
            if self._is_asked_by_model(sys._getframe(1)):
                if "autocast" in name:
                    self.reads_autocast = True
                elif value == around[name]:
                    self._note(name, value)
            return value

        return ask

    @contextmanager
    def _flags_watched(self) -> Iterator[None]:
        """Note reads of attributes of ``torch.backends``, such as ``torch.backends.cudnn.deterministic``."""
        get, get_of_matmul = _FLAG.__get__, _MATMUL.__getattr__

        def flag(prop: Any, module: Any, owner: Any = None) -> Any:
            value = get(prop, module, owner)
            if module is not None and self._is_asked_by_model(sys._getframe(1)):
                self._note(f"{module.__name__}.{_name_in(type(module), prop)}", value)
            return value

        def flag_of_matmul(module: Any, name: str) -> Any:
            value = get_of_matmul(module, name)
            if self._is_asked_by_model(sys._getframe(1)):
                self._note(f"torch.backends.cuda.matmul.{name}", value)
            return value

        try:
            _FLAG.__get__, _MATMUL.__getattr__ = flag, flag_of_matmul
            yield
        finally:
            _FLAG.__get__, _MATMUL.__getattr__ = get, get_of_matmul

    def _is_asked_by_model(self, frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        return (is_model_code(file) or is_of_modules(file)) and self._is_seen()

    def hold_gradients(self) -> None:
        """Note that the model has read what depends on whether gradients are on."""
        self._note(GRADIENTS, True)

    def _note(self, name: str, value: Any) -> None:
        self.held.setdefault(name, (name, value, where_asked()))


def _modules() -> list[ModuleType]:
    backends = [value for value in vars(torch.backends).values() if type(value) is ModuleType]
    return [torch, *(module for module in backends if module.__name__.startswith("torch.backends."))]


def _readers() -> dict[str, Callable[..., Any]]:
    """Return the functions that read a setting, by how Python calls them."""
    return {
        f"{module.__name__}.{name}()": value
        for module in _modules()
        for name, value in vars(module).items()
        if _READS_A_SETTING.fullmatch(name) and callable(value)
    }


@contextmanager
def _exchanged(owner: ModuleType, others: dict[Callable[..., Any], Callable[..., Any]]) -> Iterator[None]:
    """Exchange functions for others under all names that a Python module has for them."""
    known = {id(function): other for function, other in others.items()}
    found = {name: value for name, value in names_in(owner).items() if id(value) in known}
    try:
        vars(owner).update({name: known[id(value)] for name, value in found.items()})
        yield
    finally:
        vars(owner).update(found)


def _name_in(owner: type, value: Any) -> str:
    return next(name for cls in owner.__mro__ for name, other in vars(cls).items() if other is value)
