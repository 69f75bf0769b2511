"""The rest of a session, for screens and reports: results kept for the present stack, and its lock."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from fxlab.base.first_use import pd
from fxlab.session.session_lock import locked
from fxlab.transformations.registry import Pass

if TYPE_CHECKING:
    from fxlab.session.compiled import Compiled
    from fxlab.session.history import Candidate
    from fxlab.session.pass_stack import PassStack
    from fxlab.validation.evaluation.evaluation import Evaluation
    from fxlab.validation.verdicts.result import Verdict
    from fxlab.validation.verdicts.verdict import Reference


class Internals:
    """Members of a session that only screens and reports need; ``session._internals`` has them."""

    def __init__(self, session: PassStack) -> None:
        self._session, self._turns = session, session._turns

    @property
    def compiled(self) -> Compiled | None:
        """The session itself if a compiler makes its stages, so that it has more members; else ``None``."""
        return self._session._as_compiled()

    @property
    def is_comparison(self) -> bool:
        """Whether its stages are models of several origins, which are shown side by side."""
        return self._session._is_comparison

    def held(self) -> AbstractContextManager[None]:
        """Keep other threads from changing the session; its original must not be changed meanwhile."""
        return self._turns.held()

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to undo."""
        return self._session._history.position > 0

    @property
    def can_redo(self) -> bool:
        """Whether there is a change to redo."""
        return self._session._history.position + 1 < len(self._session._history.entries)

    def is_on(self, pass_: Pass) -> bool:
        """Return whether a transformation is on."""
        return self._session._find(pass_) in self._session._switches.on

    def excluded(self, pass_: Pass) -> tuple[Candidate, ...]:
        """Return the excluded candidates of a transformation, each by the names of its nodes."""
        return self._session._switches.excluded_from(self._session._find(pass_))

    @locked
    def compare_outputs(self) -> pd.DataFrame:
        """Return the distance of the outputs from the original's, computed once for each stage.

        Raises ``ValueError`` if the session has no inputs, or its model no weights.
        """
        session = self._session
        return session._comparisons.outputs(session._stack, session.graph_module, session._inputs)[0].copy()

    @locked
    def known_verdict(self) -> Verdict | None:
        """Return the verdict if there is one already, or if it needs no run in float64; else ``None``."""
        session = self._session
        return session._comparisons.known_verdict(session._stack, session.graph_module, session._inputs)

    @locked
    def reference_run(self) -> Reference:
        """Return the original as the reference of verdicts; it is run once."""
        return self._session._comparisons.reference_on(self._session._inputs)

    @property
    def batches(self) -> Iterable[Any] | None:
        """The data set that ``session.evaluate`` was given last; ``None`` if there was none."""
        return None if self._session._data is None else self._session._data[0]

    @property
    @locked
    def evaluation(self) -> Evaluation | None:
        """The last result of ``session.evaluate`` for the present model; ``None`` for another one."""
        return self._session._comparisons.evaluation(self._session._stack)

    @locked
    def transformed_nodes(self) -> pd.DataFrame:
        """List the nodes of the present model that any transformation has changed."""
        from fxlab.graphs.nodes import transformed_nodes

        session = self._session
        return session._comparisons.remembered(
            "transformed nodes",
            session._stack,
            lambda: transformed_nodes(session.graph_module, None, original=session.original),
        ).copy()
