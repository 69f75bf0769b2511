"""The graphs of a session that a page has: the last stage at once, others when it asks for them."""

from collections.abc import Callable

from torch import fx

from fxlab.drawing.hierarchy.changes import CHANGES, changes_between
from fxlab.session import Session
from fxlab.transformations import Transformation
from fxlab.view_model.details import model_details
from fxlab.view_model.graph_data.graph_data import GraphData
from fxlab.view_model.graph_data.shown_graph import ShownGraph
from fxlab.view_model.protocol import ModelDetails, ShownPreview, StagesKnown
from fxlab.view_model.session_state import changes_text, model_name, stage_names
from fxlab.view_model.wire import clip

MOST_FORGOTTEN = 64
"""Graphs that a page may have of stages that are gone, before everything is written again."""
_KINDS = ("alone", "merged", "pairs", "codes", "codeDifferences")


class SessionGraphs:
    """Numbers the graphs of a session, until :meth:`reset` looks at its stages again."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.data = GraphData()
        self._numbers: dict[str, dict[tuple[fx.GraphModule, ...], int]] = {kind: {} for kind in _KINDS}
        """The page's graphs of one stage or of two, by their kind."""
        self._previews: dict[str, ShownPreview] = {}
        self._preview: ShownPreview | None = None
        self._version = 0

    def reset(self) -> None:
        """Forget the graphs of stages that are gone."""
        self._version += 1
        self._previews, self._preview = {}, None
        stages = set(self._session.stages)
        for kind, known in self._numbers.items():
            self._numbers[kind] = {of: number for of, number in known.items() if stages.issuperset(of)}
        self.data.codes.forget_others(self._numbers["codes"].values())
        kept = {*self._numbers["alone"].values(), *self._numbers["merged"].values()}
        if self.data.forget_others(kept) > MOST_FORGOTTEN:
            self.clear()

    def clear(self) -> None:
        """Forget all graphs, so that everything is written again."""
        self.data = GraphData()
        self._numbers = {kind: {} for kind in _KINDS}

    def alone(self, stage: int) -> int:
        """Return the number of the graph of a stage."""
        module, signatures = self._session.stages[stage], tuple(p.signature for p in self._session.passes)
        return self._number(
            "alone",
            (module,),
            lambda: self.data.add(ShownGraph.alone(module, signatures), self._model(module, stage)),
        )

    def merged(self, stage: int, before: int) -> int:
        """Return the number of the graph of two stages as one."""
        # Colours are those of the stage.
        self.alone(stage)
        after, below = both = self._session.stages[stage], self._session.stages[before]
        return self._number(
            "merged", both, lambda: self.data.add(ShownGraph.merged(below, after), self._model(after, stage))
        )

    def pair(self, stage: int, before: int) -> int:
        """Return the number of two stages side by side."""
        numbers = self.alone(stage), self.alone(before)
        after, below = both = self._session.stages[stage], self._session.stages[before]
        return self._number(
            "pairs", both, lambda: self.data.add_pair(*numbers, changes_between(below, after), CHANGES)
        )

    def code(self, stage: int, before: int | None = None) -> None:
        """Add the code of a stage and, if it is compared with another, how the two differ."""
        stages = self._session.stages
        if before is None:
            self._code_of(stages[stage])
        else:
            self._difference_of(stages[before], stages[stage])

    def code_of_preview(self) -> None:
        """Add the code that there would be, and how it differs from that of the last stage."""
        if self._preview is None or "code" in self._preview:
            return
        after, last = self.data.shown(self._preview["graph"]).stage, self._session.graph_module
        difference = self._difference_of(last, after)
        self._preview["code"], self._preview["difference"] = self._code_of(after), difference

    def _code_of(self, module: fx.GraphModule) -> int:
        return self._number("codes", (module,), lambda: self.data.codes.add(module))

    def _difference_of(self, before: fx.GraphModule, after: fx.GraphModule) -> int:
        numbers = self._code_of(before), self._code_of(after)
        return self._number(
            "codeDifferences", (after, before), lambda: self.data.codes.add_difference(*numbers)
        )

    def _number(self, kind: str, of: tuple[fx.GraphModule, ...], add: Callable[[], int]) -> int:
        """Return the number of the page's graph of stages, which is added if there is none."""
        if of not in (known := self._numbers[kind]):
            known[of] = add()
        return known[of]

    def preview(self, p: Transformation) -> None:
        """Add the graph that a pass would make of the last stage; if it raises, nothing changes."""
        if p.signature not in self._previews:
            shown = ShownGraph.merged(self._session.graph_module, self._session.preview(p))
            name = stage_names([p])[1]
            model = self._model(shown.stage, len(self._session.applied), f"{name} (preview)")
            number = self.data.add(shown, model)
            self._previews[p.signature] = {
                "signature": p.signature,
                "name": name,
                "text": clip(str(self._session.changes(p)), 300),
                "graph": number,
            }
        self._preview = self._previews[p.signature]

    def end_preview(self) -> None:
        """Show no preview any more."""
        self._preview = None

    def state(self) -> StagesKnown:
        """Describe the stages, and which of their graphs the page has."""
        place = {stage: number for number, stage in enumerate(self._session.stages)}

        def named(kind: str) -> dict[str, int]:
            return {
                "/".join(str(place[stage]) for stage in of): number
                for of, number in self._numbers[kind].items()
                if of[0] in place  # that of a preview is not
            }

        return {
            "names": stage_names(self._session.applied),
            "changes": ["", *(changes_text(self._session, p) for p in self._session.applied)],
            "version": self._version,
            "alone": named("alone"),
            "merged": named("merged"),
            "pairs": named("pairs"),
            "codes": named("codes"),
            "codeDifferences": named("codeDifferences"),
            "preview": self._preview and self._preview.copy(),
        }

    def _model(self, module: fx.GraphModule, stage: int, *more: str) -> ModelDetails:
        applied = stage_names(self._session.applied)[1 : stage + 1]
        return model_details(module, model_name(self._session), [*applied, *more])
