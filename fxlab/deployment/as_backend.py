"""``fxlab.as_backend``: a backend of ``torch.compile`` that runs captured graphs with a session's passes."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.base.checks import require_bool
from fxlab.base.exchanged import PROCESS_LOCK
from fxlab.base.words import counted, error_words
from fxlab.front_desk.sources import SessionLike, checked_session
from fxlab.graphs.node_difference import is_same_graph
from fxlab.models.graph_modules.copies import changed_copy
from fxlab.models.state.tensor_state import Sampled, count_fused_steps
from fxlab.operators import draws_random_numbers, operator_of, written_arguments
from fxlab.tracing.dynamo.capture import runnable
from fxlab.tracing.dynamo.model_graph import LiftedGraph
from fxlab.tracing.dynamo.torch_private import running_modules
from fxlab.transformations import Transformation
from fxlab.validation import Reference
from fxlab.values.tensors import address, version_of


class Switched(SessionLike, Protocol):
    """A session whose passes are switched."""

    @property
    def model(self) -> nn.Module:
        """The model of the session."""

    def on_change(self, callback: Callable[[Any], None]) -> Callable[[], None]:
        """Call a function after each change."""


def as_backend(session: Switched, *, check: bool = True) -> Callable[..., Any]:
    """Return a backend of ``torch.compile`` that applies the passes which are on in a session.

    ``model.compile(backend=fxlab.as_backend(session))`` keeps the model and its class, so generation,
    training loops and autocast work as before. Dynamo captures the graphs and guards them; the passes change
    each, and it runs eagerly. A pass that is switched in the session acts on the next call.

    A changed graph is judged against itself as captured, on the arguments of its first call, of the first one
    with other sizes, and again when weights were written (in training once). Where the two differ by more
    than rounding, or a pass raises, the graph runs unchanged, and a ``RuntimeWarning`` names the pass and the
    graph. Where gradients are wanted, passes that compute new weights are left off, as these would not train.

    The measure is the capture. Whether Dynamo has captured what the model computes is not visible to a
    backend; :func:`fxlab.compiler.compile_session` compares the two.

    Parameters
    ----------
    session
        The session. It may be one of another way to call the model.
    check
        Whether changed graphs are judged. If not, passes may change results.

    Returns
    -------
    Callable
        The backend.

    Raises
    ------
    TypeError, ValueError
        If ``session`` is not a session, or is one of a compiler's passes.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import fxlab
    >>> class Model(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear, self.dropout = nn.Linear(4, 4), nn.Dropout()
    ...
    ...     def forward(self, x):
    ...         return self.dropout(self.linear(x))
    >>> model, x = Model().eval(), torch.ones(2, 4)
    >>> expected = model(x)
    >>> session = fxlab.Session(model, x)
    >>> _ = session.apply("remove-identities")
    >>> model.compile(backend=fxlab.as_backend(session))
    >>> torch.equal(model(x), expected)
    True
    """
    checked_session(session)
    if getattr(session, "compiled", None) is not None:
        raise ValueError(
            "session: its passes are those of a compiler, which applies them itself. Make a session of the "
            "model: fxlab.Session(model, inputs)."
        )
    return _Backend(session, check=require_bool(check, "check"))


class _Backend:
    """The backend: the passes that are on, and what its graphs share.

    Torch keeps a backend until a reset, so it holds no session and no model; the session tells it of changes.
    """

    def __init__(self, session: Switched, *, check: bool) -> None:
        self.check = check
        self._model = weakref.ref(session.model)
        self._graphs = 0
        count_fused_steps()
        self.take(session)
        session.on_change(self.take)

    def take(self, session: SessionLike) -> None:
        """Take the passes that are on now."""
        self.passes = tuple(session.applied)

    def __call__(self, captured: GraphModule, values: Sequence[Any], **_: Any) -> Callable[..., Any]:
        """Return the function that runs a captured graph."""
        if not isinstance(captured, GraphModule):
            raise TypeError(
                "fxlab.as_backend(session) is a backend: model.compile(backend=fxlab.as_backend(session)). "
                f"It was called with {type(captured).__name__}."
            )
        self._graphs += 1
        modules, model = running_modules(), self._model()
        owner = type(modules[0]).__name__ if modules else "a function"
        name = f"graph {self._graphs} of {owner} ({counted(len(captured.graph.nodes), 'node')})"
        # Exclusions go by names, which begin at the session's model.
        starts = [place for place, module in enumerate(modules) if module is model]
        try:
            lifted = LiftedGraph(captured, values, modules[starts[0] :] if starts else modules)
        except Exception as error:  # Dynamo's graphs may hold anything
            self.warn(f"{name} runs without passes: it cannot be rewritten: {error_words(error)[:200]}")
            return runnable(captured)
        return _Graph(name, captured, lifted, self).run

    def warn(self, message: str) -> None:
        """Say that passes are left off."""
        warnings.warn(f"as_backend: {message}", RuntimeWarning, stacklevel=2)


class _Graph:
    """One captured graph, with the passes that are on."""

    def __init__(self, name: str, captured: GraphModule, lifted: LiftedGraph, backend: _Backend) -> None:
        self._name, self._lifted, self._backend = name, lifted, backend
        self._captured = runnable(captured)
        self._changed: Callable[..., Any] | None = None
        """Runs the changed graph, if passes change it."""
        self._has_effects = False
        self._made_for: tuple[object, ...] = ()
        self._weights: list[torch.Tensor] = []
        self._watched: list[torch.Tensor] = []
        """Those whose values may have decided what the passes did."""
        self._versions: list[tuple[int, int]] = []
        self._sampled = Sampled(())
        self._writes = 0
        """How often the passes were applied again because of written weights."""
        self._stages: list[tuple[str, GraphModule]] = []
        self._judged: list[object] = []

    def run(self, *values: Any) -> Any:
        """Run it on the values of the placeholders of Dynamo's graph."""
        # Without waiting: the run of another thread that holds it may wait for this call.
        if is_free := PROCESS_LOCK.acquire(blocking=False):
            try:
                self._make_ready(values)
            finally:
                PROCESS_LOCK.release()
        changed = self._changed
        if changed is None or not (is_free or self._is_made(values)):
            return self._captured(*values)
        try:
            output = changed(*self._lifted.inputs(values))
        except Exception as error:
            if self._has_effects:  # something may be written or drawn: the captured graph cannot take over
                raise
            output = self._captured(*values)  # raises the same, unless a pass is to blame
            self._leave_off(
                f"{self._pass_names()} not used: the changed graph raised {error_words(error)[:200]}"
            )
            return output
        return (output,) if self._lifted.is_single else output

    def _make_ready(self, values: tuple[Any, ...]) -> None:
        made_for = self._backend.passes, torch.is_grad_enabled()
        if not self._is_made(values):
            self._writes = 0 if self._is_new() else self._writes
            self._weights, self._judged = self._lifted.weights(values), []
            try:
                self._make(values)
            except Exception as error:
                self._leave_off(f"{self._pass_names() or 'passes'}: {error_words(error)[:200]}")
            self._made_for = made_for
        if self._changed is not None and self._backend.check and len(self._judged) < 2:
            sizes = [tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in values]
            if sizes not in self._judged:
                self._judge(values)
                self._judged.append(sizes)

    def _is_new(self) -> bool:
        passes, has_gradients = self._made_for or (None, None)
        return passes is not self._backend.passes or has_gradients != torch.is_grad_enabled()

    def _is_made(self, values: tuple[Any, ...]) -> bool:
        """Tell whether passes have been applied that are on now, with the weights that there are."""
        is_new = self._is_new()
        return not (is_new or (self._changed is not None and self._is_stale(self._lifted.weights(values))))

    def _is_stale(self, weights: list[torch.Tensor]) -> bool:
        if any(now is not before for now, before in zip(weights, self._weights, strict=True)):
            return True
        is_written = self._versions != _versions(self._watched) or self._sampled.changed()
        self._writes += is_written
        return is_written

    def _watch(self, *, makes_tensors: bool, trains: bool) -> None:
        """Note the weights: the result of the passes holds for their present values.

        In training, equal weights and the like part with the first step; passes that make new ones are off.
        """
        if makes_tensors:
            self._watched = self._weights
        elif trains and self._writes:
            self._watched = []
        elif self._has_effects:  # buffers that the graph itself writes decide nothing
            self._watched = [weight for weight in self._weights if isinstance(weight, nn.Parameter)]
        else:
            self._watched = self._weights
        self._versions = _versions(self._watched)
        self._sampled = Sampled(self._watched if makes_tensors else ())

    def _trains(self, values: tuple[Any, ...]) -> bool:
        tensors = (value for value in values if isinstance(value, torch.Tensor))
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)

    def _make(self, values: tuple[Any, ...]) -> None:
        """Apply the passes to the graph, lowest first."""
        self._changed, self._stages = None, []
        if not self._backend.passes:
            return
        traced = module = self._lifted.with_weights(values)
        own = set(map(id, _held(traced)))
        trains = self._trains(values)
        for pass_ in self._backend.passes:
            stage = self._stage(module, pass_, own if trains else None)
            if stage is not None:
                module = stage
                self._stages.append((pass_.name, stage))
        if self._stages:
            self._has_effects = any(map(_may_have_effects, module.graph.nodes))
            self._watch(makes_tensors=_makes_tensors(module, own), trains=trains)
            self._changed = runnable(module)

    def _stage(
        self, module: GraphModule, pass_: Transformation, trained: set[int] | None
    ) -> GraphModule | None:
        """Return the graph with a pass applied; ``None`` if that changes nothing, or the pass is left off."""
        try:
            stage = changed_copy(module, pass_, writes_tensors=not pass_.copies_on_write)
            stage.graph.lint()
        except Exception as error:  # a foreign pass may raise anything
            self._warn(f"{pass_.name}: it raised {error_words(error)[:200]}")
            return None
        if trained is not None and _makes_tensors(stage, trained):
            self._warn(
                f"{pass_.name}: it computes new weights, which an optimizer would not train; under "
                "torch.no_grad() it is applied"
            )
            return None
        # Marks are the pass's word: one may write weights, or change nodes, and mark none.
        is_changed = pass_.get_transformed_nodes(stage) or not is_same_graph(module, stage)
        return stage if is_changed else None

    def _judge(self, values: tuple[Any, ...]) -> None:
        """Use the changed graph only if it computes what the captured one does."""
        inputs = self._lifted.inputs(values)
        try:
            traced = self._lifted.with_weights(values)
            reference = Reference(traced, inputs, gradients=self._trains(values))
            if reference.verdict(self._stages[-1][1]).agrees:
                return
            verdicts = ((name, reference.verdict(stage)) for name, stage in self._stages)
            name, verdict = next((name, found) for name, found in verdicts if not found.agrees)
            reason = f"{name}, the first that does not agree: {verdict.status}: {verdict.reason}"
        except Exception as error:  # nothing can be compared, or the graph raises
            reason = f"{self._pass_names()}: nothing could be compared: {error_words(error)[:200]}"
        self._leave_off(reason)

    def _leave_off(self, reason: str) -> None:
        self._changed, self._stages = None, []
        self._warn(reason)

    def _warn(self, reason: str) -> None:
        self._backend.warn(f"{self._name} runs without {reason}")

    def _pass_names(self) -> str:
        return ", ".join(name for name, _ in self._stages)


def _held(module: nn.Module) -> Iterator[torch.Tensor]:
    for child in module.modules():
        for holder in (child._parameters, child._buffers, vars(child)):
            yield from (value for value in holder.values() if isinstance(value, torch.Tensor))


def _makes_tensors(module: nn.Module, known: set[int]) -> bool:
    """Tell whether a module holds tensors that passes have made."""
    return any(id(tensor) not in known for tensor in _held(module))


def _versions(weights: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    # Assigning tensor.data exchanges the memory, and counts no new version.
    return [(version_of(weight), address(weight)) for weight in weights]


def _may_have_effects(node: torch.fx.Node) -> bool:
    """Tell whether a node may write, draw or do something else, so that it is not to be run twice."""
    calls = node.op in ("call_function", "call_method", "call_module")
    return calls and (
        bool(written_arguments(node)) or draws_random_numbers(node) or operator_of(node) is None
    )
