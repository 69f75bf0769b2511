"""Overlays of a session's stages for the notebook's screen, each measured once until its stage changes."""

from collections.abc import Iterable

from torch import fx

from fxlab.models.state.module_state import ModuleState
from fxlab.overlays import SOURCES, Overlay, Source, Subject, source
from fxlab.session import Session
from fxlab.view_model.protocol import OverlayName
from fxlab.view_model.wire import clip


class MeasuredOverlays:
    """The overlays that graphs of a session can be coloured by."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._subjects: dict[fx.GraphModule, tuple[Subject, ModuleState]] = {}
        self._own: dict[str, Overlay] = {}

    def offer(self, overlays: Iterable[Overlay]) -> None:
        """Offer overlays that a person has made."""
        self._own |= {overlay.name: overlay for overlay in overlays}

    def offered(self) -> list[OverlayName]:
        """Return name and title of each overlay there is."""
        sources = (source for source in SOURCES if source.is_made_of(self._session.original))
        known: list[Source | Overlay] = [*sources, *self._own.values()]
        return [{"name": overlay.name, "title": clip(overlay.title, 80)} for overlay in known]

    def of(self, stage: fx.GraphModule, name: str) -> Overlay:
        """Return an overlay of a stage, which may be measured; ValueError if there is none of that name."""
        if (known := self._own.get(name)) is not None:
            return known
        stages = set(self._session.stages)
        # The original stays the same object when it is trained.
        self._subjects = {
            known: (subject, state)
            for known, (subject, state) in self._subjects.items()
            if known in stages and not state.changed()
        }
        if stage not in self._subjects:
            subject = Subject(stage, self._session.original, self._session.inputs)
            self._subjects[stage] = subject, ModuleState(stage)
        return source(name).overlay(self._subjects[stage][0])
