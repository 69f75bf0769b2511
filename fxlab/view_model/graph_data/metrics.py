"""Measures for drawing in the page, sent with its data: sizes, fonts and the colours of paper."""

from fxlab.drawing import view
from fxlab.drawing.rendering import box, theme
from fxlab.drawing.rendering.theme import CHANGED, FONT, HEAT, HEAT_LINE, INK, KINDS, PLAIN, text_width
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
    "ink": theme.INK, "softInk": theme.SOFT_INK, "edge": theme.EDGE, "groupInk": theme.GROUP_INK,
    "changed": theme.CHANGED, "changedCluster": theme.CHANGED_CLUSTER,
    "chipInk": theme.CHIP_INK, "chipColours": (theme.CHIP.fill, theme.CHIP.border),
    "clusterColours": [(colours.fill, colours.border) for colours in theme.CLUSTER],
}  # fmt: skip
"""The measures for placing and drawing boxes."""

PAINTS: Paints = {
    "heat": HEAT, "heatLine": HEAT_LINE, "plain": (PLAIN.fill, PLAIN.border),
    "kinds": [(colours.fill, colours.border) for colours in KINDS], "changed": CHANGED, "ink": INK,
}  # fmt: skip
"""The colours of overlays in a saved picture, which are those of paper also on a dark page."""
