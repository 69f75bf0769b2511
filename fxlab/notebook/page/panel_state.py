"""Panels of the page as a person has arranged them: folded or open, and how large."""

from __future__ import annotations

from typing import Any

from fxlab.notebook.page.conforming import required
from fxlab.view_model.protocol import PanelState

LARGEST = 10_000

AT_FIRST: PanelState = {
    "passes": "auto",
    "details": "auto",
    "tables": "auto",
    "left": None,
    "right": None,
    "bottom": None,
}
"""Nothing chosen. The sizes are in CSS pixels."""


def checked_panels(value: object) -> dict[str, Any]:
    """Return an arrangement that may come from anywhere; raises ``ValueError`` for what is none."""
    required(value, PanelState, "an arrangement of panels")
    panels: dict[str, Any] = value  # type: ignore[assignment]
    if any((panels[side] or 0) > LARGEST for side in ("left", "right", "bottom")):
        raise ValueError(f"There is an arrangement of panels that are larger than {LARGEST} pixels.")
    return panels
