"""Measured overlays of the graphs on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import fx

from fxlab.overlays import Overlay, Subject, source

if TYPE_CHECKING:
    from fxlab.session import Session


class MeasuredOverlays:
    """Overlays of the stages on a screen, each measured once.

    Parameters
    ----------
    session
        Whose stages they are.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._subjects: dict[fx.GraphModule, Subject] = {}
        self._overlays: dict[tuple[fx.GraphModule, str], Overlay] = {}

    def measure(self, stages: Sequence[fx.GraphModule], name: str) -> None:
        """Measure what has not been measured; what is known of other stages is forgotten.

        Raises
        ------
        ValueError
            If there is no overlay of that name, or it cannot be measured.
        """
        chosen = source(name)
        original, inputs = self._session.original, self._session.inputs
        self._subjects = {s: self._subjects.get(s) or Subject(s, original, inputs) for s in stages}
        self._overlays = {key: known for key, known in self._overlays.items() if key[0] in self._subjects}
        for stage, subject in self._subjects.items():
            if (stage, name) not in self._overlays:
                self._overlays[stage, name] = chosen.overlay(subject)

    def find(self, stage: fx.GraphModule, name: str) -> Overlay | None:
        """Return an overlay of a stage, if it was measured."""
        return self._overlays.get((stage, name))
