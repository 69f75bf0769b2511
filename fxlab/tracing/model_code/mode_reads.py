"""Modules whose mode, training or evaluation, the Python of a model reads while it is recorded."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch import nn
from torch.fx import GraphModule

from fxlab.base.exchanged import instead, patched_functions
from fxlab.models.graph_modules.modes import Mode, RequireModes, first_computing, put_requirement
from fxlab.tracing.findings import Finding, Found
from fxlab.tracing.model_code.idle_reads import decides_a_number, decides_nothing
from fxlab.values.nested import REFUSAL


class ModeReads:
    """Notes reads of ``training``, which a graph does not repeat when it runs.

    ``paths``: those of the modules. ``place``: returns ``file:line`` of the model's code that is running.
    ``places``: the line of the first read, by the path of the module. ``modes``: whether each module is in
    training mode when the run begins. ``gives_numbers``: whether one of these reads gives another number in
    the other mode.
    """

    def __init__(self, paths: Mapping[nn.Module, str], place: Callable[[], str]) -> None:
        self.modes = {path: vars(module).get("training", True) for module, path in paths.items()}
        self.places: dict[str, str] = {}
        self.gives_numbers = False
        self._place = place
        self._paths = paths
        self._is_ignored = False
        self._stand_for: nn.Module | None = None
        self._written: set[nn.Module] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note reads for a while."""
        thread = threading.get_ident()

        def read(module: nn.Module) -> Any:
            if "training" not in vars(module):  # a scripted module looks elsewhere then
                raise AttributeError("training")
            if not self._is_ignored and threading.get_ident() == thread:
                self._note(module, sys._getframe(1))
            return vars(module)["training"]

        def write(module: nn.Module, value: Any) -> None:
            if threading.get_ident() == thread:
                self._written.add(module)
            vars(module)["training"] = value

        def delete(module: nn.Module) -> None:
            del vars(module)["training"]

        with patched_functions(nn.Module, {"training": instead(property(read, write, delete))}):
            yield

    @contextmanager
    def ignored(self) -> Iterator[None]:
        """Note nothing for a while: modules that are one node read their mode again when the graph runs."""
        before, self._is_ignored = self._is_ignored, True
        try:
            yield
        finally:
            self._is_ignored = before

    @contextmanager
    def standing_for(self, module: nn.Module) -> Iterator[None]:
        """Take reads of an empty module of the same class for reads of this one.

        The modules that it calls read their mode again when the graph runs.
        """
        self._stand_for = module
        try:
            yield
        finally:
            self._stand_for = None

    def is_set(self, module: nn.Module) -> bool:
        """Tell whether the model has set the mode of a module, or of one inside, since it runs."""
        return bool(self._written) and not self._written.isdisjoint(module.modules())

    def end(self) -> None:
        """Release the model."""
        self._paths = {}
        self._written.clear()

    def _note(self, module: nn.Module, reader: FrameType) -> None:
        if self._stand_for is not None:
            if module in self._paths or type(module) is not type(self._stand_for):
                return
            module = self._stand_for
        path = self._paths.get(module)
        # A mode that the model sets by itself is no one else's, nor that of a module which it makes.
        if path is None or module in self._written or path in self.places or decides_nothing(reader):
            return
        self.places[path] = self._place()
        self.gives_numbers = self.gives_numbers or decides_a_number(reader)

    @property
    def modes_read(self) -> set[bool]:
        """The modes in which modules were found to be."""
        return {self.modes[path] for path in self.places}


def set_modes(model: nn.Module, training: bool) -> None:
    """Put all modules in a mode, as a graph module does with those that it has.

    A ``train`` of the model's own may leave some out.
    """
    for module in model.modules():
        vars(module)["training"] = training


def require_modes(graph_module: GraphModule, model: nn.Module, reads: ModeReads) -> list[Finding]:
    """Make a graph refuse other modes than those that the model has read, and report them."""
    required: list[tuple[str, nn.Module, bool]] = []
    for path in reads.places:
        module, training = _find(graph_module, path), reads.modes[path]
        if path and module is not None and module is _find(model, path):
            required.append((path, module, training))
            continue
        mode = Mode(training)
        if path and module is not None:
            module.add_module("mode", mode)
        required.append((path or "the model", mode, training))
    places = list(dict.fromkeys(reads.places.values()))
    advice = f"The model's Python reads its mode at {places[0]}: trace it in the mode in which it is to run."
    check = put_requirement(graph_module, RequireModes(required, REFUSAL, advice))
    with graph_module.graph.inserting_before(first_computing(graph_module.graph)):
        graph_module.graph.call_module(check)
    words = {True: "training mode", False: "evaluation mode"}
    read_at = {place: path for path, place in reversed(reads.places.items())}
    return [
        Found.MODE(read_at[place] or "the model", place, mode=words[reads.modes[read_at[place]]])
        for place in places
    ]


def _find(root: nn.Module, path: str) -> nn.Module | None:
    try:
        return root.get_submodule(path)
    except AttributeError:
        return None
