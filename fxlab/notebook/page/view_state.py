"""The view of the page on the graph, set by Python or chosen by a person, and checked."""

from __future__ import annotations

from typing import Any

from fxlab.notebook.page.conforming import conforms, required
from fxlab.view_model.protocol import PanelState, ViewState

NOTHING, BELOW, ORIGINAL = "", "below", "original"

Comparison = str | int
"""The stage to compare with: :data:`NOTHING`, :data:`BELOW` (whichever that is), or the number of one."""

MOST_PANES = 6
"""Graphs that can be read on one screen."""

AT_FIRST: ViewState = {
    "stage": None, "compared": "", "beside": False, "between": [], "opened": None, "query": "", "overlay": "",
    "selected": None, "direction": "down", "shapes": False, "lines": "alike", "bookkeeping": False,
}  # fmt: skip
"""The last stage, its overview, and nothing selected."""


def checked_view(value: object) -> dict[str, Any]:
    """Return a view that may come from anywhere; raises ``ValueError`` for other values."""
    required(value, ViewState, "a view")
    view: dict[str, Any] = value  # type: ignore[assignment]
    if len(view["between"]) > MOST_PANES - 2:
        raise ValueError(f"There is a view with a wrong between: at most {MOST_PANES} graphs can be read.")
    return view


def checked_comparison(number: int, compared: object) -> Comparison:
    """Return the stage to compare a stage with; raises ``ValueError`` if it cannot be."""
    if compared in (NOTHING, None):
        return NOTHING
    if number and compared == BELOW:
        return BELOW
    if number and compared == ORIGINAL:
        return 0
    if conforms(compared, int) and isinstance(compared, int) and compared < number:
        return compared
    earlier = ", ".join(map(str, range(number)))
    offered = f'"below", "original" or the number of an earlier stage: {earlier}' if number else "nothing"
    raise ValueError(f"Stage {number} cannot be compared with {compared!r}, but with {offered}.")


LARGEST = 10_000

PANELS_AT_FIRST: PanelState = {
    "passes": "auto", "details": "auto", "tables": "auto", "left": None, "right": None, "bottom": None,
}  # fmt: skip
"""Nothing chosen. The sizes are in CSS pixels."""


def checked_panels(value: object) -> dict[str, Any]:
    """Return an arrangement that may come from anywhere; raises ``ValueError`` for other values."""
    required(value, PanelState, "an arrangement of panels")
    panels: dict[str, Any] = value  # type: ignore[assignment]
    if any((panels[side] or 0) > LARGEST for side in ("left", "right", "bottom")):
        raise ValueError(f"There is an arrangement of panels that are larger than {LARGEST} pixels.")
    return panels
