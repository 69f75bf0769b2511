"""The protocol of sessions whose stages a compiler makes, through which screens and reports reach it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.front_desk.sources import GraphBreak


class Compiled(Protocol):
    """Members of such a session beyond those of :class:`fxlab.Session`; ``session.compiled`` has them."""

    @property
    def graph_break(self) -> GraphBreak | None:
        """The reason why the graph ends, and the line; ``None`` at the end of the model."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """The parts of the compile that could not be recorded, in words."""

    def story(self) -> pd.DataFrame:
        """List the compiles, recompiles and breaks of the graph's function."""

    def explain_unchanged(self) -> Mapping[str, pd.DataFrame]:
        """Return the candidates of each pass that has changed nothing, by its name."""
