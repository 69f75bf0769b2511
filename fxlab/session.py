"""One traced model and its switchable stack of transformations, without a screen."""

import itertools
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.fx import GraphModule

from fxlab import transformations
from fxlab.graph_module import changed_copy
from fxlab.running import Inputs
from fxlab.transformations import Transformation
from fxlab.validation import Reference, Verdict, compare_outputs, transformed_nodes

if TYPE_CHECKING:
    import pandas as pd

PassOrName: TypeAlias = Transformation | str
"""A transformation of the session, or its name or signature."""

_Stack: TypeAlias = tuple[str, ...]
"""The signatures of the transformations that are on, lowest first."""


class TransformationError(RuntimeError):
    """A transformation raised; the session that ran it is as it was before.

    Attributes
    ----------
    transformation : Transformation
        The transformation that failed. What it raised is the ``__cause__``.

    Examples
    --------
    >>> def breaks(graph_module):
    ...     raise RuntimeError("halfway")
    >>> traced = torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    >>> session = Session(traced, passes=[Transformation.from_callable(breaks)])
    >>> session.apply("breaks")
    Traceback (most recent call last):
        ...
    fxlab.session.TransformationError: breaks failed and was not applied; ... RuntimeError: halfway
    """

    def __init__(self, transformation: Transformation, cause: Exception) -> None:
        super().__init__(
            f"{transformation.name} failed and was not applied; the session is as it was. "
            f"{type(cause).__name__}: {cause}"
        )
        self.transformation = transformation


