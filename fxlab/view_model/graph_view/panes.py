"""The graphs on a screen: one, or the stage that is shown and beside it the one that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fxlab.drawing import Picture
from fxlab.drawing.rendering.dot import Side, side_by_side
from fxlab.overlays import Overlay
from fxlab.view_model.graph_view.counterparts import Counterparts
from fxlab.view_model.graph_view.scene import Scene
from fxlab.view_model.graph_view.stages import Stages
from fxlab.view_model.wire import clip

if TYPE_CHECKING:
    from torch import fx

    from fxlab.session import Session

MOST_COUNTERPARTS = 500
"""Boxes that are named as counterparts of one box."""
CHANGES = "changes"
"""On whose behalf groups are opened that hold what is different between two stages."""


@dataclass(frozen=True)
class Selection:
    """What a person has pointed at."""

    kind: Literal["node", "group"]
    name: str
    """Name of the node, or path of the group."""
    before: bool = False
    """Whether it is in the graph beside the one that is shown."""


class Panes:
    """One graph, or two in which the same groups are open.

    Parameters
    ----------
    session
        Whose stages are shown.
    """

    def __init__(self, session: Session) -> None:
        self.stages = Stages(session)
        self.shown = Scene(self.stages.graph)
        """The stage that is shown, or two stages as one graph."""
        self.before: Scene | None = None
        """The stage beside it."""
        self._counterparts: Counterparts | None = None

    def show(self) -> None:
        """Show the stages that are chosen now."""
        stages = self.stages
        self._counterparts = None
        self.shown.show(stages.graph, stages.marks)
        if not stages.beside:
            self.before = None
        elif self.before is None:
            self.before = self.shown.beside(stages.before, stages.marks)
        else:
            self.before.show(stages.before, stages.marks)
        if not stages.shows_changes:
            return self.shown.forget(CHANGES)
        for scene in self.scenes:
            scene.uncover(stages.marks, CHANGES)
        return None

    @property
    def scenes(self) -> list[Scene]:
        """The scenes there are, the shown one first."""
        return [self.shown] if self.before is None else [self.shown, self.before]

    def scene(self, before: bool) -> Scene:
        """Return the scene of a side; raises ``ValueError`` if there is none."""
        if not before:
            return self.shown
        if self.before is None:
            raise ValueError("No stage is shown beside another.")
        return self.before

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """Take back what was opened and closed in the ``with`` block if the block raises."""
        # What is open in one scene is open in all.
        with self.shown.tentative():
            yield

    def open(self, path: str) -> None:
        """Open a group wherever it is; raises ``ValueError`` if it is nowhere."""
        self._wherever(path, Scene.open)

    def close(self, path: str) -> None:
        """Close a group wherever it is; raises ``ValueError`` if it is nowhere."""
        self._wherever(path, Scene.close)

    def draw(self) -> list[Picture]:
        """Lay out what is visible of each scene."""
        return [scene.draw(self.stages.signatures) for scene in self.scenes]

    def dot(self, overlays: Sequence[Overlay]) -> str:
        """Return what is visible in the DOT language: two scenes from left to right, as on the screen.

        Parameters
        ----------
        overlays
            One for each scene, or none.
        """
        if self.before is None:
            return self.shown.dot(next(iter(overlays), None))
        numbers = self.stages.number, self.stages.number_before or 0
        sides = [
            Side(self.stages.title(number), scene.view, scene.marks())
            for number, scene in zip(numbers, self.scenes, strict=True)
        ]
        return str(side_by_side(sides[::-1], overlays[::-1]).source)

    def find_node(self, name: str, before: bool = False) -> Selection:
        """Return the selection of a node; one that is gone from the stage that is shown is found beside it.

        Raises
        ------
        ValueError
            If there is no node of that name.
        """
        for side in (before, True):
            selection = Selection("node", name, side)
            if self.holds(selection):
                return selection
        raise ValueError(f"The graph has no node named {clip(name, 200)!r}.")

    def is_visible(self, selection: Selection) -> bool:
        """Whether a selected node has a box of its own on the screen."""
        return self.scene(selection.before).is_visible(selection.name)

    def uncover(self, selection: Selection) -> None:
        """Open the groups around a node, and those around its counterparts."""
        self.scene(selection.before).uncover([selection.name])
        if self.before is not None:
            self.scene(not selection.before).uncover(self._opposite([selection.name], selection.before))

    def holds(self, selection: Selection) -> bool:
        """Whether a selection is of something that is there."""
        if selection.before and self.before is None:
            return False
        hierarchy = self.scene(selection.before).hierarchy
        names = hierarchy.groups if selection.kind == "group" else hierarchy.position_of
        return selection.name != "" and selection.name in names

    def node_of(self, selection: Selection) -> fx.Node:
        """Return the node that is selected."""
        hierarchy = self.scene(selection.before).hierarchy
        node = hierarchy.leaves[hierarchy.position_of[selection.name]].node
        if node.name == selection.name:
            return node
        # A parameter is drawn with the node that reads it.
        return next(other for other in node.all_input_nodes if other.name == selection.name)

    def box_of(self, selection: Selection) -> str | None:
        """Return the id of the visible box that stands for a selection."""
        scene = self.scene(selection.before)
        if selection.kind == "node":
            return scene.box_of(selection.name)
        return scene.box_of_group(selection.name)

    def counterparts(self, selection: Selection | None) -> list[str]:
        """Return the ids of the visible boxes on the other side that stand for a selection."""
        if self.before is None or selection is None:
            return []
        here, there = self.scene(selection.before), self.scene(not selection.before)
        if selection.kind == "group" and selection.name in there.hierarchy.groups:
            box = there.box_of_group(selection.name)
            if box is not None:
                return [box]
        names = [selection.name] if selection.kind == "node" else here.nodes_of_group(selection.name)
        boxes = dict.fromkeys(map(there.view.box_of.get, self._opposite(names, selection.before)))
        return [box for box in boxes if box is not None][:MOST_COUNTERPARTS]

    def _wherever(self, path: str, action: Callable[[Scene, str], None]) -> None:
        holding = [scene for scene in self.scenes if path in scene.hierarchy.groups]
        for scene in holding or [self.shown]:
            action(scene, path)

    def _opposite(self, names: Sequence[str], before: bool) -> list[str]:
        if self._counterparts is None:
            self._counterparts = Counterparts(self.stages.before, self.stages.stage)
        return self._counterparts.of(names, before)
