"""The base of fxlab's passes, with their loop: match, refuse, rewrite; candidates can be excluded."""

import copy
import functools
import itertools
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import torch
from torch import nn
from torch.fx import GraphModule, Node

from fxlab.base.checks import type_error
from fxlab.base.first_use import pd
from fxlab.base.garbage import without_collecting
from fxlab.base.reasons import Reason, Refusal
from fxlab.models.graph_modules.bodies import graphs_of
from fxlab.models.graph_modules.graph_module import check_lints, ensure_picklable
from fxlab.models.graph_modules.parts import Mode, RequireApart, RequireModes, first_compute
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.base import Transformation, explanation
from fxlab.transformations.candidate_filter import Limit, node_names
from fxlab.transformations.journal.journal import Journal, Record
from fxlab.transformations.journal.journaled import JournaledTransformation, undo
from fxlab.transformations.journal.node_state import NodeState
from fxlab.transformations.marks import add_mark
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.signature import code_of


@dataclass(frozen=True, eq=False)
class CandidatePass(Transformation):
    """A pass that ``only`` and ``exclude`` limit to some of its candidates."""

    limited_to: Limit | None = field(default=None, init=False)

    @abstractmethod
    def candidates(self, graph_module: GraphModule) -> list[tuple[str, ...]]:
        """Return the places at which the pass may apply, each by the names of its nodes. Changes nothing."""

    def rewrites(self, graph_module: GraphModule) -> list[Record]:
        """Return the records of this pass in the journal of a module, one for each rewrite."""
        from fxlab.transformations.journal.records_in_bodies import records_of

        self._check_graph_module(graph_module)
        signature = self.signature
        own = (record for record in records_of(graph_module) if record.signature == signature)
        return [record for record in own if record.candidate or record.is_opaque]

    def only(self, *nodes: Node | str, missing_ok: bool = False) -> Self:
        """Limit this pass to some of its candidates; see :meth:`~fxlab.Transformation.only`."""
        limit, names = self.limited_to or Limit(), node_names(nodes)
        names = names if limit.only is None else limit.only & names
        return self._limited(Limit(limit.excluded, names, missing_ok))

    def exclude(self, *nodes: Node | str, missing_ok: bool = False) -> Self:
        """Exclude some candidates of this pass; see :meth:`~fxlab.Transformation.exclude`."""
        limit = self.limited_to or Limit()
        return self._limited(Limit(limit.excluded | node_names(nodes), limit.only, missing_ok))

    def _limited(self, limit: Limit) -> Self:
        limited = copy.copy(self)
        object.__setattr__(limited, "limited_to", None if limit == Limit() else limit)
        return limited


class HasNode(Protocol):
    """A place at which a pass may apply, with more than its node."""

    @property
    def node(self) -> Node:
        """The node that an explanation names."""


