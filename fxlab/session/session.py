"""One traced model and its switchable stack of transformations, without a screen."""

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.fx import GraphModule, Node

from fxlab.checks import described, items_of
from fxlab.interrupts import InterruptsHeld
from fxlab.models.graph_module import check_lints
from fxlab.models.running import Inputs, call_arguments
from fxlab.models.weight_files import are_in_files, with_weights
from fxlab.session import saved_file
from fxlab.session.code import stack_code
from fxlab.session.comparisons import Comparisons
from fxlab.session.history import History, Stack, Switches
from fxlab.session.offer import Offer, PassOrName, candidates_by_node
from fxlab.session.stages import Stages, prefixes
from fxlab.session.turns import Turns, in_turn
from fxlab.tracing.sources import ModelLike, Source, source_of
from fxlab.transformations import Transformation, offered
from fxlab.transformations.candidate_filter import listed, node_names
from fxlab.validation import (
    Changes,
    Evaluation,
    Reference,
    Variants,
    Verdict,
    changes_made,
    evaluate,
    transformed_nodes,
)
from fxlab.validation.evaluation.agreement import Metric

if TYPE_CHECKING:
    import pandas as pd


class Session:
    """A traced model and transformations that are switched on and off, in any order and exactly.

    Each transformation that is on works on a copy of the stage below it, which shares that stage's tensors.
    The original is never touched, so whatever a transformation does or raises, switching it off gives back
    the very same module and parameters.

    Parameters
    ----------
    model
        A module, which is traced with :func:`fxlab.symbolic_trace`; or what is a graph already and taken
        as it is: a graph module of any kind, a ``torch.export.ExportedProgram``, the path of one that
        ``torch.export.save`` wrote (``.pt2``), or a graph of a :class:`fxlab.Capture`.
    inputs
        What to trace and to compare outputs with: keyword arguments (a mapping), positional arguments (a
        tuple) or one tensor. Left out, they are those that a program was exported with or a graph
        captured with; for a model of transformers they are made from its configuration.
    passes
        The transformations on offer, lowest in the stack first. If left out, all that
        :func:`fxlab.transformations.offered` returns.
    weights
        For a model on the meta device: a folder of safetensors files (``model.safetensors``, or shards with
        ``model.safetensors.index.json``) or one such file. The weights are named, converted and tied as
        ``from_pretrained`` does it. Each is read when a node uses it and dropped after it, so is each that a
        pass makes of them; the graph itself needs none of them.

    Raises
    ------
    TypeError
        If ``model`` is none of these, one of ``passes`` no transformation or ``weights`` no path.
    ValueError
        If two of ``passes`` are the same, or a file is broken or could run code when it is loaded; or if
        a weight or shard is missing, or is of another shape or dtype than the model's.

    Examples
    --------
    >>> import torch
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
        model: ModelLike,
        inputs: Inputs | None = None,
        *,
        passes: Iterable[Transformation] | None = None,
        weights: str | os.PathLike[str] | None = None,
    ) -> None:
        source = source_of(model)
        self._offer = Offer()
        self._history = History()
        given = offered() if passes is None else items_of(passes, "passes", "transformations")
        for pass_ in given:
            self._history = History((self._offer.add(pass_, self._history, "passes"),))
        # A graph taken as it is has no model; a program or a file stands for its own graph.
        self._model = None if isinstance(source.module, GraphModule) else source.module
        self.original, self._inputs = _traced(source, inputs)
        self._data: tuple[Iterable[Any], Mapping[str, Metric] | None] | None = None
        check_lints(self.original, "model")
        if weights is not None:
            self.original = with_weights(self.original, source.module, weights)
        self._stages = Stages(self.original, self._offer.limited)
        self._comparisons = Comparisons(self.original, self._stages.note_original)
        self._turns = Turns(self, self._look_for_changes)

    @property
    def inputs(self) -> Inputs | None:
        """What outputs are compared on. Set it to look at other inputs, such as those of a worst batch."""
        return self._inputs

    @inputs.setter
    def inputs(self, inputs: Inputs | None) -> None:
        if inputs is not None:
            call_arguments(inputs)
        self._turns.take(lambda: self._look_at(inputs))

    @property
    @in_turn
    def graph_module(self) -> GraphModule:
        """The model with all transformations that are on."""
        return self._stages.of(self._stack)[self._stack]

    @property
    def passes(self) -> tuple[Transformation, ...]:
        """The transformations on offer, lowest in the stack first, each with its exclusions."""
        return tuple(self._limited(name) for name in self._switches.offered)

    @property
    def applied(self) -> tuple[Transformation, ...]:
        """The transformations that are on, lowest in the stack first, each with its exclusions."""
        return tuple(self._limited(name) for name, _ in self._stack)

    @property
    @in_turn
    def stages(self) -> tuple[GraphModule, ...]:
        """The original, and the module after each transformation that is on."""
        stages = self._stages.of(self._stack)
        return tuple(stages[prefix] for prefix in prefixes(self._stack))

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to take back."""
        return self._history.position > 0

    @property
    def can_redo(self) -> bool:
        """Whether there is a change that was taken back."""
        return self._history.position + 1 < len(self._history.entries)

    @in_turn
    def add(self, pass_: Transformation) -> None:
        """Offer one more transformation, above the others in the stack; :meth:`undo` takes it from the offer.

        Raises
        ------
        TypeError
            If it is no transformation.
        ValueError
            If the session offers it already, or another of the same name.
        """
        self._go_to(self._offer.add(pass_, self._history, "pass_"))

    @in_turn
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

    @in_turn
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
        >>> import torch
        >>> from fxlab import ChangeTrueDivToMulByInverse, RemoveDeadCode
        >>> traced = torch.fx.symbolic_trace(lambda x: x / 2)
        >>> session = Session(traced, passes=[ChangeTrueDivToMulByInverse(), RemoveDeadCode()])
        >>> session.move("remove-dead-code", 0)
        >>> [pass_.name for pass_ in session.passes]
        ['remove-dead-code', 'change-true-div-to-mul-by-inverse']
        """
        name, offered_names = self._find(pass_), self._switches.offered
        if type(place) is not int:
            raise TypeError(f"place: expected an int, got {described(place)}")
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

    @in_turn
    def apply(self, pass_: PassOrName) -> None:
        """Switch a transformation on, in its place in the stack. Nothing happens if it is on.

        Raises
        ------
        TransformationError
            If it, or one above it that has to be applied anew, raises. The session is as it was.
        """
        self._go_to(replace(self._switches, on=self._switches.on | {self._find(pass_)}))

    @in_turn
    def preview(self, pass_: PassOrName) -> GraphModule:
        """Return the module that there would be if a transformation was switched on; nothing is switched.

        It is made in the same way and shares the tensors of the present one: a module to look at.

        Raises
        ------
        TransformationError
            If it, or one above it that has to be applied anew, raises.

        Examples
        --------
        >>> import torch
        >>> from fxlab import ChangeTrueDivToMulByInverse
        >>> traced = torch.fx.symbolic_trace(lambda x: x / 2)
        >>> session = Session(traced, passes=[ChangeTrueDivToMulByInverse()])
        >>> [str(node.target) for node in session.preview("change-true-div-to-mul-by-inverse").graph.nodes]
        ['x', '<built-in function mul>', 'output']
        >>> session.graph_module is session.original, session.can_undo
        (True, False)
        """
        stack = replace(self._switches, on=self._switches.on | {self._find(pass_)}).stack()
        return self._stages.built(stack)[stack]

    @in_turn
    def revert(self, pass_: PassOrName) -> None:
        """Switch a transformation off; those above it are applied anew. Nothing happens if it is off.

        Raises
        ------
        TransformationError
            If one above it raises on the module without it. The session is as it was.
        """
        self._go_to(replace(self._switches, on=self._switches.on - {self._find(pass_)}))

    @in_turn
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
        >>> import torch
        >>> from fxlab import ChangeTrueDivToMulByInverse
        >>> traced = torch.fx.symbolic_trace(lambda x: (x / 2) + (x / 3))
        >>> session = Session(traced, passes=[ChangeTrueDivToMulByInverse()])
        >>> session.apply("change-true-div-to-mul-by-inverse")
        >>> session.exclude("change-true-div-to-mul-by-inverse", "truediv")
        >>> session.transformed_nodes().index.tolist()
        ['truediv_1']
        """
        name = self._find(pass_)
        below = self._stages.of(self._stack)[self._switches.stack(below=name)]
        found = candidates_by_node(self._limited(name), below, self.graph_module)
        chosen = {(name, candidate) for node in sorted(node_names(nodes)) for candidate in found(node)}
        self._go_to(replace(self._switches, excluded=self._switches.excluded | chosen))

    @in_turn
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

    @in_turn
    def toggle(self, pass_: PassOrName) -> None:
        """Switch a transformation on if it is off, and off if it is on."""
        if self.is_on(pass_):
            self.revert(pass_)
        else:
            self.apply(pass_)

    @in_turn
    def revert_all(self) -> None:
        """Switch everything off; this can be undone."""
        self._go_to(replace(self._switches, on=frozenset()))

    @in_turn
    def undo(self) -> None:
        """Take the last change back. Raises ``ValueError`` if there is none."""
        if not self.can_undo:
            raise ValueError("There is nothing to undo: no transformation was switched yet.")
        self._settle(self._history.at(self._history.position - 1))

    @in_turn
    def redo(self) -> None:
        """Make the change again that was last taken back. Raises ``ValueError`` if there is none."""
        if not self.can_redo:
            raise ValueError("There is nothing to redo: no change was undone.")
        self._settle(self._history.at(self._history.position + 1))

    @in_turn
    def refresh(self) -> None:
        """Build all stages anew from the original.

        A session does so by itself when it sees that the original has changed: when it is used next after
        ``load_state_dict``, a step of an optimizer, another write in place, a parameter that was replaced or
        moved, or a change of mode. Torch does not count what is written through ``parameter.data`` or a
        NumPy array that shares memory; after such a write, call this.

        Examples
        --------
        >>> import torch
        >>> from torch import nn
        >>> session = Session(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2))))
        >>> session.apply("fuse-bias-in-linear")
        >>> _ = session.original.get_submodule("0").bias.data.fill_(3)
        >>> session.refresh()
        >>> session.graph_module.get_submodule("0").weight[:, -1].tolist()
        [3.0, 3.0]
        """
        self._forget()

    @in_turn
    def compare_outputs(self) -> "pd.DataFrame":
        """Measure how far the outputs are from the original's, as :func:`compare_outputs` does.

        Whether that matters is what :meth:`verdict` tells.

        Raises
        ------
        ValueError
            If the session has no inputs, or its model no weights.
        """
        return self._comparisons.outputs(self._stack, self.graph_module, self.inputs)[0].copy()

    @in_turn
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
        return self._comparisons.verdict(self._stack, self.graph_module, self.inputs, variants, gradients)

    @in_turn
    def known_verdict(self) -> Verdict | None:
        """Return the verdict if there is one already, or if it takes no run in float64; ``None`` if not.

        Raises
        ------
        ValueError
            As for :meth:`compare_outputs`.
        """
        return self._comparisons.known_verdict(self._stack, self.graph_module, self.inputs)

    @in_turn
    def evaluate(
        self,
        batches: Iterable[Any] | None = None,
        metrics: Mapping[str, Metric] | None = None,
        executor: Executor | None = None,
        *,
        keep: int = 5,
        resume: str | os.PathLike[str] | None = None,
    ) -> Evaluation:
        """Judge the present model on a data set, as :func:`evaluate` does.

        The inspector shows the result in its tab *Data*, opens the worst batches, and judges other stacks on
        the same data when it is asked to.

        Parameters
        ----------
        batches, metrics, executor, keep, resume
            As for :func:`evaluate`. Left out, batches and metrics are those that were given last.

        Raises
        ------
        ValueError
            If no batches were given, or those that were can be read only once; or as :func:`evaluate`.
        """
        if batches is None and self._data is None:
            raise ValueError("The session has no data. Give some: session.evaluate(batches).")
        chosen, own = self._data if batches is None and self._data else (batches, metrics)
        if batches is None and isinstance(chosen, Iterator):
            raise ValueError("The batches were an iterator, which is read. Give them as a list.")
        found = evaluate(self, chosen or (), own, executor, keep=keep, resume=resume)
        if batches is not None:
            self._data = batches, metrics
            self._turns.is_changed = True
        self._comparisons.note_evaluation(self._stack, found)
        return found

    @property
    def has_data(self) -> bool:
        """Whether it was evaluated on a data set."""
        return self._data is not None

    @property
    @in_turn
    def evaluation(self) -> Evaluation | None:
        """What :meth:`evaluate` last found of the present model, if it did; ``None`` for another one."""
        return self._comparisons.evaluation(self._stack)

    @in_turn
    def reference_run(self) -> Reference:
        """Return the original as stages are judged against it; what it computes is computed once.

        Raises
        ------
        ValueError
            As for :meth:`compare_outputs`.
        """
        return self._comparisons.reference_on(self.inputs)

    @in_turn
    def transformed_nodes(self, pass_: PassOrName | None = None) -> "pd.DataFrame":
        """List the nodes of the present model that a transformation, or any, has changed.

        Beside each stands what the original has in its place; see :func:`transformed_nodes`.
        """
        found = None if pass_ is None else self.find(pass_)
        return self._comparisons.remembered(
            "transformed nodes",
            self._stack,
            lambda: transformed_nodes(self.graph_module, found, original=self.original),
            "" if found is None else found.signature,
        ).copy()

    @in_turn
    def explain(self, pass_: PassOrName) -> "pd.DataFrame":
        """Tell what a transformation changes, and what not and why, on the stage that it is applied to."""
        found = self.find(pass_)
        below = self._switches.stack(below=found.name)
        stages = self._stages.of(self._stack)
        return self._comparisons.remembered(
            "explain", below, lambda: found.explain(stages[below]), found.signature
        ).copy()

    @in_turn
    def changes(self, pass_: PassOrName) -> Changes:
        """Count what a transformation has changed, or would change if it was switched on.

        Returns
        -------
        Changes
            The rewrites, and the kinds of nodes that became others; as text, a sentence.

        Raises
        ------
        TransformationError
            If it is off, and raises when it is tried.

        Examples
        --------
        >>> import torch
        >>> from fxlab import ChangeTrueDivToMulByInverse
        >>> traced = torch.fx.symbolic_trace(lambda x: (x / 2) + (x / 3))
        >>> session = Session(traced, passes=[ChangeTrueDivToMulByInverse()])
        >>> print(session.changes("change-true-div-to-mul-by-inverse"))
        2 rewrites: 2 truedivs become 2 muls
        """
        found = self.find(pass_)
        name = str(found.name)
        below = self._switches.stack(below=name)
        above = (*below, (name, self._switches.excluded_from(name)))

        def count() -> Changes:
            stages = self._stages.built(above)
            return changes_made(stages[below], stages[above], found)

        return self._comparisons.remembered("changes", below, count, found.signature)

    def to_python(self) -> str:
        """Return code that makes a session of ``model`` and ``inputs`` with what is on here.

        Examples
        --------
        >>> import torch
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

    @in_turn
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write what is on, in which order, and what is excluded to a small JSON file, without weights.

        :func:`fxlab.load_session` makes a session of it again, and says what is different there: the file
        names versions, and has digests of the model's graph and of what the passes made of it.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        rows = [
            {
                "name": name,
                "signature": self._offer.limited(name, ()).signature,
                "on": name in self._switches.on,
                "excluded": [list(candidate) for candidate in self._switches.excluded_from(name)],
            }
            for name in self._switches.offered
        ]
        facts = saved_file.facts_of(self.original, self.graph_module)
        return saved_file.write(path, facts, [row for row in rows if row["on"] or row["excluded"]])

    def as_model(self, *, check: bool = True) -> nn.Module:
        """Return a module of the model's own class that shares its parameters and runs graphs.

        It generates, trains and fits into pipelines like the model. Each kind of call (names, classes and
        dtypes of the arguments, constants, modes) is traced when it is first needed, transformed with the
        passes that are on in this session, compared with the graph that was traced, and remembered. A pass
        that is switched later acts on it at once. A graph that refuses its arguments leads to another one.
        Calls without a graph run the model's own code, with a ``RuntimeWarning`` that says why.

        Parameters
        ----------
        check
            Whether a transformed graph is used only if its outputs for the first arguments are those of
            the untransformed graph, up to rounding (see :meth:`verdict`). If not, passes may change results.

        Returns
        -------
        torch.nn.Module
            Its ``graphs()`` returns a table: a row for each graph, and for each reason to run eagerly.

        Raises
        ------
        ValueError
            If the session was made of a graph module, so that it does not know the model; or if its weights
            are in files.

        Examples
        --------
        >>> import torch
        >>> from torch import nn
        >>> from fxlab import RemoveIdentities
        >>> model = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval()
        >>> session = Session(model, torch.ones(2, 4), passes=[RemoveIdentities()])
        >>> fast = session.as_model()
        >>> session.apply("remove-identities")
        >>> with torch.no_grad():
        ...     torch.equal(fast(torch.ones(3, 4)), model(torch.ones(3, 4)))
        True
        >>> fast.graphs()[["call", "runs", "passes"]].iloc[0].tolist()
        ['input: float32[3, 4]', 'graph', 'remove-identities']
        """
        if self._model is None:
            raise ValueError(
                f"The session was made of a GraphModule ({type(self.original).__name__}), and does not know "
                "the model, whose other calls have to be traced. Make it of that: Session(model, inputs)."
            )
        if are_in_files(self.original):
            raise ValueError(
                "The weights of the session are in files, and are read to judge the model. To run it, load "
                "it (from_pretrained) and make a session of that."
            )
        from fxlab.deployment import Switched, as_model

        return as_model(self._model, Switched(lambda: self.applied, lambda: self._switches), check=check)

    def on_change(self, callback: Callable[["Session"], None]) -> Callable[[], None]:
        """Call a function with the session after each change; returns the function that ends this.

        It is called in the thread that made the change, when the change is complete. If it raises, the change
        stays, the other functions are called, and the error becomes a ``RuntimeWarning``.
        """
        return self._turns.add_listener(callback)

    def __repr__(self) -> str:
        switches = ", ".join(f"{pass_.name} {'on' if self.is_on(pass_) else 'off'}" for pass_ in self.passes)
        return f"<Session of {type(self.original).__name__}: {switches}>"

    @property
    def _switches(self) -> Switches:
        return self._history.now

    @property
    def _stack(self) -> Stack:
        return self._switches.stack()

    def _find(self, pass_: PassOrName) -> str:
        return self._offer.find(pass_, self._switches)

    def _limited(self, name: str) -> Transformation:
        return self._offer.limited(name, self._switches.excluded_from(name))

    def _go_to(self, switches: Switches) -> None:
        """Make a new entry of the history."""
        if switches != self._switches:
            self._settle(self._history.then(switches))

    @in_turn
    def _begin_with(self, switches: Switches) -> None:
        """Let choices that were made elsewhere be those that this session begins with."""
        self._settle(History((switches,)))

    @in_turn
    def _switch_to(self, chosen: Switches, *, among: Collection[str]) -> None:
        """Take over what was chosen among some passes, as one change; all else stays as it is now."""
        now = self._switches
        offered, tuned = set(now.offered), set(among)
        excluded = {entry for entry in chosen.excluded if entry[0] in tuned & offered}
        on = (now.on - tuned) | (chosen.on & tuned & offered)
        self._go_to(replace(now, on=frozenset(on), excluded=now.excluded | excluded))

    def _settle(self, history: History) -> None:
        """Build the stages of a history's entry and let it hold, or leave all as it was."""
        stages = self._stages.built(history.now.stack())
        with InterruptsHeld():
            self._history = history
            self._stages.keep(stages)
            self._comparisons.keep(stages)
            self._turns.is_changed = True
        self._stages.note_state()

    def _look_at(self, inputs: Inputs | None) -> None:
        self._inputs = inputs
        self._comparisons.forget_inputs()
        self._turns.is_changed = True

    def _look_for_changes(self) -> None:
        """Forget all that was computed from tensors of the original which others have changed since."""
        if not self._stages.are_stale():
            return
        lost = self._stages.written()
        self._forget()
        if lost:
            warnings.warn(
                f"The original has changed, so the session builds {len(lost)} weights anew that passes have "
                f"made of it. What was written to them since is lost to the session: {listed(lost)}. "
                "Modules that it gave before are as they were.",
                RuntimeWarning,
                stacklevel=4,
            )

    def _forget(self) -> None:
        self._stages.forget()
        self._comparisons.forget()
        self._turns.is_changed = True


def _traced(source: Source, inputs: Inputs | None) -> tuple[GraphModule, Inputs | None]:
    known = source.inputs if inputs is None else inputs
    if isinstance(source.module, GraphModule):
        if known is not None:
            call_arguments(known)
        return source.module, known
    from fxlab.tracing import example_inputs, symbolic_trace

    given: Inputs = example_inputs(source.module) if known is None else known
    return symbolic_trace(source.module, given), given
