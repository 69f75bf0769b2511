"""An overlay as the page receives it: a value for each box that is shown."""

from __future__ import annotations

from typing import Any

from fxlab.drawing import Group, Leaf, View
from fxlab.drawing.hierarchy import Hierarchy
from fxlab.overlays import Overlay
from fxlab.screen.wire import clip, to_json


def overlay_state(overlay: Overlay, view: View) -> dict[str, Any]:
    """Describe an overlay on a view."""
    hierarchy = view.hierarchy
    values = {
        item.id: to_json(value)
        for item in [*view.clusters, *view.boxes]
        if (value := overlay.of(names_in(item, hierarchy))) is not None
    }
    return described(overlay) | {"total": to_json(overlay.of(overlay.values)), "values": values}


def described(overlay: Overlay) -> dict[str, Any]:
    """Describe an overlay without its values."""
    return {
        "name": overlay.name,
        "title": clip(overlay.title, 80),
        "unit": overlay.unit,
        "combine": overlay.combine,
        "numeric": not any(isinstance(value, str) for value in overlay.values.values()),
    }


def names_in(item: Group | Leaf, hierarchy: Hierarchy) -> list[str]:
    """Return the names of the nodes that a box draws."""
    if isinstance(item, Leaf):
        return list(item.names)
    return [name for leaf in hierarchy.leaves[item.start : item.stop] for name in leaf.names]