class HasNodes(Protocol):
    """A place at which a pass may apply, with more than its nodes."""

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes that an explanation names."""


Candidate: TypeAlias = Node | tuple[Node, ...] | HasNode | HasNodes
"""A place at which a pass may apply: a node, several, or an object with ``nodes`` or a ``node``."""
C = TypeVar("C", bound=Candidate)


class Attempt(NamedTuple):
    """An attempt of a pass at one place, and how far it gets: a candidate, or a near miss of a pattern."""

    matched: bool
    reason: str
    code: str
    reached: int
    operators: int
    at: str
    begins_at: str
    fits: tuple[str, ...] = ()
    """The nodes that fit."""
    passed: tuple[str, ...] = ()
    """Those among them that compute nothing, and are seen through."""
    misfits: tuple[str, ...] = ()
    """The nodes that the reason is about."""
    nodes: tuple[str, ...] = ()
    """The nodes that an explanation names."""

    is_near: bool = True
    """Whether most of it fits."""


@dataclass(frozen=True, eq=False)
class RewritePass(CandidatePass, JournaledTransformation, Generic[C]):
    """A pass in steps, which is reversible by itself.

    A pass finds its candidates (:meth:`match`) and changes them (:meth:`rewrite`, through an
    :class:`~fxlab.transformations.rewriting.editor.Editor`, which keeps the data to revert). It may refuse
    candidates (:meth:`refuse`) and describe the change (:meth:`describe`). One with arguments is a frozen
    dataclass, whose fields they are. A pass that replaces modules also brings new values back to them
    (``update_originals``).

    Attributes
    ----------
    limited_to : Limit or None
        The candidates it rewrites; ``None`` for all that it does not refuse. ``only`` and ``exclude``
        make limited passes.

    Examples
    --------
    >>> import operator
    >>> class HalveByMultiplying(RewritePass[Node]):
    ...     def match(self, facts):
    ...         for node in facts.graph_module.graph.nodes:
    ...             if node.target is operator.truediv and node.args[1] == 2.0:
    ...                 yield node
    ...
    ...     def rewrite(self, node, edit):
    ...         edit.change(node, target=operator.mul, args=(node.args[0], 0.5))
    ...         return node
    >>> halve = HalveByMultiplying()
    >>> changed = halve(torch.fx.symbolic_trace(lambda x: x / 2.0))
    >>> halve.name, halve.get_transformed_nodes(changed)[0].args
    ('halve-by-multiplying', (x, 0.5))
    >>> halve(changed, reverse=True).graph.find_nodes(op="call_function", target=operator.truediv)[0].args
    (x, 2.0)
    """

    preserves_computation = True

    @abstractmethod
    def match(self, facts: GraphFacts) -> Iterator[C]:
        """Yield each place at which the pass may apply. The graph may be rewritten while this runs."""

    def refuse(self, candidate: C, facts: GraphFacts) -> Refusal | None:
        """Return why a candidate cannot be rewritten; ``None`` if it can, as all can by default."""
        return None

    @abstractmethod
    def rewrite(self, candidate: C, edit: Editor) -> Node | tuple[Node, ...] | None:
        """Rewrite a candidate and return the node, or the nodes, that are marked as transformed, if any."""

    def behaves_by_mode(self, candidate: C, facts: GraphFacts) -> tuple[Node, ...]:
        """Return the calls of modules that allow a rewrite because they are in evaluation mode.

        A graph that was rewritten refuses to run once they are in training mode.
        """
        return ()

    def describe(self, candidate: C) -> str:
        """Describe the change of a candidate, in words that follow its name."""
        return "rewritten"

    def why_not(self, candidate: C, facts: GraphFacts) -> Refusal | None:
        """Return why a candidate is left alone: the answer of :meth:`refuse`, or that it is excluded.

        A :meth:`match` whose candidates depend on earlier rewrites asks here.
        """
        reason = facts.why_body_stays or self.refuse(candidate, facts)
        if not isinstance(reason, Refusal | None):
            raise TypeError(f"{self.name}.refuse must return a Refusal or None, got {type(reason).__name__}.")
        if reason or self.limited_to is None:
            return reason
        return self.limited_to.why_not(_names(candidate, facts.prefix))

    def candidates(self, graph_module: GraphModule) -> list[tuple[str, ...]]:
        """Return the places at which the pass may apply, each by the names of its nodes. Changes nothing."""
        with without_collecting():
            found = [(facts, list(self._matches(facts))) for facts in self._facts_of(graph_module)]
        return [_names(each, facts.prefix) for facts, candidates in found for each in candidates]

    def _matches(self, facts: GraphFacts) -> Iterable[C]:
        found: Any = self.match(facts)
        if not isinstance(found, Iterable):
            raise type_error(f"{self.name}.match", "an iterator of candidates", found, "Yield each of them.")
        return found

    def _facts_of(self, graph_module: GraphModule) -> list[GraphFacts]:
        """Return the facts about a graph, and about the bodies that it calls."""
        self._check_graph_module(graph_module)
        graphs = graphs_of(graph_module)
        for module in graphs.values():
            check_lints(module, "graph_module")
        return [GraphFacts.of_body(module, prefix, graph_module) for prefix, module in graphs.items()]

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Rewrite every candidate that is not refused, or none if one of them fails.

        Bodies of higher-order operators, and graphs that are called as modules, are rewritten as well.

        Raises
        ------
        ValueError
            If the pass is limited by the name of a node that is no candidate.
        """
        if self.limited_to is not None and not self.limited_to.missing_ok:
            candidates = self._limited(Limit()).candidates(graph_module)
            self.limited_to.check(str(self.name), itertools.chain.from_iterable(candidates))
        # New parameters can be trained, even if this runs in inference mode.
        with torch.inference_mode(False), torch.no_grad(), without_collecting(), ExitStack() as undoing:
            for prefix, module in graphs_of(graph_module).items():
                is_changed = self._rewrite_all(GraphFacts.of_body(module, prefix, graph_module), undoing)
                # The outermost module pickles its bodies, and would lose the journal of one.
                if prefix and is_changed:
                    ensure_picklable(graph_module)
            # Nothing has failed, so nothing is undone.
            undoing.pop_all()
        return graph_module

    def _rewrite_all(self, facts: GraphFacts, undoing: ExitStack) -> bool:
        """Rewrite the candidates of one graph; return whether there are any."""
        graph_module = facts.graph_module
        journal = Journal.of(graph_module)
        signature = self.signature
        made: list[Record] = []
        _let_undo(undoing, graph_module, journal, made)
        beside = functools.partial(self._edit_beside, undoing)
        in_evaluation: dict[str, nn.Module] = {}
        apart: RequireApart | None = None
        before: list[NodeState] = []

        for candidate in self._matches(facts):
            if self.why_not(candidate, facts):
                continue
            if not made:
                self._begin(graph_module, journal)
                apart = self._inputs_apart(facts)
                before = list(map(NodeState.of, graph_module.graph.nodes)) if code_of(type(self)) else []
            record = Record(signature, _names(candidate))
            made.append(record)
            journal.records.append(record)
            journal.keep_in(graph_module)
            for node in self.behaves_by_mode(candidate, facts):
                in_evaluation[str(node.target)] = graph_module.get_submodule(str(node.target))
            edit = Editor(graph_module, journal, record, facts.passing, beside)
            marked = self.rewrite(candidate, edit)
            nodes = _as_nodes(() if marked is None else marked, f"{self.name}.rewrite", "nodes to mark")
            record.marked = tuple(node.name for node in nodes)
            for node in nodes:
                add_mark(node, signature)
        if before:
            self._check_noted(before, graph_module)
        if in_evaluation:
            self._require_evaluation(in_evaluation, Editor(graph_module, journal, made[-1]))
        if apart is not None:
            edit, inputs = Editor(graph_module, journal, made[-1]), tuple(facts.writes.inputs_written)
            first = first_compute(graph_module.graph)
            edit.insert_before(first, "call_module", edit.add_check(apart), inputs)
        return bool(made)

    def _check_noted(self, before: list[NodeState], graph_module: GraphModule) -> None:
        """Refuse changes that a pass has made without the editor: they could not be reverted."""
        records = [each for each in Journal.of(graph_module).records if each.signature == self.signature]
        changes = {change.name: change for record in records for change in record.nodes}

        def read_now(name: str) -> str:
            while name in changes and (reader := changes[name].passed_on_to):
                name = reader
            return name

        known = {state.name: state for state in before if state.name not in changes}
        now = {node.name: NodeState.of(node) for node in graph_module.graph.nodes if node.name not in changes}
        for name in {**known, **now}:
            old, new = known.get(name), now.get(name)
            if old and new and old.is_same_call(new) and [*map(read_now, old.inputs)] == new.inputs:
                continue
            raise TypeError(
                f"{self.name}.rewrite: expected changes through the editor, got a change of {name!r} without "
                "it, which could not be reverted. Use edit.change, insert_before, read_instead or erase."
            )

    def _edit_beside(self, undoing: ExitStack, graph_module: GraphModule) -> Editor:
        """Return the editor of another graph for the sake of a candidate in a body."""
        journal, record = Journal.of(graph_module), Record(self.signature)
        _let_undo(undoing, graph_module, journal, [record])
        self._begin(graph_module, journal)
        journal.records.append(record)
        journal.keep_in(graph_module)
        return Editor(graph_module, journal, record)

    def _require_evaluation(self, modules: Mapping[str, nn.Module], edit: Editor) -> None:
        graph_module = edit.graph_module
        # Copies of the graph lack modules that are no longer called, so the mode of the model counts as well.
        mode = ("the model", Mode(training=False), False)
        required = [mode, *((path, module, False) for path, module in modules.items())]
        check = RequireModes(
            required, f"{self.name} was applied for", f"Reverse {self.name} before training."
        )
        edit.insert_before(first_compute(graph_module.graph), "call_module", edit.add_check(check))

    def _inputs_apart(self, facts: GraphFacts) -> RequireApart | None:
        """Return a check that refuses inputs through which the graph would write values that move."""
        if not (inputs := facts.writes.inputs_written):
            return None
        required = RequireApart(
            facts.graph_module.named_modules(),
            [str(node.target) for node in inputs],
            f"{self.name} was applied for",
            f"Pass a copy, or reverse {self.name}.",
        )
        return None if required.holds_for_all else required

    def explain(self, graph_module: GraphModule) -> "pd.DataFrame":
        """Tell which candidates the pass would change in a module, and why not others. Changes nothing.

        Returns
        -------
        pandas.DataFrame
            A row for each node of each candidate, in columns ``node`` (its name; ``true_graph_0/mm`` for the
            node ``mm`` of a body), ``matched`` (whether it would be changed), ``reason`` (the change in
            words, or why it is left alone), ``code`` (that of the :class:`~fxlab.base.reasons.Refusal`,
            empty if it matches) and ``candidate`` (its number: nodes of one candidate are changed together).
        """
        known = self._facts_of(graph_module)
        tried = [(facts, self._candidates_tried(facts)) for facts in known]
        found = [attempt for _, attempts in tried for attempt, _ in attempts]
        if self.near_misses_beside_candidates or not found:
            for missed in (each for facts, own in tried for each in self.near_misses(facts, _taken(own))):
                if missed.is_near or not found:
                    found.append(missed)
        return explanation(
            (name, each.matched, each.reason, each.code, number)
            for number, each in enumerate(found)
            for name in each.nodes
        )

    near_misses_beside_candidates: ClassVar[bool] = False
    """Whether :meth:`explain` lists near misses next to candidates, and not only in place of them."""

    def near_misses(self, facts: GraphFacts, taken: Collection[Node]) -> Iterable[Attempt]:
        """Return the places that nearly are candidates, without ``taken`` nodes; none by default."""
        return ()

    def near_misses_at(self, node: Node, facts: GraphFacts) -> Iterable[Attempt]:
        """Return how far a node is from being a candidate; nothing by default."""
        return ()

    def attempts(self, graph_module: GraphModule, node: str | None = None) -> list[Attempt]:
        """Return the candidates and near misses of a graph, or those at a node of a name, furthest first."""
        found: list[Attempt] = []
        for facts in self._facts_of(graph_module):
            tried = self._candidates_tried(facts)
            own = [attempt for attempt, _ in tried if node is None or node in attempt.fits]
            found += own
            if node is None:
                found += self.near_misses(facts, _taken(tried))
            elif not own:
                named = (each for each in facts.graph_module.graph.nodes if f"{facts.prefix}{each}" == node)
                found += (miss for each in named for miss in self.near_misses_at(each, facts))
        return sorted(found, key=lambda each: -each.reached / max(each.operators, 1))

    def _candidates_tried(self, facts: GraphFacts) -> list[tuple[Attempt, tuple[Node, ...]]]:
        """Return an attempt at each candidate of a graph, and all nodes of the candidate."""
        tried = []
        for candidate in self._matches(facts):
            own, refusal = nodes_of(candidate), self.why_not(candidate, facts)
            nodes = (*own, *getattr(candidate, "inner", ()))
            fits = tuple(f"{facts.prefix}{node.name}" for node in nodes)
            names, ends = fits[: len(own)], (fits[len(own) - 1], fits)
            counts = len(fits), len(fits)
            if refusal is None:
                said = True, self.describe(candidate), "", *counts, "", *ends
                attempt = Attempt(*said, nodes=names)
            else:
                said = False, refusal.words, refusal.code, *counts, names[0], *ends
                attempt = Attempt(*said, misfits=misfits_of(refusal, fits, facts), nodes=names)
            tried.append((attempt, nodes))
        return tried


