"""Traces that end before they are complete, and begin again with the work done by then: screens need it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from torch.fx import GraphModule

from fxlab.models.running.arguments import Inputs
from fxlab.tracing.recording.graph_builder import RecordedNodes
from fxlab.tracing.recording.run import RecordingState, TraceStrategy
from fxlab.tracing.report import Finding
from fxlab.tracing.shapes.fake_inputs import StandInError


class PauseError(BaseException):
    """Ends a trace for now. No handler of errors takes it for one of the model."""


@dataclass
class Outcomes:
    """The comparisons of a recorded graph with its model, in the order in which they are asked for.

    ``pause``: called after each new one; it may end the trace.
    """

    pause: Callable[[], None] = lambda: None
    _known: list[Finding] = field(default_factory=list)

    def asked_again(self) -> Callable[[Callable[[], Finding]], Finding]:
        """Return a function that makes a comparison, or finds it; the answers so far decide on the next."""
        places = count()

        def outcome(compare: Callable[[], Finding]) -> Finding:
            place = next(places)
            if place == len(self._known):
                self._known.append(compare())
                self.pause()
            return self._known[place]

        return outcome


@dataclass
class Recorded:
    """A graph as it was recorded, without guards on sizes."""

    run: RecordingState
    module: GraphModule
    nodes: RecordedNodes
    """The recorded calls, if the model has read its mode."""
    outcomes: Outcomes


class Slices:
    """The recordings and comparisons of a trace, which pauses after each of them until the first guards.

    Guards change the graph, so what follows them is the last slice. ``may_pause``: whether to pause at all.
    """

    def __init__(self, *, may_pause: bool = False) -> None:
        self.may_pause = may_pause
        self.first: GraphModule | None = None
        """The first graph that was recorded, if the trace has paused since."""
        self.inputs: Inputs
        """Those that it is recorded on."""
        self._recorded: list[tuple[TraceStrategy, Recorded | StandInError]] = []
        self._left: list[tuple[TraceStrategy, Recorded | StandInError]] = []

    def begin(self, *, may_pause: bool) -> None:
        """Begin another slice, in which each recording takes the place of one run."""
        self.may_pause, self._left = may_pause, [*self._recorded]

    def recorded(self, rung: TraceStrategy, record: Callable[[Outcomes], Recorded]) -> Recorded:
        """Return the recording on a rung, which is made if there is none, and kept for later slices."""
        for each in self._left:
            if each[0] == rung:
                self._left.remove(each)
                if isinstance(each[1], StandInError):
                    raise each[1]
                return each[1]
        try:
            made = record(Outcomes(self.pause))
        except StandInError as error:
            if self.may_pause:
                self._recorded.append((rung, error.with_traceback(None)))
            raise
        if self.may_pause:
            self._recorded.append((rung, made))
            self.first = self.first or made.module
            self.pause()
        return made

    def pause(self) -> None:
        """End the trace for now, if it may."""
        if self.may_pause:
            raise PauseError
