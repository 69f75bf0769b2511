"""The part of an inspector that answers the page's messages which change the stack of passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fxlab.base.garbage import without_collecting
from fxlab.graphs.unfolded import unfolded
from fxlab.notebook.page.messages import MessageError, answers
from fxlab.notebook.page.view_state import NOTHING
from fxlab.notebook.screen import Screen
from fxlab.transformations import CandidatePass
from fxlab.view_model.pass_state import failure_state, readable_name
from fxlab.view_model.protocol import ShownNearMiss, ShownRewrite
from fxlab.view_model.step_through import shown_near_miss, shown_rewrite

if TYPE_CHECKING:
    from fxlab.transformations import Transformation


class StackScreen(Screen):
    """A screen on which passes are switched, moved and limited; one that fails says so on its card."""

    @answers("toggle", "Switching a pass")
    def _switch(self, signature: str, on: bool) -> None:
        if self.session._internals.is_on(self._offered(signature)) == on:
            return
        doing, action = ("Applying", self.session.apply) if on else ("Reverting", self.session.revert)
        self._change(signature, doing, action)

    @answers("exclude", "Excluding a candidate")
    def _exclude(self, signature: str, node: str) -> None:
        p = self._offered(signature)
        before = set(self.session._internals.excluded(p.name))
        self._change(signature, "Excluding a candidate of", lambda p: self.session.exclude(p, node))
        fresh = [
            candidate for candidate in self.session._internals.excluded(p.name) if candidate not in before
        ]
        self._select_successor(node, [name for candidate in fresh for name in candidate])

    @answers("include", "Including a candidate")
    def _include(self, signature: str, node: str) -> None:
        p = self._offered(signature)
        self._change(signature, "Including a candidate of", lambda p: self.session.include(p, node))
        now = self.session.passes[p.name]
        records = now.rewrites(self.session.graph_module) if isinstance(now, CandidatePass) else []
        self._select_successor(node, [n for r in records if node in r.candidate for n in r.marked])

    @answers("rewrite", "Reading the rewrite")
    def _rewrite(self, signature: str, number: int) -> ShownRewrite:
        return shown_rewrite(self.session, self._offered(signature), number)

    @answers("apply-up-to", "Applying the rewrites up to one")
    def _apply_up_to(self, signature: str, count: int) -> None:
        doing = f"Applying {count} rewrites of"
        self._change(signature, doing, lambda p: self.session.apply_up_to(p, count))

    @answers("near-miss", "Looking for the reason")
    def _near_miss(self, signature: str, node: str) -> ShownNearMiss:
        p = self._offered(signature)
        return shown_near_miss(p, self.session.stages, self._below(p), node)

    @answers("move", "Moving a pass")
    def _move(self, signature: str, place: int) -> None:
        self._change(signature, "Moving", lambda p: self.session.move(p, place))

    @answers("remove", "Removing a pass")
    def _remove(self, signature: str) -> None:
        self._change(signature, "Removing", self.session.remove)

    @answers("undo", "Undoing the last change", is_slow=True)
    def _undo(self) -> None:
        if self.session._internals.can_undo:
            self.session.undo()

    @answers("redo", "Redoing the change", is_slow=True)
    def _redo(self) -> None:
        if self.session._internals.can_redo:
            self.session.redo()

    @answers("reset", "Switching all passes off", is_slow=True)
    def _reset(self) -> None:
        self.session.revert()

    def _change(self, signature: str, doing: str, action: Callable[[Transformation], object]) -> None:
        p = self._offered(signature)
        words = f"{doing} {readable_name(p)}"
        self._pass_errors.pop(signature, None)
        try:
            # A full search for garbage takes as long as the change itself.
            with self._busy(words), without_collecting():
                action(p)
        except Exception as error:
            failure = self._pass_errors[signature] = failure_state(error, p, self._below(p))
            if failure["node"]:
                self._look_at_node(failure["node"], failure["stage"])
            # The error of a pass is told once, where its traceback is.
            is_told = bool(failure["traceback"])
            self._show_error(
                f"{words} failed", "Its card says why, and where." if is_told else failure["text"]
            )
            self._show_passes()

    def _look_at_node(self, node: str, stage: int) -> None:
        """Select a node, at the stage that has it if another one is shown."""
        last, shown = len(self._session.applied), self._shown_view["stage"]
        selected = {"kind": "node", "name": node, "pane": 0}
        if stage == (last if shown is None else shown):
            return self._look(selected=selected)
        number = None if stage == last else stage
        return self._look(stage=number, compared=NOTHING, beside=False, between=[], selected=selected)

    def _below(self, p: Transformation) -> int:
        """Return the number of the stage that a pass is or would be applied to."""
        offered = [each.name for each in self.session.passes]
        lower = offered[: offered.index(p.name)]
        return sum(each.name in lower for each in self.session.applied)

    def _offered(self, signature: str) -> Transformation:
        for p in self.session.passes:
            if p.signature == signature:
                return p
        raise MessageError(f"The session has no pass with the signature {signature!r}.")

    def _select_successor(self, node: str, names: Sequence[str]) -> None:
        """Select the successor of a node, if the node was selected."""
        there = {other.name for other in unfolded(self.session.graph_module).graph.nodes}
        became = [name for name in names if name in there]
        if became and self._shown_view["selected"] == {"kind": "node", "name": node, "pane": 0}:
            self._look(selected={"kind": "node", "name": became[0], "pane": 0})
