"""A model whose calls run graphs that Dynamo captures, and its own code where Dynamo captures none."""

from __future__ import annotations

import inspect
import threading
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.deployment.held_graph import HeldGraph, Runner, Switched
from fxlab.deployment.transformed_graph import SharedTensors
from fxlab.first_use import pd
from fxlab.models.autocast import autocast_state
from fxlab.models.model_state import ModelState
from fxlab.node_info import dtype_name
from fxlab.tracing.dynamo import compiling
from fxlab.tracing.dynamo.hooks import break_after, running_modules
from fxlab.tracing.dynamo.model_graph import LiftedGraph

COLUMNS = ("call", "mode", "runs", "hits", "nodes", "passes", "verdict", "reason")


def _call(module: nn.Module, own: Callable[..., Any] | None, args: Any, kwargs: Any) -> Any:
    """Run a model; Dynamo compiles this function."""
    if own is not None:
        return own(*args, **kwargs)
    return type(module).forward(module, *args, **kwargs)


@dataclass
class _EagerCalls:
    """Calls with code that runs eagerly, for one reason."""

    words: str
    mode: str
    hits: int = 0


@dataclass
class _Running:
    """A running call."""

    arguments: Mapping[str, Any]
    graphs: int = 0
    reasons: list[str] = field(default_factory=list)
    """Why code of it runs eagerly."""
    said: list[str] = field(default_factory=list)
    """Why passes are left off."""

    def words(self) -> str:
        """Say the arguments in words."""
        words = (f"{name}: {_words(value)}" for name, value in self.arguments.items())
        return ", ".join(words) or "no arguments"


