"""The description of the selection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fxlab.view_model.details import group_details, model_details, node_details
from fxlab.view_model.graph_view.panes import Panes, Selection
from fxlab.view_model.pass_state import rewrites_of_node
from fxlab.view_model.session_state import model_name

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.session import Session


def describe(
    selection: Selection | None, session: Session, panes: Panes, explained: Mapping[str, pd.DataFrame | str]
) -> dict[str, Any]:
    """Describe a node, a group, or the whole model if nothing is selected, and say what stands for it.

    Parameters
    ----------
    selection
        What is selected; it must be there.
    session
        The session that is shown.
    panes
        The graphs on the screen.
    explained
        Signature of a pass -> what it says of its candidates.
    """
    if selection is None:
        stages, hierarchy = panes.stages, panes.shown.hierarchy
        return model_details(stages.stage, hierarchy, model_name(session), stages.applied)
    scene, box = panes.scene(selection.before), panes.box_of(selection)
    sides = {"before": selection.before, "counterparts": panes.counterparts(selection)}
    if selection.kind == "group":
        group = scene.hierarchy.groups[selection.name]
        return group_details(group, scene.hierarchy, box, scene.marks()) | sides
    node = panes.node_of(selection)
    rewrites = rewrites_of_node(session, node, explained)
    return node_details(node, scene.hierarchy, box, explained, rewrites) | sides