def _taken(tried: Iterable[tuple[Attempt, tuple[Node, ...]]]) -> set[Node]:
    return {node for _, nodes in tried for node in nodes}


def _let_undo(undoing: ExitStack, graph_module: GraphModule, journal: Journal, made: list[Record]) -> None:
    """Register the undoing of all changes from now on."""
    untouched = copy.copy(journal)

    @undoing.callback
    def undo_it() -> None:
        undo(graph_module, journal, made)
        untouched.keep_in(graph_module)


def nodes_of(candidate: Candidate) -> Sequence[Node]:
    """Return the nodes of a candidate."""
    own = getattr(candidate, "nodes", getattr(candidate, "node", candidate))
    nodes = _as_nodes(own, "match", "nodes, or objects with nodes")
    if not nodes:
        raise ValueError("match: expected a candidate of one node or more, got one without nodes.")
    return nodes


def _as_nodes(value: Any, source: str, expected: str) -> Sequence[Node]:
    nodes = (value,) if isinstance(value, Node) else value
    if not isinstance(nodes, Sequence) or not all(isinstance(each, Node) for each in nodes):
        raise type_error(source, f"{expected} (one, or a tuple)", value)
    return nodes


def misfits_of(refusal: Refusal, own: tuple[str, ...], facts: GraphFacts) -> tuple[str, ...]:
    """Return the nodes that a refusal is about; of a value with other users these."""
    known = {f"{facts.prefix}{node.name}": node for node in facts.graph_module.graph.nodes}
    named = [name for each in refusal.about if (name := f"{facts.prefix}{each}") in known]
    if refusal.code == Reason.OTHER_USERS.code:
        users = (f"{facts.prefix}{user.name}" for name in named for user in known[name].users)
        return tuple(dict.fromkeys(user for user in users if user not in own)) or tuple(named)
    return tuple(dict.fromkeys(named))


def _names(candidate: Candidate, prefix: str = "") -> tuple[str, ...]:
    return tuple(f"{prefix}{node.name}" for node in nodes_of(candidate))
