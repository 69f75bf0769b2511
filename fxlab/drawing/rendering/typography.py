"""Widths of texts, estimated without a browser or fonts: the layout needs them first."""

import unicodedata
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
