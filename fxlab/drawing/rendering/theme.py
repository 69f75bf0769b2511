"""Fonts and colours of pictures and pages: widths of texts, estimated without a browser; light colours.

A page's style sheet overrides the colours by class.
"""

import unicodedata
from dataclasses import dataclass, replace
from functools import lru_cache

FONT = "Helvetica,Arial,sans-serif"

# Advance widths of the printable ASCII characters in 1/1000 of the font size, after the metrics that
# Helvetica, Arial and Liberation Sans share.
_REGULAR = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278,
    500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469,
    556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500,
    278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
)  # fmt: skip
_BOLD = (
    278, 333, 474, 556, 556, 889, 722, 238, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 333, 333, 584, 584, 584, 611, 975, 722, 722, 722, 722, 667, 611, 778, 722, 278,
    556, 722, 611, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584,
    556, 333, 556, 611, 556, 611, 556, 333, 611, 611, 278, 278, 556, 278, 889, 611, 611, 611, 611, 389, 556,
    333, 611, 556, 778, 556, 556, 500, 389, 280, 389, 584,
)  # fmt: skip
_OWN_SYMBOLS = {"→": 1000, "×": 584, "·": 278, "…": 1000, "–": 556}  # noqa: RUF001


@lru_cache(4096)
def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width of a line of text in the font's units of ``size``, to two digits as it is written."""
    widths = _BOLD if bold else _REGULAR
    return round(sum(_advance(character, widths) for character in text) * size / 1000, 2)


@lru_cache(4096)
def has_known_width(text: str) -> bool:
    """Whether every character's width is a metric of the font and not a guess."""
    return all(" " <= c <= "~" or c in _OWN_SYMBOLS for c in text)


def _advance(character: str, widths: tuple[int, ...]) -> int:
    code = ord(character)
    if 32 <= code < 127:
        return widths[code - 32]
    if character in _OWN_SYMBOLS:
        return _OWN_SYMBOLS[character]
    if unicodedata.combining(character):
        return 0
    return 1250 if code > 0xFFFF or unicodedata.east_asian_width(character) in "WF" else 850


def printable(text: str) -> str:
    """Return a text that any markup can hold on one line: no control, surrogate or bidi characters."""
    if text.isprintable():
        return text
    return "".join(" " if c in "\t\n\r\v\f" else c for c in text if not _is_forbidden(c) or c in "\t\n\r\v\f")


def _is_forbidden(character: str) -> bool:
    code = ord(character)
    return (
        code < 32
        or 127 <= code < 160
        or 0xD800 <= code <= 0xDFFF
        or code & 0xFFFE == 0xFFFE
        or 0xFDD0 <= code <= 0xFDEF
        or 0x2028 <= code <= 0x202E
        or 0x2066 <= code <= 0x2069
    )


def shorten(text: str, longest: int) -> str:
    """Make a text printable and cut its middle out where it is longer than ``longest`` characters."""
    # Only the ends of a huge text can be shown: the rest need not be looked at.
    if len(text) > 4 * longest + 64:
        text = text[: 2 * longest + 32] + "\N{HORIZONTAL ELLIPSIS}" + text[-(2 * longest + 31) :]
    text = printable(text)
    if len(text) <= longest:
        return text
    tail = longest // 3
    return text[: longest - tail - 1] + "…" + text[-tail:]


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
