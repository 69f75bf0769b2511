"""Passes that tell their candidates apart, so that some can be excluded."""

import copy
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Self

from torch.fx import GraphModule, Node

from fxlab.transformations.base import Transformation
from fxlab.transformations.candidate_filter import Limit, node_names
from fxlab.transformations.journal.journal import Record


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
