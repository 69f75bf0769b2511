"""Graphviz's HTML-like labels for DOT: the words in boxes, the titles of clusters, headings and the legend.

Every cell has a fixed size, worked out from the metrics of one font, so that neither words nor the fonts of a
machine decide where anything lies.
"""

import html
from collections.abc import Sequence
from math import ceil

from fxlab.drawing.rendering import theme
from fxlab.drawing.rendering.box import (
    BADGE_ROOM,
    CHIP_GAP,
    CHIP_HEIGHT,
    CHIP_ROWS_GAP,
    LINE_HEIGHT,
    LINE_SIZE,
    SHEET,
    TITLE_HEIGHT,
    Box,
    chip_width,
)
from fxlab.drawing.rendering.paint import Legend

TITLE_POINTS, CHIP_POINTS, COLUMN_POINTS = 14, 9, 12
"""Inside of labels Graphviz takes whole points only: the largest below the sizes that boxes are made for.

Lines have the size and colour that nodes and graphs give to their labels.
"""
LEGEND_WIDTH, SWATCH_WIDTH, SCALE_HEIGHT, LEGEND_GAP = 212, 18, 12, 5
BADGE_PADDING = 7
SWATCH_GAP = 8
_TO_THE_LEFT = 'ALIGN="LEFT" BALIGN="LEFT"'


def box_label(box: Box) -> str:
    """Return the label of a closed box."""
    width = int(box.width - 2 * SHEET)
    light = "fx-bookkeeping" in box.classes
    title = _text(box.title, TITLE_POINTS, theme.SOFT_INK if light else theme.INK, bold=not light)
    gap = _row(_td("", width, CHIP_ROWS_GAP))
    rows = []
    for chips in box.chip_rows:
        rows += [_row(_td(_chip_row(chips), width, CHIP_HEIGHT)), gap]
    rows.append(_row(_td(title, width, TITLE_HEIGHT)))
    rows += [_row(_td(_line(line), width, LINE_HEIGHT)) for line in box.lines]
    if box.badge:
        rows += [_row(_td("", width, BADGE_ROOM)), _row(_td(_badge(box.badge), width, CHIP_HEIGHT))]
    for chips in box.reader_rows:
        rows += [gap, _row(_td(_chip_row(chips), width, CHIP_HEIGHT))]
    return f"<{_table(rows)}>"


def cluster_label(box: Box) -> str:
    """Return the title of an open group, in one row: its words, and at the end of its room the badge."""
    words = _text(box.title, TITLE_POINTS, theme.INK, bold=True) + "".join(
        f"  {_line(line)}" for line in box.lines
    )
    badge_width = _badge_width(box.badge) if box.badge else 0
    cells = [_td(words, round(box.width) - badge_width, box.height, _TO_THE_LEFT)]
    if box.badge:
        cells.append(_td(_badge(box.badge), badge_width, box.height))
    return f"<{_table([_row(*cells)], _size(box.width, box.height))}>"


def room_label(box: Box) -> str:
    """Return a label of the size of :func:`cluster_label`, without its words."""
    empty = '<TD ALIGN="LEFT"> </TD>'
    return f"<{_table([_row(empty)], _size(box.width, box.height))}>"


def column_label(words: str, *, is_room: bool = False) -> str:
    """Return the heading of a column of a training step, or a label of its size."""
    cell = '<TD ALIGN="LEFT"> </TD>'
    if not is_room:
        cell = _td(
            _text(words, COLUMN_POINTS, theme.SOFT_INK), column_width(words), TITLE_HEIGHT, _TO_THE_LEFT
        )
    return f"<{_table([_row(cell)], _size(column_width(words), TITLE_HEIGHT))}>"


def column_width(words: str) -> int:
    """Return the width of the heading of a column."""
    return ceil(theme.text_width(words, COLUMN_POINTS))


def legend_label(legends: Sequence[Legend]) -> str:
    """Return the meaning of the colours of a picture."""
    rows = [row for legend in legends for row in _legend_rows(legend)]
    return f"<{_table(rows, spacing=LEGEND_GAP)}>"


