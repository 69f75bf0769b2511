"""The Python around a model: searched for tensors of a run when it has ended, and put back.

A model may store results outside its modules: in a dictionary of a file, in an attribute of a class, in the
variables of a decorator, in :func:`functools.lru_cache`. A fake tensor that stays there would reach the next
run of the model, and every other reader.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from types import ModuleType
from typing import Any

import torch
from torch import nn

from fxlab.base.author_frames import is_installed
from fxlab.base.exchanged import ABSENT, PROCESS_LOCK
from fxlab.models.state.model_state import SavedTensor, has_values
from fxlab.models.state.python_read import attributes_of, classes_of, python_named
from fxlab.tracing.model_code.model_files import file_of, files_around, is_apart, names_in
from fxlab.tracing.model_code.snapshot import Environ, Slots, Snapshot
from fxlab.values.containers import is_a
from fxlab.values.tensors import has_memory, is_plain

_MOST_COPIED = 1 << 18
"""The most elements of a tensor outside of the model that is copied."""


_CURRENT: list[tuple[nn.Module, Surroundings]] = []


@contextmanager
def run_alone(model: nn.Module) -> Iterator[Surroundings]:
    """Lock recording for this thread until the block ends, and keep the Python around the model.

    Torch itself is changed while a model is recorded, and the age of a tensor tells whether it is of the run.
    """
    with PROCESS_LOCK:
        found = next((around for of, around in _CURRENT if of is model), None)
        _CURRENT.append((model, found or Surroundings(model)))
        try:
            yield _CURRENT[-1][1]
        finally:
            _CURRENT.pop()


class Surroundings:
    """The contents of the files around a model when this was made, and of the attributes of its modules.

    ``others``: an optimizer or functions that run with the model. ``owners``: the files around it, and the
    classes in them. ``caches``: the functions with a cache that they hold, or the variables of decorators:
    where, its name there, and the function. ``modules``: those outside of the model that its code may reach.
    ``tensors``: such tensors, and those of such modules, except for small ones, which are put back here.
    ``outside``: all of these tensors.
    """

    def __init__(self, model: nn.Module, *others: Any) -> None:
        self._roots = model, *others
        files = files_around(*self._roots)
        named = (value for file in files for value in names_in(file).values() if is_a(value, type))
        classes = {id(cls): cls for cls in (*named, *classes_of(*self._roots)) if not is_apart(file_of(cls))}
        owners: list[Any] = [*files, *classes.values()]
        installed = _snapshot_of_installed([owner for owner in owners if _is_installed(owner)])
        lasting = installed, Snapshot(owners, installed.owners)
        self.owners = [owner for snapshot in lasting for owner in snapshot.owners]
        self.caches = [cache for snapshot in lasting for cache in snapshot.caches]
        values = ("os.environ", os.environ), *attributes_of(*self._roots)
        self._snapshots = *lasting, Snapshot((), self.owners, values)
        found = [value for snapshot in self._snapshots for value in snapshot.tensors]
        held = {id(tensor) for tensor in _tensors_in(self._roots)}
        own = {id(module) for root in self._roots if is_a(root, nn.Module) for module in root.modules()}
        self.modules = [each for each in found if is_a(each, nn.Module) and id(each) not in own]
        self.outside = [tensor for tensor in _tensors_in(found) if id(tensor) not in held]
        self._saved = [SavedTensor.of(tensor) for tensor in self.outside if _is_copied(tensor)]
        self.tensors = [tensor for tensor in self.outside if not _is_copied(tensor)]

    def put_back(self, is_of_run: Callable[[Any], bool]) -> list[str]:
        """Put back what a run has changed; return the places.

        These are the holders of tensors or symbolic numbers of the run; all that the functions of the model
        name, except for what was imported; and other numbers and texts with a new value, which stay, as
        another thread may have set them. ``is_of_run``: tells whether a tensor or number is one of the run.
        """

        def is_named(holder: Any, key: Any) -> bool:
            names, holders = self._named
            if is_a(holder, ModuleType, type):
                return key in names
            if is_a(holder, Environ):
                return not names.isdisjoint(("environ", "putenv", "unsetenv"))
            return id(holder.owner if is_a(holder, Slots) else holder) in holders

        for saved in self._saved:
            saved.put_back()
        found = [where for each in self._snapshots for where in each.put_back(is_of_run, is_named)]
        return list(dict.fromkeys(found))

    @functools.cached_property
    def _named(self) -> tuple[frozenset[str], set[int]]:
        """The names in the model's functions, and the holders that can be reached from their values.

        Read after the first run that changes something. For some models it takes as long as several runs.
        """
        names, values = python_named(*self._roots)
        return names, Snapshot(values=values).holders()

    def set_by(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
        """Call a function, and return the names of the context variables that it has set, which end with it.

        Others than those around the model may be of libraries that the recorder uses.
        """
        context, now = copy_context(), copy_context()
        context.run(function, *args, **kwargs)
        changed = [each for each, value in context.items() if value is not now.get(each, ABSENT)]
        known = (each.holders() for each in self._snapshots if changed)
        return [each.name for holders in known for each in changed if id(each) in holders]


_OF_INSTALLED: dict[tuple[int, ...], Snapshot] = {}
"""The last snapshots of installed packages, by their files and classes, which change little between runs."""
_MOST_SNAPSHOTS = 4


def _snapshot_of_installed(owners: list[Any]) -> Snapshot:
    key = tuple(map(id, owners))
    snapshot = _OF_INSTALLED.pop(key, None)
    if snapshot is None or not snapshot.is_current():
        snapshot = Snapshot(owners)
    _OF_INSTALLED[key] = snapshot
    if len(_OF_INSTALLED) > _MOST_SNAPSHOTS:
        del _OF_INSTALLED[next(iter(_OF_INSTALLED))]
    return snapshot


def _tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among some values, and the parameters and buffers of the modules among them."""
    for value in values:
        if is_a(value, nn.Module):
            # One whose __init__ has raised holds nothing.
            yield from (*value.parameters(), *value.buffers()) if hasattr(value, "_modules") else ()
        elif is_a(value, torch.Tensor):
            yield value


def _is_copied(tensor: torch.Tensor) -> bool:
    # Sizes come last: of fake tensors they may depend on data.
    return is_plain(tensor) and has_values(tensor) and has_memory(tensor) and tensor.numel() <= _MOST_COPIED


def _is_installed(owner: Any) -> bool:
    """Tell whether a file or class is of an installed package, and not of a person's own code."""
    file = owner if is_a(owner, ModuleType) else sys.modules.get(file_of(owner))
    path = names_in(file).get("__file__") if is_a(file, ModuleType) else None
    return type(path) is str and is_installed(path)