class Session:
    """A traced model and transformations that are switched on and off, in any order and exactly.

    Each transformation that is on works on a copy of the stage below it, which shares that stage's tensors.
    The original is never touched, so whatever a transformation does or raises, switching it off gives back
    the very same module and parameters.

    Parameters
    ----------
    model
        A module, which is traced with :func:`fxlab.symbolic_trace`, or a graph module, taken as it is.
    inputs
        What to trace and to compare outputs with: keyword arguments (a mapping), positional arguments (a
        tuple) or one tensor. For a model of transformers they are made from its configuration.
    passes
        The transformations on offer, lowest in the stack first. If left out, all that
        :func:`~fxlab.transformations.available` and :func:`~fxlab.transformations.installed` name.
    atol, rtol
        What outputs may differ by and still agree: ``|a - b| <= atol + rtol * |a|``, as in
        :func:`compare_outputs`.

    Raises
    ------
    TypeError
        If ``model`` is no module or one of ``passes`` no transformation.
    ValueError
        If two of ``passes`` are the same.

    Examples
    --------
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> session = Session(torch.fx.symbolic_trace(model))
    >>> session.apply("fuse-batch-norm2d-in-conv2d")
    >>> len(session.graph_module.graph.nodes), len(session.original.graph.nodes)
    (3, 4)
    >>> session.undo()
    >>> session.graph_module is session.original
    True
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: Inputs | None = None,
        *,
        passes: Iterable[Transformation] | None = None,
        atol: float = 1e-4,
        rtol: float = 1e-4,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(
                f"model: expected a torch.nn.Module or GraphModule, got {type(model).__name__}. "
                "Load or build the model first."
            )
        self.atol, self.rtol = atol, rtol
        self._passes: dict[str, Transformation] = {}
        self._lock = threading.RLock()
        self._listeners: list[Callable[[Session], None]] = []
        for pass_ in _offered_by_default() if passes is None else passes:
            self._register(pass_)
        self.original, self.inputs = _traced(model, inputs)
        self._stages: dict[_Stack, GraphModule] = {(): self.original}
        self._history: list[_Stack] = [()]
        self._position = 0
        self._tables: dict[tuple[Any, ...], pd.DataFrame] = {}
        self._reference: Reference | None = None
        self._verdicts: dict[_Stack, Verdict] = {}

    @property
    def graph_module(self) -> GraphModule:
        """The model with all transformations that are on."""
        return self._stages[self._stack]

    @property
    def passes(self) -> tuple[Transformation, ...]:
        """The transformations on offer, lowest in the stack first."""
        return tuple(self._passes.values())

    @property
    def applied(self) -> tuple[Transformation, ...]:
        """The transformations that are on, lowest in the stack first."""
        return tuple(self._passes[signature] for signature in self._stack)

    @property
    def stages(self) -> tuple[GraphModule, ...]:
        """The original, and the module after each transformation that is on."""
        return tuple(self._stages[prefix] for prefix in _prefixes(self._stack))

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to take back."""
        return self._position > 0

    @property
    def can_redo(self) -> bool:
        """Whether there is a change that was taken back."""
        return self._position + 1 < len(self._history)

    def add(self, pass_: Transformation) -> None:
        """Offer one more transformation, above the others in the stack.

        Raises
        ------
        TypeError
            If it is no transformation.
        ValueError
            If the session offers it already, or another of the same name.
        """
        with self._lock:
            self._register(pass_)
        self._notify()

    def is_on(self, pass_: PassOrName) -> bool:
        """Tell whether a transformation is on."""
        return self._find(pass_).signature in self._stack

    def apply(self, pass_: PassOrName) -> None:
        """Switch a transformation on, in its place in the stack. Nothing happens if it is on.

        Raises
        ------
        TransformationError
            If it, or one above it that has to be applied anew, raises. The session is as it was.
        """
        signature = self._find(pass_).signature
        self._go_to({*self._stack, signature})

    def revert(self, pass_: PassOrName) -> None:
        """Switch a transformation off; those above it are applied anew. Nothing happens if it is off.

        Raises
        ------
        TransformationError
            If one above it raises on the module without it. The session is as it was.
        """
        signature = self._find(pass_).signature
        self._go_to({*self._stack} - {signature})

    def toggle(self, pass_: PassOrName) -> None:
        """Switch a transformation on if it is off, and off if it is on."""
        if self.is_on(pass_):
            self.revert(pass_)
        else:
            self.apply(pass_)

    def reset(self) -> None:
        """Switch everything off; this can be undone."""
        self._go_to(set())

    def undo(self) -> None:
        """Take the last change back. Raises ``ValueError`` if there is none."""
        if not self.can_undo:
            raise ValueError("There is nothing to undo: no transformation was switched yet.")
        self._move_to(self._position - 1)

    def redo(self) -> None:
        """Make the change again that was last taken back. Raises ``ValueError`` if there is none."""
        if not self.can_redo:
            raise ValueError("There is nothing to redo: no change was undone.")
        self._move_to(self._position + 1)

    def outputs(self) -> "pd.DataFrame":
        """Compare the outputs of the present model with the original's, as :func:`compare_outputs` does.

        Raises
        ------
        ValueError
            If the session has no inputs, or its model no weights.
        """
        inputs = self._inputs_to_run("Outputs cannot be compared")
        return self._table(
            ("outputs", self._stack),
            lambda: compare_outputs(self.original, self.graph_module, inputs, atol=self.atol, rtol=self.rtol),
        )

    def verdict(self) -> Verdict:
        """Tell whether the present model is the original up to rounding, as :func:`verdict` does.

        Raises
        ------
        ValueError
            If the session has no inputs, or its model no weights or random numbers.
        """
        inputs = self._inputs_to_run("There is no verdict")
        with self._lock:
            if self._reference is None:
                self._reference = Reference(self.original, inputs)
            if self._stack not in self._verdicts:
                self._verdicts[self._stack] = self._reference.verdict(self.graph_module)
            return self._verdicts[self._stack]

    def transformed_nodes(self, pass_: PassOrName | None = None) -> "pd.DataFrame":
        """List the nodes of the present model that a transformation, or any, has changed.

        Beside each stands what the original has in its place; see :func:`transformed_nodes`.
        """
        found = None if pass_ is None else self._find(pass_)
        key = ("transformed_nodes", self._stack, found and found.signature)
        return self._table(key, lambda: transformed_nodes(self.graph_module, found, original=self.original))

    def explain(self, pass_: PassOrName) -> "pd.DataFrame":
        """Tell what a transformation changes, and what not and why, on the stage that it is applied to."""
        found = self._find(pass_)
        below = self._in_order(self._stack, up_to=found.signature)
        key = ("explain", below, found.signature)
        return self._table(key, lambda: found.explain(self._stages[below]))

    def on_change(self, callback: Callable[["Session"], None]) -> Callable[[], None]:
        """Call a function with the session after each change; returns the function that ends this."""
        if not callable(callback):
            raise TypeError(f"callback: expected a function of the session, got {type(callback).__name__}")
        self._listeners.append(callback)

        def unsubscribe() -> None:
            if callback in self._listeners:
                self._listeners.remove(callback)

        return unsubscribe

    def __repr__(self) -> str:
        switches = ", ".join(f"{pass_.name} {'on' if self.is_on(pass_) else 'off'}" for pass_ in self.passes)
        return f"<Session of {type(self.original).__name__}: {switches}>"

    def _inputs_to_run(self, failure: str) -> Inputs:
        if self.inputs is None:
            raise ValueError(f"{failure}: the session has no inputs. Give them: Session(model, inputs).")
        if any(parameter.is_meta for parameter in self.original.parameters()):
            raise ValueError(f"{failure}: the model is on the meta device and has no weights.")
        return self.inputs

    @property
    def _stack(self) -> _Stack:
        return self._history[self._position]

    def _register(self, pass_: Transformation) -> None:
        if not isinstance(pass_, Transformation):
            raise TypeError(f"passes: expected instances of fxlab.Transformation, got {_described(pass_)}")
        names = {other.name for other in self._passes.values()}
        if pass_.signature in self._passes or pass_.name in names:
            raise ValueError(
                f"passes: {pass_.name!r} is offered already. "
                "Give a pass with other arguments a name of its own."
            )
        self._passes[pass_.signature] = pass_

    def _find(self, pass_: PassOrName) -> Transformation:
        if not isinstance(pass_, Transformation | str):
            raise TypeError(
                f"pass_: expected a Transformation, its name or its signature, got {_described(pass_)}"
            )
        signature = pass_.signature if isinstance(pass_, Transformation) else pass_
        if signature in self._passes:
            return self._passes[signature]
        for offered in self._passes.values():
            if offered.name == pass_:
                return offered
        name = pass_.name if isinstance(pass_, Transformation) else pass_
        offered_names = ", ".join(other.name for other in self.passes)
        raise ValueError(f"pass_: the session does not offer {name!r}. It offers: {offered_names}.")

    def _in_order(self, signatures: Iterable[str], *, up_to: str | None = None) -> _Stack:
        chosen = set(signatures)
        order = itertools.takewhile(lambda signature: signature != up_to, self._passes)
        return tuple(signature for signature in order if signature in chosen)

    def _go_to(self, signatures: set[str]) -> None:
        """Make a new entry of the history, in which these transformations are on."""
        with self._lock:
            stack = self._in_order(signatures)
            if stack == self._stack:
                return
            stages = self._built(stack)
            self._history[self._position + 1 :] = [stack]
            self._settle(self._position + 1, stages)
        self._notify()

    def _move_to(self, position: int) -> None:
        with self._lock:
            self._settle(position, self._built(self._history[position]))
        self._notify()

    def _built(self, stack: _Stack) -> dict[_Stack, GraphModule]:
        """Return the stages of a stack, those that exist and those still to be made."""
        stages: dict[_Stack, GraphModule] = {}
        for prefix in _prefixes(stack):
            stages[prefix] = self._stages.get(prefix) or self._applied_to(stages[prefix[:-1]], prefix[-1])
        return stages

    def _applied_to(self, below: GraphModule, signature: str) -> GraphModule:
        pass_ = self._passes[signature]
        try:
            return changed_copy(below, pass_, writes_tensors=not pass_.copies_on_write)
        except Exception as error:
            raise TransformationError(pass_, error) from error

    def _settle(self, position: int, stages: dict[_Stack, GraphModule]) -> None:
        self._stages, self._position = stages, position
        self._tables = {key: table for key, table in self._tables.items() if key[1] in stages}
        self._verdicts = {stack: found for stack, found in self._verdicts.items() if stack in stages}

    def _table(self, key: tuple[Any, ...], make: Callable[[], "pd.DataFrame"]) -> "pd.DataFrame":
        with self._lock:
            if key not in self._tables:
                self._tables[key] = make()
            return self._tables[key].copy()

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener(self)


def _traced(model: torch.nn.Module, inputs: Inputs | None) -> tuple[GraphModule, Inputs | None]:
    if isinstance(model, GraphModule):
        return model, inputs
    from fxlab.tracing import example_inputs, symbolic_trace

    known: Inputs = example_inputs(model) if inputs is None else inputs
    return symbolic_trace(model, known), known


def _offered_by_default() -> list[Transformation]:
    return [*(cls() for cls in transformations.available()), *transformations.installed()]


def _prefixes(stack: _Stack) -> Iterable[_Stack]:
    return (stack[:length] for length in range(len(stack) + 1))


def _described(value: object) -> str:
    return f"the class {value.__name__} (call it)" if isinstance(value, type) else type(value).__name__