def _legend_rows(legend: Legend) -> list[str]:
    title = _text(legend.title, TITLE_POINTS, theme.INK, bold=True)
    rows = [_row(_td(title, LEGEND_WIDTH, TITLE_HEIGHT, _TO_THE_LEFT))]
    if legend.ends is not None:
        scale = f'BGCOLOR="{":".join(theme.HEAT)}" BORDER="1" COLOR="{theme.HEAT_LINE}"'
        rows.append(_row(_td("", LEGEND_WIDTH, SCALE_HEIGHT, scale)))
        # The last cell is as wide as its words: they end where the scale ends, in any font.
        last = ceil(theme.text_width(legend.ends[1], LINE_SIZE))
        widths = LEGEND_WIDTH - last, last
        ends = zip(legend.ends, widths, strict=True)
        rows.append(_nested(*(_td(_line(end), width, LINE_HEIGHT, _TO_THE_LEFT) for end, width in ends)))
    room = LEGEND_WIDTH - SWATCH_WIDTH - SWATCH_GAP
    for colours, words in legend.kinds:
        swatch = f'BGCOLOR="{colours.fill}" BORDER="1" COLOR="{colours.border}"'
        rows.append(
            _nested(
                _td("", SWATCH_WIDTH, SCALE_HEIGHT, swatch),
                _td("", SWATCH_GAP, SCALE_HEIGHT),
                _td(_line(words), room, SCALE_HEIGHT, _TO_THE_LEFT),
            )
        )
    return rows


def _chip_row(chips: Sequence[str]) -> str:
    widths = [chip_width(words) for words in chips]
    width = sum(map(round, widths)) + CHIP_GAP * (len(chips) - 1)
    pairs = zip(chips, widths, strict=True)
    cells = [f"<TD>{_pill(words, theme.CHIP_INK, own, theme.CHIP)}</TD>" for words, own in pairs]
    return _table([_row(_td("", CHIP_GAP, CHIP_HEIGHT).join(cells))], _size(width, CHIP_HEIGHT))


def _badge(words: str) -> str:
    return _pill(
        words, theme.PAPER, _badge_width(words), theme.Colours(theme.CHANGED, theme.CHANGED), bold=True
    )


def _badge_width(words: str) -> int:
    return ceil(theme.text_width(words, CHIP_POINTS, bold=True)) + 2 * BADGE_PADDING


def _pill(words: str, ink: str, width: float, colours: theme.Colours, *, bold: bool = False) -> str:
    look = f'STYLE="ROUNDED" BGCOLOR="{colours.fill}" COLOR="{colours.border}" {_size(width, CHIP_HEIGHT)}'
    text = _text(words, CHIP_POINTS, ink, bold=bold)
    # The border is inside.
    return _table([_row(_td(text, round(width) - 2, CHIP_HEIGHT - 2))], look, border=1)


def _table(rows: Sequence[str], attributes: str = "", *, border: int = 0, spacing: int = 0) -> str:
    return (
        f'<TABLE BORDER="{border}" CELLBORDER="0" CELLSPACING="{spacing}" CELLPADDING="0" {attributes}>'
        f"{''.join(rows)}</TABLE>"
    )


def _row(*cells: str) -> str:
    return f"<TR>{''.join(cells)}</TR>"


def _nested(*cells: str) -> str:
    """Return a row whose cells need not be as wide as those of other rows."""
    return _row(f"<TD>{_table([_row(*cells)])}</TD>")


def _td(written: str, width: float, height: float, attributes: str = "") -> str:
    return f"<TD {_size(width, height)} {attributes}>{written}</TD>"


def _size(width: float, height: float) -> str:
    return f'FIXEDSIZE="TRUE" WIDTH="{width:.0f}" HEIGHT="{height:.0f}"'


def _line(words: str) -> str:
    """Return words as they are without a font of their own."""
    # In labels too, a backslash and a letter stand for the name of a node or graph.
    return html.escape(words).replace("\\", r"\\") or " "


def _text(words: str, size: int, colour: str, *, bold: bool = False) -> str:
    written = f"<B>{_line(words)}</B>" if bold else _line(words)
    return f'<FONT POINT-SIZE="{size}" COLOR="{colour}">{written}</FONT>'
