"""The graphs of a session that a page has: the last stage at once, others when it asks for them."""

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
"""Graphs that a page may have of stages that are gone, before everything is written anew."""


class SessionGraphs:
    """Numbers the graphs of a session, until :meth:`reset` looks at its stages anew."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.data = GraphData()
        self._alone: dict[fx.GraphModule, int] = {}
        self._merged: dict[tuple[fx.GraphModule, fx.GraphModule], int] = {}
        self._pairs: dict[tuple[fx.GraphModule, fx.GraphModule], int] = {}
        self._codes: dict[fx.GraphModule, int] = {}
        self._code_differences: dict[tuple[fx.GraphModule, fx.GraphModule], int] = {}
        self._previews: dict[str, ShownPreview] = {}
        self._preview: ShownPreview | None = None
        self._version = 0

    def reset(self) -> None:
        """Forget the graphs of stages that are gone."""
        self._version += 1
        self._previews, self._preview = {}, None
        stages = set(self._session.stages)
        self._alone = {stage: number for stage, number in self._alone.items() if stage in stages}
        self._merged = {both: number for both, number in self._merged.items() if stages.issuperset(both)}
        self._pairs = {both: number for both, number in self._pairs.items() if stages.issuperset(both)}
        self._codes = {stage: number for stage, number in self._codes.items() if stage in stages}
        self._code_differences = {
            both: number for both, number in self._code_differences.items() if stages.issuperset(both)
        }
        self.data.codes.forget_others(self._codes.values())
        kept = {*self._alone.values(), *self._merged.values()}
        if self.data.forget_others(kept) > MOST_FORGOTTEN:
            self.data = GraphData()
            self._alone, self._merged, self._pairs = {}, {}, {}
            self._codes, self._code_differences = {}, {}

    def alone(self, stage: int) -> int:
        """Return the number of the graph of a stage."""
        module = self._session.stages[stage]
        if module not in self._alone:
            signatures = tuple(p.signature for p in self._session.passes)
            shown = ShownGraph.alone(module, signatures)
            self._alone[module] = self.data.add(shown, self._model(module, stage))
        return self._alone[module]

    def merged(self, stage: int, before: int) -> int:
        """Return the number of the graph of two stages as one."""
        # Colours are those of the stage.
        self.alone(stage)
        both = self._session.stages[stage], self._session.stages[before]
        if both not in self._merged:
            shown = ShownGraph.merged(both[1], both[0])
            self._merged[both] = self.data.add(shown, self._model(both[0], stage))
        return self._merged[both]

    def pair(self, stage: int, before: int) -> int:
        """Return the number of two stages side by side."""
        numbers = self.alone(stage), self.alone(before)
        both = self._session.stages[stage], self._session.stages[before]
        if both not in self._pairs:
            self._pairs[both] = self.data.add_pair(*numbers, changes_between(both[1], both[0]), CHANGES)
        return self._pairs[both]

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
        self._preview["code"], self._preview["difference"] = self._codes[after], difference

    def _code_of(self, module: fx.GraphModule) -> int:
        if module not in self._codes:
            self._codes[module] = self.data.codes.add(module)
        return self._codes[module]

    def _difference_of(self, before: fx.GraphModule, after: fx.GraphModule) -> int:
        both, numbers = (after, before), (self._code_of(before), self._code_of(after))
        if both not in self._code_differences:
            self._code_differences[both] = self.data.codes.add_difference(*numbers)
        return self._code_differences[both]

    def preview(self, p: Transformation) -> None:
        """Add what a pass would make of the last stage; if it raises, nothing changes."""
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

        def named(pairs: dict[tuple[fx.GraphModule, fx.GraphModule], int]) -> dict[str, int]:
            return {
                f"{place[after]}/{place[before]}": number
                for (after, before), number in pairs.items()
                if after in place  # that of a preview is not
            }

        return {
            "names": stage_names(self._session.applied),
            "changes": ["", *(changes_text(self._session, p) for p in self._session.applied)],
            "version": self._version,
            "alone": {str(place[stage]): number for stage, number in self._alone.items()},
            "merged": named(self._merged),
            "pairs": named(self._pairs),
            "codes": {str(place[stage]): n for stage, n in self._codes.items() if stage in place},
            "codeDifferences": named(self._code_differences),
            "preview": self._preview and self._preview.copy(),
        }

    def _model(self, module: fx.GraphModule, stage: int, *more: str) -> ModelDetails:
        applied = stage_names(self._session.applied)[1 : stage + 1]
        return model_details(module, model_name(self._session), [*applied, *more])
