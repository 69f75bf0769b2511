"""Panels of the page as a person has arranged them: folded or open, and how large."""

from __future__ import annotations

from typing import Any

STANDINGS = ("auto", "open", "folded")
"""Of a panel; ``"auto"`` opens it while there is something in it to show."""

LARGEST = 10_000

AT_FIRST: dict[str, Any] = {
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
    if not isinstance(value, dict) or value.keys() != AT_FIRST.keys():
        raise ValueError(f"An arrangement of panels is an object with {', '.join(AT_FIRST)}.")
    right = {
        **{name: value[name] in STANDINGS for name in ("passes", "details", "tables")},
        **{name: _is_size(value[name]) for name in ("left", "right", "bottom")},
    }
    wrong = [name for name, is_right in right.items() if not is_right]
    if wrong:
        raise ValueError(f"The arrangement of panels has a wrong {wrong[0]}.")
    return value


def _is_size(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return value is None
    return isinstance(value, int | float) and 0 <= value <= LARGEST
