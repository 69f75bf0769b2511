"""The loop that fxlab's own passes share: match, refuse, rewrite."""

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import torch
from torch.fx import GraphModule, Node

from fxlab.transformations.collecting import without_collecting
from fxlab.transformations.editor import Editor
from fxlab.transformations.graph_facts import GraphFacts
from fxlab.transformations.journal import Journal, Record
from fxlab.transformations.journaled import JournaledTransformation
from fxlab.transformations.marks import add_mark
from fxlab.transformations.transformation import explanation
from fxlab.transformations.undo import undo

if TYPE_CHECKING:
    import pandas as pd


class Candidate(Protocol):
    """A place at which a pass may apply."""

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes that an explanation speaks of."""


C = TypeVar("C", bound=Candidate)


class RewritePass(JournaledTransformation, Generic[C]):
    """A pass in three steps, which is reversible without further ado.

    A pass is a frozen dataclass whose fields are its arguments. It says where it may apply (:meth:`match`),
    why it must not (:meth:`refuse`), what it would do (:meth:`describe`) and how it is done
    (:meth:`rewrite`, through an :class:`~fxlab.transformations.editor.Editor`, which keeps what reversing
    needs). A pass that replaces modules also says how new values go back to them
    (:meth:`update_originals`).
    """

    preserves_computation = True

    @abstractmethod
    def match(self, facts: GraphFacts) -> Iterator[C]:
        """Yield each place at which the pass may apply. The graph may be rewritten while this runs."""

    @abstractmethod
    def refuse(self, candidate: C, facts: GraphFacts) -> str:
        """Return why a candidate cannot be rewritten, in words that follow its name; empty if it can."""

    @abstractmethod
    def rewrite(self, candidate: C, edit: Editor) -> Node | tuple[Node, ...]:
        """Rewrite a candidate and return the node, or the nodes, that are marked as transformed."""

    @abstractmethod
    def describe(self, candidate: C) -> str:
        """Return what would be done with a candidate, in words that follow its name."""

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Rewrite every candidate that there is no reason against, or none if one of them fails."""
        # What is made can be trained wherever this runs.
        with torch.inference_mode(False), torch.no_grad(), without_collecting():
            self._rewrite_all(graph_module)
        return graph_module

    def _rewrite_all(self, graph_module: GraphModule) -> None:
        journal = Journal.of(graph_module)
        untouched = copy.copy(journal)
        signature = self.signature
        facts = GraphFacts(graph_module)
        made: list[Record] = []
        try:
            for candidate in self.match(facts):
                if self.refuse(candidate, facts):
                    continue
                if not made:
                    self._begin(graph_module, journal)
                record = Record(signature)
                made.append(record)
                journal.records.append(record)
                journal.keep_in(graph_module)
                marked = self.rewrite(candidate, Editor(graph_module, journal, record))
                nodes = marked if isinstance(marked, tuple) else (marked,)
                record.marked = tuple(node.name for node in nodes)
                for node in nodes:
                    add_mark(node, signature)
        except BaseException:
            undo(graph_module, journal, made)
            untouched.keep_in(graph_module)
            raise

    def explain(self, graph_module: GraphModule) -> "pd.DataFrame":
        """Tell what the pass would change in a module, what it would not, and why. Changes nothing.

        Returns
        -------
        pandas.DataFrame
            A row for each node of each candidate, in columns ``node`` (its name), ``matched`` (whether it
            would be changed) and ``reason`` (what would be done with it, or why it is left alone).
        """
        self._check_graph_module(graph_module)
        facts = GraphFacts(graph_module)
        return explanation(row for candidate in self.match(facts) for row in self._rows(candidate, facts))

    def _rows(self, candidate: C, facts: GraphFacts) -> Iterator[tuple[str, bool, str]]:
        refusal = self.refuse(candidate, facts)
        for node in candidate.nodes:
            yield node.name, not refusal, refusal or self.describe(candidate)
