"""The stack of passes over one graph, each with a switch, and its stages: the base of a session."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from torch.fx import GraphModule, Node

from fxlab.base.checks import describe
from fxlab.base.interrupts import InterruptsHeld
from fxlab.base.words import all_listed
from fxlab.operators.node_info import nodes_at
from fxlab.session.comparisons import Comparisons
from fxlab.session.history import Candidate, History, Stack, Switches
from fxlab.session.pass_catalog import PassCatalog, candidates_by_node
from fxlab.session.rewrite_steps import RewriteStep, rewrite_steps
from fxlab.session.session_lock import SessionLock, changes_stack, locked
from fxlab.session.stages import Stages, prefixes
from fxlab.transformations import CandidatePass, Transformation
from fxlab.transformations.candidate_filter import node_names, not_limitable
from fxlab.transformations.registry import Pass, Passes, as_pass

if TYPE_CHECKING:
    from fxlab.models.running.arguments import Inputs
    from fxlab.session.compiled import Compiled
    from fxlab.validation.evaluation.judge_batch import Metric

S = TypeVar("S", bound="PassStack")


class PassStack:
    """The stack of a session, its history and its stages: the part of a session with the switches.

    ``original``: the lowest stage, which is never written. ``history``: which are on at the beginning.
    """

    _inputs: Inputs | None
    _data: tuple[Iterable[Any], Mapping[str, Metric] | None] | None = None
    """The data set that it was judged on last, and the metrics."""
    _is_comparison = False
    """Whether its stages are models of several origins."""

    def _as_compiled(self) -> Compiled | None:
        """Return the session itself if a compiler makes its stages, so that it has more members."""
        return None

    def __init__(self, original: GraphModule, offer: PassCatalog, history: History) -> None:
        self._offer, self._history = offer, history
        self._begin_at(original)
        self._turns = SessionLock(self, self._look_for_changes)

    def _begin_at(self, original: GraphModule) -> None:
        """Take a graph for the lowest stage."""
        self.original = original
        self._stages = Stages(original, self._offer.limited)
        self._comparisons = Comparisons(original, self._stages.note_original)

    @property
    @locked
    def graph_module(self) -> GraphModule:
        """The model with all transformations that are on."""
        return self._stages.of(self._stack)[self._stack]

    @property
    def passes(self) -> Passes:
        """The transformations on offer, lowest in the stack first, each with its exclusions."""
        return Passes(self._limited(name) for name in self._switches.offered)

    @property
    def applied(self) -> Passes:
        """The transformations that are on, lowest in the stack first, each with its exclusions.

        Names are found in it: ``"merge-linears" in session.applied``, ``session.applied.names``.
        """
        return Passes(self._limited(name) for name, _ in self._stack)

    @property
    @locked
    def stages(self) -> tuple[GraphModule, ...]:
        """The original, and the module after each transformation that is on."""
        stages = self._stages.of(self._stack)
        return tuple(stages[prefix] for prefix in prefixes(self._stack))

    @property
    def history(self) -> tuple[tuple[str, ...], ...]:
        """The names of passes that were on at first and after each change, up to the present one."""
        return tuple(tuple(name for name, _ in entry.stack()) for entry in self._history.past)

    @changes_stack
    def add(self: S, pass_: Pass) -> None:
        """Offer one more transformation, above the others in the stack; :meth:`undo` takes it from the offer.

        One whose class or function was redefined replaces the former one of its name; if that is on, the new
        one is applied. Raises TypeError if it is no transformation; ValueError if the session offers it
        already, or another of the same name.
        """
        pass_ = as_pass(pass_, "pass_")
        if self._offer.is_defined_anew(pass_):
            self._exchange(pass_)
        if not any(pass_ is known for known in self._offered):
            self._go_to(self._offer.add(pass_, self._history, "pass_"))

    def _exchange(self, pass_: Transformation) -> None:
        """Replace the transformation of the same name, or change nothing."""
        former = self._offer.exchange(pass_)
        try:
            stages = self._stages.anew(self._stack)
        except BaseException:
            self._offer.exchange(former)
            raise
        self._stages.keep(stages)
        self._stages.note_state()
        self._comparisons.forget()
        self._turns.is_changed = True

    @property
    def _offered(self) -> list[Transformation]:
        return [self._offer.limited(name, ()) for name in self._switches.offered]

    @changes_stack
    def remove(self: S, pass_: Pass) -> None:
        """Remove a transformation from the offer; if it is on, it is switched off. :meth:`undo` restores it.

        Raises
        ------
        ValueError
            If the session does not offer it.
        TransformationError
            If one above it raises on the module without it. The session is as it was.
        """
        self._go_to(self._switches.without(self._find(pass_)))

    @changes_stack
    def move(self: S, pass_: Pass, place: int) -> None:
        """Move a transformation in the stack; passes that are on are applied in the new order.

        ``place``: its index among :attr:`passes` afterwards; 0 is the lowest, which is applied first.

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
        >>> import torch
        >>> from fxlab import ChangeTrueDivToMulByInverse, RemoveDeadCode, Session
        >>> traced = torch.fx.symbolic_trace(lambda x: x / 2)
        >>> session = Session(traced, passes=[ChangeTrueDivToMulByInverse(), RemoveDeadCode()])
        >>> _ = session.move("remove-dead-code", 0)
        >>> [pass_.name for pass_ in session.passes]
        ['remove-dead-code', 'change-true-div-to-mul-by-inverse']
        """
        name, offered_names = self._find(pass_), self._switches.offered
        if type(place) is not int:
            raise TypeError(f"place: expected an int, got {describe(place)}")
        if not 0 <= place < len(offered_names):
            raise ValueError(f"place: expected an index from 0 to {len(offered_names) - 1}, got {place}.")
        order = [other for other in offered_names if other != name]
        order.insert(place, name)
        self._go_to(replace(self._switches, offered=tuple(order)))

    @changes_stack
    def apply(
        self: S, *passes: Pass, only: Iterable[Node | str] = (), exclude: Iterable[Node | str] = ()
    ) -> None:
        """Switch transformations on, each in its place in the stack. One that is on stays.

        Parameters
        ----------
        *passes
            Transformations, exact names of those on offer, or functions of a graph module. One that is not on
            offer, or was redefined, is added first, as by :meth:`add`.
        only, exclude
            Nodes, as :meth:`exclude` takes them: the candidates to rewrite, or not to.

        Raises
        ------
        TypeError
            If one is none of these.
        ValueError
            If the session does not offer one of a name.
        TransformationError
            If one, or one above it that has to be applied again, raises. Those that were added stay on offer.

        Examples
        --------
        >>> import torch
        >>> from fxlab import Session
        >>> session = Session(torch.fx.symbolic_trace(torch.nn.Linear(2, 2)))
        >>> def keep(graph_module):
        ...     pass
        >>> _ = session.apply("merge-linears", keep)
        >>> session.applied.names
        ('merge-linears', 'keep')
        """
        if not passes:
            raise TypeError("passes: expected a pass to switch on, got none.")
        names = []
        for each in passes:
            pass_ = each if isinstance(each, str) else as_pass(each, "passes")
            if not isinstance(pass_, str) and not self._is_offered(pass_):
                self.add(pass_)
            names.append(self._find(pass_))
        left = {each for name in names for each in self._left([name], only, exclude)}
        on, excluded = self._switches.on.union(names), self._switches.excluded | left
        self._go_to(replace(self._switches, on=on, excluded=excluded))

    def _left(self, names: list[str], only: Any, exclude: Any) -> set[tuple[str, Candidate]]:
        """Return the candidates of transformations that a choice of nodes leaves out."""
        chosen = [(each,) if isinstance(each, Node | str) else each for each in (only, exclude)]
        if not any(chosen):
            return set()
        meant, left = (self._candidates(names, each) for each in chosen)
        for name in names if chosen[0] else ():
            pass_, below = self._limited(name), self._below(name)
            if isinstance(pass_, CandidatePass):
                left |= {(name, candidate) for candidate in pass_.candidates(below)} - meant
        return left

    def _below(self, name: str) -> GraphModule:
        """Return the stage that a transformation is, or would be, applied to."""
        return self._stages.of(self._stack)[self._switches.stack(below=name)]

    def _candidates(self, names: list[str], nodes: Iterable[Any]) -> set[tuple[str, Candidate]]:
        """Return the candidates that nodes belong to; each node is known to one of the transformations."""
        known = {
            name: candidates_by_node(self._limited(name), self._below(name), self.graph_module)
            for name in names
        }
        chosen: set[tuple[str, Candidate]] = set()
        for node in sorted(node_names(nodes)):
            errors: list[ValueError] = []
            for name, at in known.items():
                try:
                    chosen |= {(name, candidate) for candidate in at(node)}
                except ValueError as error:
                    errors.append(error)
            if len(errors) == len(known):
                raise errors[0]
        return chosen

    def _is_offered(self, pass_: Transformation) -> bool:
        try:
            self._find(pass_)
        except ValueError:
            return False
        return True

    @locked
    def preview(self, pass_: Pass) -> GraphModule:
        """Return the module that there would be if a transformation was switched on; nothing is switched.

        It is made in the same way and shares the tensors of the present one: a module to look at.

        Raises
        ------
        TransformationError
            If it, or one above it that has to be applied again, raises.

        Examples
        --------
        >>> import torch
        >>> from fxlab import ChangeTrueDivToMulByInverse, Session
        >>> traced = torch.fx.symbolic_trace(lambda x: x / 2)
        >>> session = Session(traced, passes=[ChangeTrueDivToMulByInverse()])
        >>> [str(node.target) for node in session.preview("change-true-div-to-mul-by-inverse").graph.nodes]
        ['x', '<built-in function mul>', 'output']
        >>> session.graph_module is session.original, session.history
        (True, ((),))
        """
        stack = replace(self._switches, on=self._switches.on | {self._find(pass_)}).stack()
        return self._stages.built(stack)[stack]

    @changes_stack
    def revert(self: S, *passes: Pass) -> None:
        """Switch transformations off, all if none is named; those above them are applied again.

        One that is off stays. Raises TransformationError if one above raises without it; all is as before.
        """
        off = frozenset(map(self._find, passes)) if passes else self._switches.on
        self._go_to(replace(self._switches, on=self._switches.on - off))

    @changes_stack
    def exclude(self: S, pass_: Pass, *nodes: Node | str) -> None:
        """Exclude some candidates of a transformation; if it is on, they are reverted.

        The transformation keeps its name and its place. Exclusions are remembered while it is off;
        :meth:`include` ends them, and :meth:`undo` like every change.

        Parameters
        ----------
        pass_
            The transformation.
        *nodes
            Nodes of the present model that it has changed, or its candidates, as :meth:`explain` names them;
            or paths of modules with such nodes. Nodes that were changed together are excluded together.

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
        >>> import torch
        >>> from fxlab import ChangeTrueDivToMulByInverse, Session
        >>> traced = torch.fx.symbolic_trace(lambda x: (x / 2) + (x / 3))
        >>> session = Session(traced, passes=[ChangeTrueDivToMulByInverse()])
        >>> _ = session.apply("change-true-div-to-mul-by-inverse")
        >>> _ = session.exclude("change-true-div-to-mul-by-inverse", "truediv")
        >>> [str(node.target) for node in session.graph_module.graph.nodes if node.op == "call_function"]
        ['<built-in function truediv>', '<built-in function mul>', '<built-in function add>']
        """
        chosen = self._candidates([self._find(pass_)], nodes)
        self._go_to(replace(self._switches, excluded=self._switches.excluded | chosen))

    @changes_stack
    def include(self: S, pass_: Pass, *nodes: Node | str) -> None:
        """End exclusions of candidates by :meth:`exclude`, by nodes or paths of modules.

        Raises
        ------
        ValueError
            If one of the nodes belongs to no excluded candidate.
        TransformationError
            If it, or one above it, raises. The session is as it was.
        """
        name, asked = self._find(pass_), sorted(node_names(nodes))
        excluded = {(name, each) for each in self._switches.excluded_from(name)}
        known = sorted(node for _, candidate in excluded for node in candidate)
        graph = self._below(name).graph
        names = set[str]()
        for each in asked:
            inside = {each} if each in known else {node.name for node in nodes_at(graph, each)}
            if inside.isdisjoint(known):
                raise ValueError(f"{name} does not exclude {each!r}. It excludes: {all_listed(known)}.")
            names |= inside
        again = {each for each in excluded if not names.isdisjoint(each[1])}
        self._go_to(replace(self._switches, excluded=self._switches.excluded - again))

    @locked
    def rewrites(self, pass_: Pass) -> list[RewriteStep]:
        """Return the rewrites of a transformation that is on, in their order, and its exclusions.

        Raises
        ------
        TypeError
            If it does not tell its candidates apart.
        ValueError
            If it is off.

        Examples
        --------
        >>> import torch
        >>> from fxlab import ChangeTrueDivToMulByInverse, Session
        >>> traced = torch.fx.symbolic_trace(lambda x: (x / 2) + (x / 4))
        >>> session = Session(traced, passes=[ChangeTrueDivToMulByInverse()])
        >>> _ = session.apply("change-true-div-to-mul-by-inverse")
        >>> for step in session.rewrites("change-true-div-to-mul-by-inverse"):
        ...     print(*step.before.values(), "->", *step.after.values())
        truediv = operator.truediv(x, 2) -> truediv = operator.mul(x, 0.5)
        truediv_1 = operator.truediv(x, 4) -> truediv_1 = operator.mul(x, 0.25)
        """
        name = self._find(pass_)
        pass_ = self._limited(name)
        if not isinstance(pass_, CandidatePass):
            raise not_limitable(pass_, str(pass_.name))
        if name not in self._switches.on:
            raise ValueError(f"{name} is off: it has rewritten nothing.")
        excluded = self._switches.excluded_from(name)
        stages, lower = self._stages.of(self._stack), self._switches.stack(below=name)
        below, stage = stages[lower], stages[(*lower, (name, excluded))]
        return rewrite_steps(pass_.rewrites(stage), excluded, below, stage)

    @changes_stack
    def apply_up_to(self: S, pass_: Pass, count: int) -> None:
        """Keep the first rewrites of a transformation that is on, and exclude those after them.

        Exclusions at the end of :meth:`rewrites` are lifted as far as ``count`` reaches; other exclusions
        stay. ``count``: the number of entries of :meth:`rewrites` to keep. Raises TypeError if it does not
        tell its candidates apart, or ``count`` is no integer; ValueError if it is off, or has fewer rewrites;
        TransformationError if it, or one above it, raises. The session is as it was.
        """
        name, steps = self._find(pass_), self.rewrites(pass_)
        if type(count) is not int:
            raise TypeError(f"count: expected an int, got {describe(count)}.")
        if not 0 <= count <= len(steps):
            raise ValueError(f"count: expected 0 to {len(steps)} rewrites of {name}, got {count}.")
        last = max((place for place, step in enumerate(steps, 1) if not step.is_excluded), default=0)
        again = {(name, step.candidate) for step in steps[last:count]}
        later = {(name, step.candidate) for step in steps[count:]}
        self._go_to(replace(self._switches, excluded=(self._switches.excluded - again) | later))

    @changes_stack
    def undo(self: S) -> None:
        """Undo the last change. Raises ``ValueError`` if there is none."""
        if not self._history.position:
            raise ValueError("There is nothing to undo: no transformation was switched yet.")
        self._settle(self._history.at(self._history.position - 1))

    @changes_stack
    def redo(self: S) -> None:
        """Redo the change that was last undone. Raises ``ValueError`` if there is none."""
        if self._history.position + 1 == len(self._history.entries):
            raise ValueError("There is nothing to redo: no change was undone.")
        self._settle(self._history.at(self._history.position + 1))

    @changes_stack
    def refresh(self: S) -> None:
        """Rebuild all stages from the original.

        A session does so by itself on its next use after the original has changed: after ``load_state_dict``,
        a step of an optimizer, another write in place, a parameter that was replaced or moved, or a change of
        mode. Call it after writes that torch does not count: by ``parameter.data`` or a NumPy array.

        Examples
        --------
        >>> import torch
        >>> from torch import nn
        >>> from fxlab import Session
        >>> session = Session(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2))))
        >>> _ = session.apply("fuse-bias-in-linear")
        >>> _ = session.original.get_submodule("0").bias.data.fill_(3)
        >>> _ = session.refresh()
        >>> session.graph_module.get_submodule("0").weight[:, -1].tolist()
        [3.0, 3.0]
        """
        self._forget()

    @property
    def _switches(self) -> Switches:
        return self._history.now

    @property
    def _stack(self) -> Stack:
        return self._switches.stack()

    def _find(self, pass_: Pass) -> str:
        return self._offer.find(pass_, self._switches)

    def _found(self, pass_: Pass) -> Transformation:
        return self._limited(self._find(pass_))

    def _limited(self, name: str) -> Transformation:
        return self._offer.limited(name, self._switches.excluded_from(name))

    def _go_to(self, switches: Switches) -> None:
        """Make a new entry of the history."""
        if switches != self._switches:
            self._settle(self._history.then(switches))

    @locked
    def _begin_with(self, switches: Switches) -> None:
        """Begin with choices that were made elsewhere."""
        self._settle(History((switches,)))

    def _settle(self, history: History) -> None:
        """Build the stages of a history's entry and make it the present one, or change nothing."""
        # First, so that a pass that raises leaves the session as it was.
        stages = self._stages.built(history.now.stack())
        # Ctrl-C in between would leave a history with the stages of another entry.
        with InterruptsHeld():
            self._history = history
            self._stages.keep(stages)
            self._comparisons.keep(stages)
            self._turns.is_changed = True
        self._stages.note_state()

    def _look_for_changes(self) -> None:
        """Forget results computed from tensors of the original that others have changed since."""
        if not self._stages.are_stale():
            return
        lost = self._stages.written()
        self._forget()
        if lost:
            warnings.warn(
                f"The original has changed, so the session builds {len(lost)} weights anew that passes have "
                f"made of it. What was written to them since is lost to the session: {all_listed(lost)}. "
                "Modules that it gave before are as they were.",
                RuntimeWarning,
                stacklevel=4,
            )

    def _forget(self) -> None:
        self._stages.forget()
        self._comparisons.forget()
        self._turns.is_changed = True
