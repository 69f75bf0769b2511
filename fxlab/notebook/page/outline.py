"""Outlines of graphs that a page asks the kernel to lay out; checked, as Graphviz can read files."""

from __future__ import annotations

import re

from fxlab.drawing.rendering.dot import DOWN, RIGHT, Arrangement, outline_head

_HEADS = frozenset(
    outline_head(Arrangement(direction, shapes)) for direction in (DOWN, RIGHT) for shapes in (False, True)
)
_ID = r'"[a-z0-9-]{1,200}"'
_NUMBER = r"[0-9]{1,7}(?:\.[0-9]{1,4})?"
_LABEL = (  # room for a title
    r'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0" FIXEDSIZE="TRUE" WIDTH="[0-9]{1,7}"'
    r' HEIGHT="[0-9]{1,7}"><TR><TD ALIGN="LEFT"> </TD></TR></TABLE>>'
)
_LINE = re.compile(
    rf'{_ID} \[id={_ID} width="{_NUMBER}" height="{_NUMBER}"\]'
    rf'|{_ID} -> {_ID} \[id={_ID}(?: penwidth="{_NUMBER}")?(?: weight="{_NUMBER}")?\]'
    r'|subgraph "cluster_[a-z0-9-]{1,200}" \{'
    rf'|graph \[id={_ID} labelloc="t" labeljust="l" margin="14" label={_LABEL}\]'
    r"|\}"
)


def is_outline(text: str) -> bool:
    """Return whether a text is an outline, as ``frontend/src/viewer/drawing/dot.ts`` writes it too."""
    lines = text.split("\n")
    head = len(next(iter(_HEADS)))
    return tuple(lines[:head]) in _HEADS and all(map(_LINE.fullmatch, lines[head:]))
