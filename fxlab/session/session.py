"""One traced model and its switchable stack of transformations, without a screen."""

import functools
import itertools
import threading
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import torch
from torch.fx import GraphModule, Node

from fxlab.checks import items_of
from fxlab.interrupts import InterruptsHeld
from fxlab.models.graph_module import changed_copy, check_lints, sources_bounded
from fxlab.models.running import Inputs, call_arguments
from fxlab.models.tensor_state import ModuleState
from fxlab.session.code import stack_code
from fxlab.transformations import RewritePass, Transformation, offered
from fxlab.transformations.candidate_filter import listed, node_names, not_limitable
from fxlab.transformations.pass_names import find_name
from fxlab.validation import Reference, Variants, Verdict, transformed_nodes

if TYPE_CHECKING:
    import pandas as pd

PassOrName: TypeAlias = Transformation | str
"""A transformation of the session, or its name in any common spelling, or its signature."""

_Candidate: TypeAlias = tuple[str, ...]
"""What a transformation changes together, by the names of its nodes."""

_Stack: TypeAlias = tuple[tuple[str, tuple[_Candidate, ...]], ...]
"""The names of the transformations that are on and the candidates that each excludes, lowest first."""

T = TypeVar("T")
P = ParamSpec("P")


def _in_turn(method: Callable[Concatenate["Session", P], T]) -> Callable[Concatenate["Session", P], T]:
    """Let a method run in one thread at a time, on stages of what the original is now.

    Listeners are told of a change when the outermost method is done, so that they find the session unlocked.
    """

    @functools.wraps(method)
    def run(self: "Session", *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            is_outermost, self._is_running = not self._is_running, True
            try:
                if is_outermost:
                    self._look_for_changes()
                result = method(self, *args, **kwargs)
            finally:
                if is_outermost:
                    self._is_running = False
            tell = is_outermost and self._is_changed
            if tell:
                self._is_changed = False
        if tell:
            self._notify()
        return result

    return run  # type: ignore[return-value]


@dataclass(frozen=True)
class _Switches:
    """What a person has chosen: an entry of the history."""

    offered: tuple[str, ...] = ()
    """The names of the transformations on offer, lowest in the stack first."""
    on: frozenset[str] = frozenset()
    """The names of those that are on."""
    excluded: frozenset[tuple[str, _Candidate]] = frozenset()
    """Names of transformations, and candidates that they exclude."""

    def without(self, name: str) -> "_Switches":
        """Return the same without a transformation."""
        offered = tuple(other for other in self.offered if other != name)
        excluded = frozenset(entry for entry in self.excluded if entry[0] != name)
        return _Switches(offered, self.on - {name}, excluded)

    def excluded_from(self, name: str) -> tuple[_Candidate, ...]:
        """Return the candidates that a transformation excludes."""
        return tuple(sorted(candidate for other, candidate in self.excluded if other == name))


@dataclass(frozen=True)
class _History:
    """What was chosen one after the other, and which of it holds; replaced as a whole, never changed."""

    entries: tuple[_Switches, ...] = (_Switches(),)
    position: int = 0

    @property
    def now(self) -> _Switches:
        """The entry that holds."""
        return self.entries[self.position]

    def then(self, switches: _Switches) -> "_History":
        """Return the history with one more entry; what was taken back is forgotten."""
        return _History((*self.entries[: self.position + 1], switches), self.position + 1)

    def at(self, position: int) -> "_History":
        """Return the same history with another entry holding."""
        return replace(self, position=position)


class TransformationError(RuntimeError):
    """A transformation raised; the session that ran it is as it was before.

    Attributes
    ----------
    pass_ : Transformation
        The one that failed. What it raised is the ``__cause__``.

    Examples
    --------
    >>> import fxlab
    >>> def breaks(graph_module):
    ...     raise RuntimeError("halfway")
    >>> traced = torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    >>> session = Session(traced, passes=[fxlab.from_callable(breaks)])
    >>> session.apply("breaks")
    Traceback (most recent call last):
        ...
    fxlab.session.session.TransformationError: breaks failed and was not applied; ... RuntimeError: halfway
    """

    def __init__(self, pass_: Transformation, cause: Exception) -> None:
        super().__init__(
            f"{pass_.name} failed and was not applied; the session is as it was. "
            f"{type(cause).__name__}: {cause}"
        )
        self.pass_ = pass_


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
        :func:`fxlab.transformations.offered` returns.

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
    >>> [node.name for node in session.graph_module.graph.nodes]
    ['input_1', 'evaluation_mode', '_0', 'output']
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
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(
                f"model: expected a torch.nn.Module or GraphModule, got {type(model).__name__}. "
                "Load or build the model first."
            )
        self._passes: dict[str, Transformation] = {}
        """By name, all that were ever offered and that undo can bring back."""
        self._lock = threading.RLock()
        self._is_running = self._is_changed = False
        self._listeners: list[Callable[[Session], None]] = []
        self._history = _History()
        self._stages: dict[_Stack, GraphModule]
        self._results: dict[tuple[Any, ...], Any] = {}
        self._reference: Reference | None
        given = offered() if passes is None else items_of(passes, "passes", "transformations")
        for pass_ in given:
            self._history = _History((self._with(pass_),))
        self.original, self.inputs = _traced(model, inputs)
        check_lints(self.original, "model")
        self._forget_stages()

    @property
    @_in_turn
    def graph_module(self) -> GraphModule:
        """The model with all transformations that are on."""
        return self._present[self._stack]

    @property
    def passes(self) -> tuple[Transformation, ...]:
        """The transformations on offer, lowest in the stack first, each with its exclusions."""
        return tuple(self._limited(name) for name in self._switches.offered)

    @property
    def applied(self) -> tuple[Transformation, ...]:
        """The transformations that are on, lowest in the stack first, each with its exclusions."""
        return tuple(self._limited(name) for name, _ in self._stack)

    @property
    @_in_turn
    def stages(self) -> tuple[GraphModule, ...]:
        """The original, and the module after each transformation that is on."""
        return tuple(self._present[prefix] for prefix in _prefixes(self._stack))

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to take back."""
        return self._history.position > 0

    @property
    def can_redo(self) -> bool:
        """Whether there is a change that was taken back."""
        return self._history.position + 1 < len(self._history.entries)

    @_in_turn
    def add(self, pass_: Transformation) -> None:
        """Offer one more transformation, above the others in the stack; :meth:`undo` takes it from the offer.

        Raises
        ------
        TypeError
            If it is no transformation.
        ValueError
            If the session offers it already, or another of the same name.
        """
        self._go_to(self._with(pass_, "pass_"))

    @_in_turn
    def remove(self, pass_: PassOrName) -> None:
        """Offer a transformation no longer; if it is on, it is switched off. :meth:`undo` brings it back.

        Raises
        ------
        ValueError
            If the session does not offer it.
        TransformationError
            If one above it raises on the module without it. The session is as it was.
        """
        self._go_to(self._switches.without(self._find(pass_)))

    @_in_turn
    def move(self, pass_: PassOrName, place: int) -> None:
        """Give a transformation another place in the stack; what is on is applied in the new order.

        Parameters
        ----------
        pass_
            The transformation.
        place
            Its index among :attr:`passes` afterwards; 0 is the lowest, which is applied first.

        Raises
        ------
        TypeError
            If ``place`` is no integer.
        ValueError
            If there is no such place, or the session does not offer the transformation.
        TransformationError
            If one of those that are on raises in the new order. The session is as it was.

        Examples
        --------
        >>> from fxlab import ChangeTrueDivToMulByInverse, RemoveDeadCode
        >>> traced = torch.fx.symbolic_trace(lambda x: x / 2)
        >>> session = Session(traced, passes=[ChangeTrueDivToMulByInverse(), RemoveDeadCode()])
        >>> session.move("remove-dead-code", 0)
        >>> [pass_.name for pass_ in session.passes]
        ['remove-dead-code', 'change-true-div-to-mul-by-inverse']
        """
        name, offered_names = self._find(pass_), self._switches.offered
        if type(place) is not int:
            raise TypeError(f"place: expected an int, got {_described(place)}")
        if not 0 <= place < len(offered_names):
            raise ValueError(f"place: expected an index from 0 to {len(offered_names) - 1}, got {place}.")
        order = [other for other in offered_names if other != name]
        order.insert(place, name)
        self._go_to(replace(self._switches, offered=tuple(order)))

    def find(self, pass_: PassOrName) -> Transformation:
        """Return a transformation on offer, with its exclusions.

        Raises
        ------
        ValueError
            If the session does not offer it.
        """
        return self._limited(self._find(pass_))

    def is_on(self, pass_: PassOrName) -> bool:
        """Tell whether a transformation is on."""
        return self._find(pass_) in self._switches.on

    @_in_turn
    def apply(self, pass_: PassOrName) -> None:
        """Switch a transformation on, in its place in the stack. Nothing happens if it is on.

        Raises
        ------
        TransformationError
            If it, or one above it that has to be applied anew, raises. The session is as it was.
        """
        self._go_to(replace(self._switches, on=self._switches.on | {self._find(pass_)}))

    @_in_turn
    def preview(self, pass_: PassOrName) -> GraphModule:
        """Return the module that there would be if a transformation was switched on; nothing is switched.

        It is made in the same way and shares the tensors of the present one: a module to look at.

        Raises
        ------
        TransformationError
            If it, or one above it that has to be applied anew, raises.

        Examples
        --------
        >>> from fxlab import ChangeTrueDivToMulByInverse
        >>> traced = torch.fx.symbolic_trace(lambda x: x / 2)
        >>> session = Session(traced, passes=[ChangeTrueDivToMulByInverse()])
        >>> [str(node.target) for node in session.preview("change-true-div-to-mul-by-inverse").graph.nodes]
        ['x', '<built-in function mul>', 'output']
        >>> session.graph_module is session.original, session.can_undo
        (True, False)
        """
        stack = self._stack_of(replace(self._switches, on=self._switches.on | {self._find(pass_)}))
        return self._built(stack)[stack]

    @_in_turn
    def revert(self, pass_: PassOrName) -> None:
        """Switch a transformation off; those above it are applied anew. Nothing happens if it is off.

        Raises
        ------
        TransformationError
            If one above it raises on the module without it. The session is as it was.
        """
        self._go_to(replace(self._switches, on=self._switches.on - {self._find(pass_)}))

    @_in_turn
    def exclude(self, pass_: PassOrName, *nodes: Node | str) -> None:
        """Exclude some candidates of a transformation; if it is on, they are reverted.

        The transformation keeps its name and its place. Exclusions are remembered while it is off, and are
        ended by :meth:`include`, or by :meth:`undo` as every change.

        Parameters
        ----------
        pass_
            The transformation.
        *nodes
            Nodes of the present model that it has changed, or its candidates, as :meth:`explain` names them.
            What was changed together is excluded together.

        Raises
        ------
        TypeError
            If it does not tell its candidates apart; see :meth:`~fxlab.Transformation.exclude`.
        ValueError
            If one of the nodes is neither.
        TransformationError
            If a transformation above it raises on the module without it. The session is as it was.

        Examples
        --------
        >>> from fxlab import ChangeTrueDivToMulByInverse
        >>> traced = torch.fx.symbolic_trace(lambda x: (x / 2) + (x / 3))
        >>> session = Session(traced, passes=[ChangeTrueDivToMulByInverse()])
        >>> session.apply("change-true-div-to-mul-by-inverse")
        >>> session.exclude("change-true-div-to-mul-by-inverse", "truediv")
        >>> session.transformed_nodes().index.tolist()
        ['truediv_1']
        """
        name = self._find(pass_)
        found = self._candidates_of(name)
        chosen = {(name, candidate) for node in sorted(node_names(nodes)) for candidate in found(node)}
        self._go_to(replace(self._switches, excluded=self._switches.excluded | chosen))

    @_in_turn
    def include(self, pass_: PassOrName, *nodes: Node | str) -> None:
        """Include candidates again that :meth:`exclude` has excluded.

        Raises
        ------
        ValueError
            If one of the nodes is of no excluded candidate.
        TransformationError
            If it, or one above it, raises. The session is as it was.
        """
        name, names = self._find(pass_), node_names(nodes)
        excluded = self._switches.excluded_from(name)
        known = [node for candidate in excluded for node in candidate]
        unknown = sorted(names - set(known))
        if unknown:
            raise ValueError(f"{name} does not exclude {unknown[0]!r}. It excludes: {listed(known)}.")
        again = {(name, candidate) for candidate in excluded if not names.isdisjoint(candidate)}
        self._go_to(replace(self._switches, excluded=self._switches.excluded - again))

    def excluded(self, pass_: PassOrName) -> tuple[tuple[str, ...], ...]:
        """Return the excluded candidates of a transformation, each by the names of its nodes."""
        return self._switches.excluded_from(self._find(pass_))

    @_in_turn
    def toggle(self, pass_: PassOrName) -> None:
        """Switch a transformation on if it is off, and off if it is on."""
        if self.is_on(pass_):
            self.revert(pass_)
        else:
            self.apply(pass_)

    @_in_turn
    def revert_all(self) -> None:
        """Switch everything off; this can be undone."""
        self._go_to(replace(self._switches, on=frozenset()))

    @_in_turn
    def undo(self) -> None:
        """Take the last change back. Raises ``ValueError`` if there is none."""
        if not self.can_undo:
            raise ValueError("There is nothing to undo: no transformation was switched yet.")
        self._settle(self._history.at(self._history.position - 1))

    @_in_turn
    def redo(self) -> None:
        """Make the change again that was last taken back. Raises ``ValueError`` if there is none."""
        if not self.can_redo:
            raise ValueError("There is nothing to redo: no change was undone.")
        self._settle(self._history.at(self._history.position + 1))

    @_in_turn
    def refresh(self) -> None:
        """Build all stages anew from the original.

        A session does so by itself when it sees that the original has changed: when it is used next after
        ``load_state_dict``, a step of an optimizer, another write in place, a parameter that was replaced or
        moved, or a change of mode. Torch does not count what is written through ``parameter.data`` or a
        NumPy array that shares memory; after such a write, call this.

        Examples
        --------
        >>> from torch import nn
        >>> session = Session(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2))))
        >>> session.apply("fuse-bias-in-linear")
        >>> _ = session.original.get_submodule("0").bias.data.fill_(3)
        >>> session.refresh()
        >>> session.graph_module.get_submodule("0").weight[:, -1].tolist()
        [3.0, 3.0]
        """
        self._forget_stages()
        self._is_changed = True

    @_in_turn
    def compare_outputs(self) -> "pd.DataFrame":
        """Measure how far the outputs are from the original's, as :func:`compare_outputs` does.

        Whether that matters is what :meth:`verdict` tells.

        Raises
        ------
        ValueError
            If the session has no inputs, or its model no weights.
        """
        return self._compared("Outputs cannot be compared")[0].copy()

    @_in_turn
    def verdict(self, *, variants: Variants = False, gradients: bool = False) -> Verdict:
        """Tell whether the present model is the original up to rounding, as :func:`verdict` does.

        Parameters
        ----------
        variants
            Other inputs to compare on as well: ``True`` for those that :func:`input_variants` makes, a
            mapping of inputs by name, or a list or iterator of inputs. The worst decides.
        gradients
            Whether to compare gradients of inputs and parameters as well.

        Raises
        ------
        ValueError
            If the session has no inputs, or its model no weights or random numbers.
        """
        failure = "There is no verdict"
        if variants is not False or gradients:
            inputs = self._inputs_to_run(failure)
            asked = Reference(self.original, inputs, variants=variants, gradients=gradients)
            if variants is not False:
                return asked.verdict(self.graph_module)
            key = ("verdict with gradients", self._stack)
            return self._remembered(key, lambda: asked.verdict(self.graph_module))
        judge = self._reference_to(failure).verdict
        return self._remembered(("verdict", self._stack), lambda: judge(self.graph_module))

    @_in_turn
    def known_verdict(self) -> Verdict | None:
        """Return the verdict if there is one already, or if it takes no run in float64; ``None`` if not.

        Raises
        ------
        ValueError
            As for :meth:`compare_outputs`.
        """
        known: Verdict | None = self._results.get(("verdict", self._stack))
        return known or self._compared("Outputs cannot be compared")[1]

    @_in_turn
    def transformed_nodes(self, pass_: PassOrName | None = None) -> "pd.DataFrame":
        """List the nodes of the present model that a transformation, or any, has changed.

        Beside each stands what the original has in its place; see :func:`transformed_nodes`.
        """
        found = None if pass_ is None else self._limited(self._find(pass_))
        key = ("transformed_nodes", self._stack, found and found.name)
        return self._remembered(
            key, lambda: transformed_nodes(self.graph_module, found, original=self.original)
        ).copy()

    @_in_turn
    def explain(self, pass_: PassOrName) -> "pd.DataFrame":
        """Tell what a transformation changes, and what not and why, on the stage that it is applied to."""
        name = self._find(pass_)
        below = self._stack_of(self._switches, up_to=name)
        key = ("explain", below, name, self._switches.excluded_from(name))
        return self._remembered(key, lambda: self._limited(name).explain(self._present[below])).copy()

    def to_python(self) -> str:
        """Return code that makes a session of ``model`` and ``inputs`` with what is on here.

        Examples
        --------
        >>> from torch import nn
        >>> from fxlab import RemoveDeadCode
        >>> session = Session(torch.fx.symbolic_trace(nn.ReLU()), passes=[RemoveDeadCode()])
        >>> session.apply("remove-dead-code")
        >>> print(session.to_python())
        # model and inputs are yours: what the session was made of.
        import fxlab
        <BLANKLINE>
        passes = [
            fxlab.RemoveDeadCode(),
        ]
        session = fxlab.Session(model, inputs, passes=passes)
        for transformation in passes:
            session.apply(transformation)
        <BLANKLINE>
        """
        return stack_code(self.applied)

    def on_change(self, callback: Callable[["Session"], None]) -> Callable[[], None]:
        """Call a function with the session after each change; returns the function that ends this.

        It is called in the thread that made the change, when the change is complete. If it raises, the change
        stays, the other functions are called, and the error becomes a ``RuntimeWarning``.
        """
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

    def _reference_to(self, failure: str) -> Reference:
        inputs = self._inputs_to_run(failure)
        if self._reference is None:
            self._reference = Reference(self.original, inputs)
        return self._reference

    def _compared(self, failure: str) -> "tuple[pd.DataFrame, Verdict | None]":
        """Return how far the outputs are apart, and the verdict if bits tell it."""
        reference = self._reference_to(failure)

        def compare() -> "tuple[pd.DataFrame, Verdict | None]":
            comparison = reference.compare(self.graph_module)
            return comparison.table, comparison.known_verdict()

        return self._remembered(("outputs", self._stack), compare)

    @property
    def _switches(self) -> _Switches:
        return self._history.now

    @property
    def _stack(self) -> _Stack:
        return self._stack_of(self._switches)

    def _stack_of(self, switches: _Switches, *, up_to: str | None = None) -> _Stack:
        names = itertools.takewhile(lambda name: name != up_to, switches.offered)
        return tuple((name, switches.excluded_from(name)) for name in names if name in switches.on)

    def _limited(self, name: str, excluded: tuple[_Candidate, ...] | None = None) -> Transformation:
        """Return a transformation with its exclusions, which are those of now unless they are given."""
        candidates = self._switches.excluded_from(name) if excluded is None else excluded
        nodes = [node for candidate in candidates for node in candidate]
        # What is a candidate depends on what is on below, so that there may be none of a name now.
        return self._passes[name].exclude(*nodes, missing_ok=True) if nodes else self._passes[name]

    def _candidates_of(self, name: str) -> Callable[[str], set[_Candidate]]:
        """Return a function that finds candidates by what they have become, or by what they are."""
        pass_ = self._limited(name)
        if not isinstance(pass_, RewritePass):
            raise not_limitable(pass_, name)
        changed = {node.name for node in pass_.get_transformed_nodes(self.graph_module)}
        rewrites = pass_.rewrites(self.graph_module)
        below = self._present[self._stack_of(self._switches, up_to=name)]
        candidates = {*pass_.candidates(below), *(record.candidate for record in rewrites)}

        def found(node: str) -> set[_Candidate]:
            if node in changed:
                return {record.candidate for record in rewrites if node in record.marked}
            chosen = {candidate for candidate in candidates if node in candidate}
            if not chosen:
                known = sorted({other for candidate in candidates for other in candidate})
                raise ValueError(
                    f"{node!r} is neither a node that {name} has changed nor a candidate of it. "
                    f"Its candidates are: {listed(known)}."
                )
            return chosen

        return found

    def _with(self, pass_: Transformation, argument: str = "passes") -> _Switches:
        """Return the switches with one more transformation on offer, which the session then knows."""
        if not isinstance(pass_, Transformation):
            raise TypeError(
                f"{argument}: expected instances of fxlab.Transformation, got {_described(pass_)}"
            )
        switches, name = self._switches, pass_.name
        # What is offered no longer is known as long as undo can bring it back.
        past = self._history.entries[: self._history.position + 1]
        kept = {other for entry in past for other in entry.offered}
        others = {self._passes[other].signature for other in switches.offered}
        known = self._passes[name].signature if name in kept else pass_.signature
        if name in switches.offered or pass_.signature in others or known != pass_.signature:
            raise ValueError(
                f"passes: {name!r} is offered already, or was before. "
                "Give a pass with other arguments a name of its own: pass_.named('other')."
            )
        if name not in kept:
            if name in self._passes:
                self._results.clear()
            self._passes[name] = pass_
        return replace(switches, offered=(*switches.offered, name))

    def _find(self, pass_: PassOrName) -> str:
        """Return the name of a transformation that is on offer."""
        if not isinstance(pass_, Transformation | str):
            raise TypeError(
                f"pass_: expected a Transformation, its name or its signature, got {_described(pass_)}"
            )
        offered_names = self._switches.offered
        signature = pass_ if isinstance(pass_, str) else pass_.signature
        for name in offered_names:
            if signature in (self._passes[name].signature, self._limited(name).signature):
                return name
        if isinstance(pass_, str):
            return find_name(pass_, offered_names)
        raise ValueError(
            f"pass_: the session does not offer this {pass_.name!r}. It offers: {', '.join(offered_names)}."
        )

    def _go_to(self, switches: _Switches) -> None:
        """Make a new entry of the history."""
        if switches != self._switches:
            self._settle(self._history.then(switches))

    def _settle(self, history: _History) -> None:
        """Build the stages of a history's entry and let it hold, or leave all as it was."""
        stages = self._built(self._stack_of(history.now))
        results = {key: result for key, result in self._results.items() if key[1] in stages}
        with InterruptsHeld():
            self._history, self._stages, self._results = history, stages, results
            self._is_changed = True
        self._note_state()

    @property
    def _present(self) -> dict[_Stack, GraphModule]:
        """The stages of what is on; those that a change of the original has made stale are built anew."""
        if self._stack not in self._stages:
            self._stages = self._built(self._stack)
            self._note_state()
        return self._stages

    def _look_for_changes(self) -> None:
        """Forget all that was computed from tensors of the original which others have changed since."""
        if not self._state.changed():
            return
        lost = self._top_state.written(apart_from=self._state)
        self._forget_stages()
        self._is_changed = True
        if lost:
            warnings.warn(
                f"The original has changed, so the session builds {len(lost)} weights anew that passes have "
                f"made of it. What was written to them since is lost to the session: {listed(lost)}. "
                "Modules that it gave before are as they were.",
                RuntimeWarning,
                stacklevel=4,
            )

    def _forget_stages(self) -> None:
        self._stages, self._results, self._reference = {(): self.original}, {}, None
        self._note_state()

    def _note_state(self) -> None:
        self._state = ModuleState(self.original)
        self._top_state = ModuleState(self._stages.get(self._stack, self.original))

    def _built(self, stack: _Stack) -> dict[_Stack, GraphModule]:
        """Return the stages of a stack, those that exist and those still to be made."""
        stages: dict[_Stack, GraphModule] = {}
        with sources_bounded() as kept:
            for prefix in _prefixes(stack):
                stage = self._stages.get(prefix) or self._applied_to(stages[prefix[:-1]], *prefix[-1])
                stages[prefix] = stage
                kept.append(stage)
        return stages

    def _applied_to(self, below: GraphModule, name: str, excluded: tuple[_Candidate, ...]) -> GraphModule:
        pass_ = self._limited(name, excluded)
        try:
            return changed_copy(below, pass_, writes_tensors=not pass_.copies_on_write)
        except Exception as error:
            raise TransformationError(pass_, error) from error

    def _remembered(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Return what was made for a key; it is forgotten with the stage that the key names second."""
        if key not in self._results:
            self._results[key] = make()
            self._state = ModuleState(self.original)  # a run writes buffers, and puts them back
        result: T = self._results[key]
        return result

    def _notify(self) -> None:
        """Tell all listeners; one that raises keeps neither the change nor the other listeners from it."""
        errors: list[Exception] = []
        for listener in tuple(self._listeners):
            try:
                listener(self)
            except Exception as error:
                errors.append(error)
        for raised in errors:
            warnings.warn(
                "The session has changed, but a function given to on_change raised "
                f"{type(raised).__name__}: {raised}",
                RuntimeWarning,
                stacklevel=4,
            )


def _traced(model: torch.nn.Module, inputs: Inputs | None) -> tuple[GraphModule, Inputs | None]:
    if isinstance(model, GraphModule):
        if inputs is not None:
            call_arguments(inputs)
        return model, inputs
    from fxlab.tracing import example_inputs, symbolic_trace

    known: Inputs = example_inputs(model) if inputs is None else inputs
    return symbolic_trace(model, known), known


def _prefixes(stack: _Stack) -> Iterable[_Stack]:
    return (stack[:length] for length in range(len(stack) + 1))


def _described(value: object) -> str:
    return f"the class {value.__name__} (call it)" if isinstance(value, type) else type(value).__name__
