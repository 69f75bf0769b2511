"""Light colours of the picture. A page's style sheet overrides them by class."""

from __future__ import annotations

from dataclasses import dataclass

INK, SOFT_INK = "#1f2430", "#5c6475"
EDGE = "#a3abba"
CHANGED, CHANGED_FILL = "#d9480f", "#fff1e6"


@dataclass(frozen=True, slots=True)
class Colours:
    """Fill and border of a kind of box."""

    fill: str
    border: str


_BY_CLASS = (
    ("fx-plumbing", Colours("#fafbfc", "#dfe3ea")),
    ("fx-placeholder", Colours("#eef0f4", "#8a93a6")),
    ("fx-output", Colours("#eef0f4", "#8a93a6")),
    ("fx-call_module", Colours("#eaf2fe", "#8fb4ea")),
    ("fx-call_method", Colours("#eef8f3", "#9bcdb4")),
    ("fx-call_function", Colours("#eef8f3", "#9bcdb4")),
    ("fx-get_attr", Colours("#fdf6e7", "#dcc083")),
    ("fx-repeat", Colours("#f3effc", "#b3a1e0")),
    ("fx-group", Colours("#f3effc", "#b3a1e0")),
)
CLUSTER = (Colours("#f9fafc", "#d8dde6"), Colours("#f2f4f8", "#d0d6e1"))
"""Of clusters, by whether their depth is even or odd."""
CHIP = Colours("#fff8dd", "#e0c766")
CHIP_INK = "#6b5710"


def box_colours(classes: str) -> Colours:
    """Return the colours of a box with these CSS classes."""
    words = classes.split()
    colours = next((colours for word, colours in _BY_CLASS if word in words), Colours("#ffffff", "#c5ccd8"))
    return Colours(CHANGED_FILL, CHANGED) if "fx-changed" in words else colours
