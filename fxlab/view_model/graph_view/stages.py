"""The stage that is shown, and the stage that it is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx

from fxlab.drawing.hierarchy.changes import CHANGES, changes_between, merged_graph
from fxlab.view_model.graph_view.preview import Preview
from fxlab.view_model.graph_view.scene import Marks, marks_of
from fxlab.view_model.pass_state import readable_name

if TYPE_CHECKING:
    from fxlab.session import Session
    from fxlab.transformations import Transformation

NOTHING, BELOW, ORIGINAL = "", "below", "original"

Comparison = str | int
"""What a stage is compared with: :data:`NOTHING`, :data:`BELOW` (whichever that is), or the number of one."""


class Stages:
    """The stage on a screen; at first the last one.

    Parameters
    ----------
    session
        Whose stages they are. After it has changed, :meth:`reset` shows its last stage.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._show(len(session.applied))

    def reset(self) -> None:
        """Look at the last stage, compared with nothing; two stages side by side stay side by side."""
        number = len(self.session.applied)
        if self._chosen[2]:
            self.walk_to(number)
        else:
            self._show(number)

    def walk_to(self, number: int) -> None:
        """Look at another stage in the same way.

        One that is not above the stage that was compared with is compared with the one below, and the
        original with nothing.
        """
        _, compared, beside = self._chosen
        if not number:
            return self.go_to(number)
        if isinstance(compared, int) and compared >= number:
            compared = BELOW
        return self.go_to(number, compared, beside=beside)

    def go_to(self, number: int, compared: Comparison = NOTHING, *, beside: bool = False) -> None:
        """Look at a stage: 0 is the original, 1 the module after the first pass that is on.

        Parameters
        ----------
        number
            Of the stage.
        compared
            ``"below"``, ``"original"`` or the number of an earlier stage to see what is different from it,
            ``""`` to see the stage alone.
        beside
            Whether the two are shown side by side, and not as one graph.

        Raises
        ------
        ValueError
            If there is no such stage, or nothing of that kind to compare it with.
        """
        if not 0 <= number <= len(self.session.applied):
            raise ValueError(f"There is no stage {number}: the last is {len(self.session.applied)}.")
        chosen = _checked(number, compared)
        if beside and chosen == NOTHING:
            raise ValueError(
                "Side by side, a stage needs one to be compared with: below, original or a number."
            )
        self._show(number, chosen, beside=beside)

    def preview(self, p: Transformation) -> None:
        """Look at the last stage and what a pass would make of it, as one graph.

        Raises
        ------
        fxlab.TransformationError
            If the pass raises. What is looked at stays the same.
        """
        preview, chosen = Preview.of(self.session, p), self._chosen
        self._show(len(self.session.applied), preview=preview)
        self._chosen_before = chosen

    def end_preview(self) -> None:
        """Look again at what was looked at before the preview, if there is one."""
        number, compared, beside = self._chosen
        self._show(number, compared, beside=beside)

    @property
    def shows_changes(self) -> bool:
        """Whether the marks say what became of a node, and not which passes changed it."""
        return self.number_before is not None or self.previewed is not None

    @property
    def signatures(self) -> tuple[str, ...]:
        """The marks on the screen, in the order that numbers them."""
        return CHANGES if self.shows_changes else tuple(p.signature for p in self.session.passes)

    @property
    def names(self) -> list[str]:
        """What the stages are called, from the original on."""
        return ["Original", *(readable_name(p) for p in self.session.applied)]

    def title(self, number: int) -> str:
        """Return what stands above a stage."""
        return f"{number}. {self.names[number]}" if number else self.names[0]

    @property
    def applied(self) -> list[str]:
        """Names of the passes that made the stage."""
        return self.names[1 : self.number + 1]

    def state(self) -> dict[str, Any]:
        """Describe the choice there is, and what is chosen."""
        return {
            "names": self.names,
            "shown": self.number,
            "compared": self.compared,
            "beside": self.beside,
            "before": self.number_before,
            "comparisons": list(range(self.number)),
            "preview": self.previewed and self.previewed.state(),
        }

    @property
    def _chosen(self) -> tuple[int, Comparison, bool]:
        """What a person wants to look at when there is no preview."""
        return self._chosen_before if self.previewed else (self.number, self.compared, self.beside)

    @property
    def on_screen(self) -> list[fx.GraphModule]:
        """The stage that is shown, and the one beside it if there is one."""
        return [self.stage, self.before] if self.beside else [self.stage]

    @property
    def number_before(self) -> int | None:
        """The number of the stage that it is compared with; ``None`` if it is compared with nothing."""
        if isinstance(self.compared, int):
            return self.compared
        return self.number - 1 if self.compared == BELOW else None

    def _show(
        self,
        number: int,
        compared: Comparison = NOTHING,
        *,
        beside: bool = False,
        preview: Preview | None = None,
    ) -> None:
        self.number, self.compared, self.beside = number, compared, beside
        self.previewed: Preview | None = preview
        """What is tried out, if the last stage is shown with what a pass would make of it."""
        stages = self.session.stages
        self.stage: fx.GraphModule = stages[number]
        """The stage itself."""
        self.before: fx.GraphModule = stages[self.number_before or 0]
        """What it is compared with; the original if that is nothing."""
        self.graph: fx.GraphModule = self.stage
        """What is drawn: the stage, or two as one."""
        self.marks: Marks = {}
        """What is marked in it, and in the stage beside it."""
        if preview:
            self.graph, self.marks = preview.graph, preview.marks
        elif beside:
            self.marks = changes_between(self.before, self.stage)
        elif compared != NOTHING:
            self.graph, self.marks = merged_graph(self.before, self.stage)
        else:
            self.marks = marks_of(self.stage)


def _checked(number: int, compared: object) -> Comparison:
    """Return what a stage is to be compared with; raises ``ValueError`` if it cannot be."""
    if compared in (NOTHING, None):
        return NOTHING
    if number and compared == BELOW:
        return BELOW
    if number and compared == ORIGINAL:
        return 0
    if isinstance(compared, int) and not isinstance(compared, bool) and 0 <= compared < number:
        return compared
    earlier = ", ".join(map(str, range(number)))
    offered = f'"below", "original" or the number of an earlier stage: {earlier}' if number else "nothing"
    raise ValueError(f"Stage {number} cannot be compared with {compared!r}, but with {offered}.")
