"""Measures for drawing in the page: sizes, fonts and the colours of paper."""

from fxlab.drawing import view
from fxlab.drawing.rendering import box, palette
from fxlab.drawing.rendering.palette import CHANGED, HEAT, HEAT_LINE, INK, KINDS, PLAIN
from fxlab.drawing.rendering.typography import FONT, text_width
from fxlab.view_model.protocol import Metrics, Paints

REVEAL_BUDGET = 110
"""Boxes that may be on the screen after the nodes a pass changed were uncovered."""

METRICS: Metrics = {
    "font": FONT,
    "titleSize": box.TITLE_SIZE, "lineSize": box.LINE_SIZE, "chipSize": box.CHIP_SIZE,
    "titleHeight": box.TITLE_HEIGHT, "lineHeight": box.LINE_HEIGHT, "chipHeight": box.CHIP_HEIGHT,
    "paddingX": box.PADDING_X, "paddingY": box.PADDING_Y, "toggleRoom": box.TOGGLE_ROOM,
    "chipGap": box.CHIP_GAP, "chipPadding": box.CHIP_PADDING, "chipRowsGap": box.CHIP_ROWS_GAP,
    "more": (text_width("and  more", box.CHIP_SIZE), text_width("0", box.CHIP_SIZE)),
    "chipsPerRow": box.CHIPS_PER_ROW, "mostChips": box.MOST_CHIPS, "chipReaders": view.CHIP_READERS,
    "parts": (view.MOST_IN_A_COLUMN, view.SHORTEST_COLUMN, view.COLUMN, view.LONGEST_COLUMN),
    "arrow": text_width(box.TO, box.CHIP_SIZE), "revealBudget": REVEAL_BUDGET, "sheet": box.SHEET,
    "ink": palette.INK, "softInk": palette.SOFT_INK, "edge": palette.EDGE, "groupInk": palette.GROUP_INK,
    "changed": palette.CHANGED, "changedCluster": palette.CHANGED_CLUSTER,
    "chipInk": palette.CHIP_INK, "chipColours": (palette.CHIP.fill, palette.CHIP.border),
    "clusterColours": [(colours.fill, colours.border) for colours in palette.CLUSTER],
}  # fmt: skip
"""The measures for placing and drawing boxes."""

PAINTS: Paints = {
    "heat": HEAT, "heatLine": HEAT_LINE, "plain": (PLAIN.fill, PLAIN.border),
    "kinds": [(colours.fill, colours.border) for colours in KINDS], "changed": CHANGED, "ink": INK,
}  # fmt: skip
"""The colours of overlays in a saved picture, which are those of paper also on a dark page."""
