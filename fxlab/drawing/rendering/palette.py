"""Light colours of the picture. A page's style sheet overrides them by class."""

from dataclasses import dataclass, replace

INK, SOFT_INK, PAPER = "#1f2430", "#5c6475", "#ffffff"
EDGE = "#a3abba"
CHANGED, CHANGED_FILL, CHANGED_CLUSTER = "#d9480f", "#fff1e6", "#eebd9f"
GROUP_INK = "#7a63b8"
"""Of the signs by which a page opens and closes groups."""


@dataclass(frozen=True, slots=True)
class Colours:
    """Fill and border of a kind of box."""

    fill: str
    border: str
    dashed: bool = False


_BY_CLASS = (
    ("fx-recomputed", Colours("#fdf0e2", "#d9a066", dashed=True)),
    ("fx-bookkeeping", Colours("#fafbfc", "#dfe3ea")),
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
LANE = "#e4e8ef"
"""Around a column of a training step."""
SAVED = "#7aa7c7"
"""Of lines along which a step keeps values for its backward pass."""
CHIP = Colours("#fff8dd", "#e0c766")
CHIP_INK = "#6b5710"

HEAT = ("#fffaf2", "#f0913a")
"""Fill of the lowest and of the highest value of an overlay."""
HEAT_LINE = "#b98a55"
PLAIN = Colours("#ffffff", "#d5dae3", dashed=True)
"""Of boxes for which an overlay has no value."""
KINDS = (
    Colours("#e6effd", "#86abe3"),
    Colours("#fdf4df", "#d9b662"),
    Colours("#f0eafc", "#ab97de"),
    Colours("#e7f5ee", "#8cc3a7"),
    Colours("#f3d5e2", "#be185d"),
    Colours("#cae0e7", "#0e7490"),
    Colours("#d8e2ca", "#4d7c0f"),
    Colours("#e9edf3", "#7f8aa0"),
)
"""Of an overlay's words, the most frequent first; the last stands for all others."""


def box_colours(classes: str) -> Colours:
    """Return the colours of a box with these CSS classes."""
    words = classes.split()
    colours = next((colours for word, colours in _BY_CLASS if word in words), Colours("#ffffff", "#c5ccd8"))
    return Colours(CHANGED_FILL, CHANGED) if "fx-changed" in words else colours


def cluster_colours(classes: str, depth: int) -> Colours:
    """Return the colours of an open group that this many others are around."""
    colours = CLUSTER[depth % 2]
    return replace(colours, border=CHANGED_CLUSTER) if "fx-changed" in classes.split() else colours


def painted_colours(classes: str, paint: Colours) -> Colours:
    """Return the colours of a box that an overlay paints; a changed one keeps its border."""
    return replace(paint, border=CHANGED, dashed=False) if "fx-changed" in classes.split() else paint


def heat_colours(level: float) -> Colours:
    """Return the colours of a value between the lowest (0) and the highest (1)."""
    level = min(1.0, max(0.0, level))
    low, high = ([int(end[i : i + 2], 16) for i in (1, 3, 5)] for end in HEAT)
    mixed = (round(a + (b - a) * level) for a, b in zip(low, high, strict=True))
    return Colours("#" + "".join(f"{part:02x}" for part in mixed), HEAT_LINE)