class CompiledModel:
    """Runs calls of a module on graphs with passes; ``own``: a ``forward`` of the object, not its class."""

    def __init__(
        self,
        module: nn.Module,
        own: Callable[..., Any] | None,
        eager: Callable[..., Any],
        passes: Switched,
        *,
        check: bool,
    ) -> None:
        self._module, self._own, self._passes, self._check = module, own, passes, check
        self._eager, self._signature = eager, inspect.signature(eager)
        self._lock = threading.RLock()
        self._threads = threading.local()
        self._graphs: list[tuple[Any, HeldGraph]] = []
        self._eager_calls: dict[str, _EagerCalls] = {}
        self._latest_reason = ""
        self._said: set[str] = set()
        self._shared = SharedTensors()
        self._compiled: compiling.CompiledFunction | None = None
        self._compiled_for: Hashable = None

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the module."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            return self._eager(*args, **kwargs)  # which raises the model's own error for these arguments
        call = _Running(bound.arguments)
        if why := compiling.why_not_compiled():
            self._count(why, call)  # without a warning: the caller has asked for it
            return self._eager(*args, **kwargs)
        outer, self._threads.call = getattr(self._threads, "call", None), call
        try:
            output = self._function()(self._module, self._own, bound.args, bound.kwargs)
        finally:
            self._threads.call = outer
        self._finish(call)
        return output

    def table(self) -> pd.DataFrame:
        """Return the graphs, and the reasons to run eagerly."""
        rows: list[tuple[Any, ...]] = [
            (graph.words, graph.mode, "graph", graph.hits, *graph.facts()) for graph in self.graphs()
        ]
        rows += [
            (calls.words, calls.mode, "eager", calls.hits, 0, "", "", reason)
            for reason, calls in self._eager_calls.items()
        ]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def graphs(self) -> list[HeldGraph]:
        """Return the graphs that Dynamo holds: a reset, or another model, makes it forget some."""
        self._graphs = [(runner, graph) for runner, graph in self._graphs if runner() is not None]
        return [graph for _, graph in self._graphs]

    def _function(self) -> compiling.CompiledFunction:
        """Return the compiled function; it is compiled again if unguarded state has changed."""
        state = _unguarded_state()
        with self._lock:
            if self._compiled is None or state != self._compiled_for:
                self._compiled_for = state
                self._compiled = compiling.CompiledFunction(
                    _call, _Backend(weakref.WeakMethod(self._hold)), self._note, self._kept
                )
            return self._compiled

    def _hold(self, captured: GraphModule, values: Sequence[Any]) -> Callable[..., Any]:
        """Keep a graph that Dynamo has captured, and return a function that runs it."""
        call = self._running()
        modules = running_modules()
        inner = modules[modules.index(self._module) :] if self._module in modules else [self._module]
        try:
            lifted: LiftedGraph | str = LiftedGraph(captured, values, inner)
        except Exception as error:  # Dynamo's graphs may hold anything
            lifted = f"the graph cannot be rewritten: {type(error).__name__}: {str(error)[:200]}"
        graph = HeldGraph(
            captured,
            lifted,
            self._passes,
            check=self._check,
            shared=self._shared,
            words=call.words(),
            mode=_mode_words(self._module),
            ended_by=break_after(captured),
            say=self._say,
        )
        runner = Runner(graph, self._ran)
        self._graphs.append((weakref.ref(runner), graph))
        return runner

    def _running(self) -> _Running:
        """Return the running call of this thread, or a placeholder."""
        return getattr(self._threads, "call", None) or _Running({})

    @contextmanager
    def _kept(self) -> Iterator[None]:
        state = ModelState(self._module, values=False)
        try:
            yield
        finally:
            state.put_memory_back()

    def _note(self, reason: str) -> None:
        self._running().reasons.append(reason)

    def _say(self, what: str) -> None:
        self._running().said.append(what)

    def _ran(self, graph: HeldGraph) -> None:
        call = self._running()
        call.graphs += 1
        if graph.ended_by is not None:
            call.reasons.append(str(graph.ended_by))

    def _finish(self, call: _Running) -> None:
        """Count the reasons of a call to run eagerly, and report new ones."""
        if call.reasons and not call.graphs:
            self._latest_reason = call.reasons[-1]
        elif not call.graphs and self._latest_reason:
            call.reasons.append(self._latest_reason)
        for reason in dict.fromkeys(call.reasons):
            if not call.graphs and reason not in self._eager_calls:
                call.said.append(f"such calls run eagerly: {reason}")
            self._count(reason, call)
        for what in call.said:
            if what not in self._said:
                self._said.add(what)
                message = f"{type(self._module).__name__}: {what} ({call.words()})"
                warnings.warn(message, RuntimeWarning, stacklevel=5)

    def _count(self, reason: str, call: _Running) -> None:
        if reason not in self._eager_calls:
            self._eager_calls[reason] = _EagerCalls(call.words(), _mode_words(self._module))
        self._eager_calls[reason].hits += 1


class _Backend:
    """The backend, which does not hold the model: torch keeps each backend until a reset."""

    def __init__(self, hold: weakref.WeakMethod[Callable[..., Any]]) -> None:
        self._hold = hold

    def __call__(self, captured: GraphModule, values: Sequence[Any]) -> Callable[..., Any]:
        """Take a graph."""
        hold = self._hold()
        return captured.forward if hold is None else hold(captured, values)


def _unguarded_state() -> Hashable:
    """Return the state of all modules that Dynamo does not guard: their ``__call__``, and global hooks."""
    of_torch = nn.modules.module
    hooks = (
        of_torch._global_forward_hooks,
        of_torch._global_forward_pre_hooks,
        of_torch._global_backward_hooks,
        of_torch._global_backward_pre_hooks,
    )
    return nn.Module.__call__, nn.Module._call_impl, *(tuple(map(id, found.values())) for found in hooks)


def _mode_words(module: nn.Module) -> str:
    parts = [
        "training" if module.training else "evaluation",
        "gradients" if torch.is_grad_enabled() else "no gradients",
    ]
    return ", ".join([*parts, *(["autocast"] if autocast_state() else [])])


def _words(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{dtype_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    return type(value).__name__
