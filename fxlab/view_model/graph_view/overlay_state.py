"""An overlay as the page receives it: a value for each box that is shown."""

from __future__ import annotations

from typing import Any

from fxlab.drawing import View
from fxlab.drawing.rendering.paint import values_of
from fxlab.drawing.rendering.palette import CHANGED, HEAT, HEAT_LINE, INK, KINDS, PLAIN
from fxlab.overlays import Overlay
from fxlab.view_model.wire import clip, to_json

PAINTS = {
    "heat": HEAT,
    "heatLine": HEAT_LINE,
    "plain": (PLAIN.fill, PLAIN.border),
    "kinds": [(colours.fill, colours.border) for colours in KINDS],
    "changed": CHANGED,
    "ink": INK,
}
"""The colours of a picture that is saved, which are those of paper whatever the page has."""


def overlay_state(overlay: Overlay, view: View) -> dict[str, Any]:
    """Describe an overlay on a view."""
    values = {box: to_json(value) for box, value in values_of(view, overlay).items()}
    return described(overlay) | {"total": to_json(overlay.of(overlay.values)), "values": values}


def described(overlay: Overlay) -> dict[str, Any]:
    """Describe an overlay without its values."""
    return {
        "name": overlay.name,
        "title": clip(overlay.title, 80),
        "unit": overlay.unit,
        "combine": overlay.combine,
        "numeric": overlay.is_numeric,
    }
