"""The choice of a graph for each call of a model, and of the model's own code where there is none."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from fxlab.deployment.calls import Call, NoKindError, bound_call
from fxlab.deployment.effects import EffectsWatch, has_effects
from fxlab.deployment.families import EagerCalls, Family, HeldGraph
from fxlab.deployment.model_marks import ModelMarks, marks_of
from fxlab.deployment.traced_call import ChangesModelError, eager_forward, traced_call
from fxlab.deployment.transformed_graph import SharedTensors, TransformedGraph, transformed
from fxlab.tracing.recording.autocast_regions import autocast_state
from fxlab.transformations import Transformation
from fxlab.values.nested import Path

if TYPE_CHECKING:
    import pandas as pd

MOST_GRAPHS = 8
"""How many graphs are traced for calls that differ in sizes, data or integers only."""

MOST_CHANGES = 16
"""How often all graphs are traced anew because the model itself has changed."""

COLUMNS = ("call", "mode", "runs", "hits", "nodes", "passes", "verdict", "reason")


@dataclass(frozen=True)
class Switched:
    """Passes that may be switched at any time."""

    now: Callable[[], tuple[Transformation, ...]]
    """Returns the passes that are on."""
    state: Callable[[], object]
    """Returns an object that is another one after each switch."""


class Dispatch:
    """Runs calls of a module on graphs.

    Parameters
    ----------
    module
        The module.
    own
        A ``forward`` that it has in place of that of its class.
    passes
        What graphs are transformed with.
    check
        Whether a transformed graph is used only if it computes the same up to rounding.
    """

    def __init__(
        self, module: nn.Module, own: Callable[..., Any] | None, passes: Switched, *, check: bool
    ) -> None:
        self._module, self._own, self._passes, self._check = module, own, passes, check
        self._eager = eager_forward(module, own)
        self._signature = inspect.signature(self._eager)
        self._lock = threading.RLock()
        self._changing: set[Path] = set()
        self._own_names = frozenset(vars(module))
        self._made_of: Hashable = None
        self._changes = -1
        self._families: dict[Hashable, Family] = {}
        self._eager_calls: dict[tuple[str, str, str], EagerCalls] = {}
        self._forget()

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the module."""
        try:
            call = bound_call(self._signature, args, kwargs)
        except TypeError:
            return self._eager(*args, **kwargs)  # which says what is wrong with these arguments
        except NoKindError as error:
            return self._without_kind(str(error), args, kwargs)
        marks = marks_of(self._module, self._own_names)
        if not self._may_trace(marks):
            reason = f"modules, tensors or settings of the model have changed more than {MOST_CHANGES} times"
            return self._without_kind(reason, args, kwargs)
        mode = _Mode.now()
        family = self._families.setdefault((call.kind, marks.modes, mode), Family(dict(call.numbers)))
        for graph in family.candidates(call, marks):
            try:
                return self._run(family, graph, call, marks)
            except AssertionError:
                continue  # a guard: nothing was written or drawn yet, and another graph may hold
            except Exception as error:
                if graph.has_effects:
                    raise
                output = self._eager(*args, **kwargs)  # which may raise the same, as nothing is wrong then
                family.graphs.remove(graph)
                family.eager = self._note(call.words(), mode, f"the graph raised {_first_line(error)}")
                return output
        if family.eager is None:
            try:
                with self._lock:
                    return self._trace(family, call, marks, mode)
            except _RefusedError as error:
                family.eager = self._note(call.words(), mode, str(error), is_final=error.is_final)
        calls = family.eager
        calls.hits += 1
        if not calls.is_final:
            family.eager = None
        return self._eager(*args, **kwargs)

    def table(self) -> pd.DataFrame:
        """Return the graphs, and the kinds of calls that have none."""
        import pandas as pd

        rows: list[tuple[Any, ...]] = []
        for family in self._families.values():
            rows += [(g.words, g.mode, "graph", g.hits, *g.facts()) for g in family.graphs]
        rows += [(c.words, c.mode, "eager", c.hits, 0, "", "", c.reason) for c in self._eager_calls.values()]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def _may_trace(self, marks: ModelMarks) -> bool:
        """Forget all graphs if the model is made of something else now; tell whether to trace others."""
        if marks.made_of != self._made_of:
            with self._lock:
                self._made_of = marks.made_of
                self._changes += 1
                self._forget()
        return self._changes <= MOST_CHANGES

    def _forget(self) -> None:
        # What the model's own code changes, it will change again.
        self._families = {kind: f.emptied() for kind, f in self._families.items() if f.changes_model}
        self._shared = SharedTensors()

    def _run(self, family: Family, graph: HeldGraph, call: Call, marks: ModelMarks) -> Any:
        made = graph.made_now(self._passes.state(), marks) or self._transformed(graph, call, marks)
        watch = EffectsWatch(self._module, call, marks)
        try:
            output, changed = graph.traced.run(made.module, call)
        except AssertionError as error:
            watch.require_none(error)
            raise
        self._changing.update(changed)
        family.latest[call.pattern] = graph
        graph.hits += 1
        return output

    def _transformed(self, graph: HeldGraph, call: Call, marks: ModelMarks) -> TransformedGraph:
        """Apply the passes that are on now, to a graph that may have been transformed by others before."""
        with self._lock:
            state = self._passes.state()
            if self._shared.made_for != (state, marks.versions):
                self._shared = SharedTensors((state, marks.versions))
            made = transformed(
                graph.traced.graph_module,
                self._passes.now(),
                graph.traced.inputs(call),
                self._shared,
                trains=torch.is_grad_enabled() and any(p.requires_grad for p in self._module.parameters()),
                check=self._check,
            )
            graph.made, graph.made_for = made, (state, marks.versions)
            graph.has_effects = has_effects(made.module)
        for note in made.notes:
            self._say(f"a graph runs without a pass: {note}", graph.words)
        return made

    def _trace(self, family: Family, call: Call, marks: ModelMarks, mode: _Mode) -> Any:
        """Trace one more graph, and run it."""
        if len(family.graphs) >= MOST_GRAPHS:
            raise _RefusedError(
                f"{MOST_GRAPHS} graphs were traced for such calls, and each refuses these arguments",
            )
        try:
            traced = traced_call(self._module, self._own, call, family.follow(call, self._changing))
        except Exception as error:  # whatever tracing somebody's model comes to
            is_final = True
            if isinstance(error, ChangesModelError):
                self._own_names |= {error.name}
                # The first time, it may have set something up.
                is_final, family.changes_model = family.changes_model, True
            raise _RefusedError(_first_line(error), is_final) from error
        graph = HeldGraph(traced, call.words(), mode.words(self._module), marks.versions)
        family.graphs.append(graph)
        try:
            return self._run(family, graph, call, marks)
        except Exception as error:
            family.graphs.remove(graph)
            if graph.has_effects and not isinstance(error, AssertionError):
                raise
            raise _RefusedError(f"the graph raised {_first_line(error)}") from error

    def _without_kind(self, reason: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self._note("", _Mode.now(), reason).hits += 1
        return self._eager(*args, **kwargs)

    def _note(self, words: str, mode: _Mode, reason: str, *, is_final: bool = True) -> EagerCalls:
        """Return the entry of calls that run eagerly; say so once, if it is for more than one."""
        key = words, mode.words(self._module), reason
        calls = self._eager_calls.setdefault(key, EagerCalls(*key, is_final=False))
        if is_final and not calls.is_final:
            calls.is_final = True
            self._say(f"such calls run eagerly: {reason}", words)
        return calls

    def _say(self, what: str, words: str) -> None:
        call = f" ({words})" if words else ""
        warnings.warn(f"{type(self._module).__name__}: {what}{call}", RuntimeWarning, stacklevel=2)


class _RefusedError(Exception):
    """A call has no graph, with the reason."""

    def __init__(self, reason: str, is_final: bool = True) -> None:
        super().__init__(reason)
        self.is_final = is_final


class _Mode(NamedTuple):
    """The settings of torch under which a call is made."""

    gradients: bool
    inference: bool
    autocast: Hashable

    @classmethod
    def now(cls) -> _Mode:
        return cls(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast_state())

    def words(self, module: nn.Module) -> str:
        mode = "training" if module.training else "evaluation"
        parts = [mode, "gradients" if self.gradients else "no gradients"]
        if self.autocast:
            parts.append("autocast")
        return ", ".join(parts)


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:300] if not isinstance(error, NoKindError) else text[:300]
