"""Outlines of graphs that a page asks the kernel to lay out; checked, as Graphviz can read files."""

from __future__ import annotations

import re

_ID = r'"[a-z0-9-]{1,200}"'
_NUMBERS = r'[a-z]+="[0-9.]+"'
_LABEL = r"<<TABLE(?: [A-Z]+=\"[A-Z0-9]+\")+><TR><TD ALIGN=\"LEFT\"> </TD></TR></TABLE>>"  # room for a title
_LINE = re.compile(
    rf"{_ID} \[id={_ID}(?: {_NUMBERS})+\]"  # a box
    rf"|{_ID} -> {_ID} \[id={_ID}(?: {_NUMBERS})?\]"
    rf"|subgraph {_ID.replace('[a-z0-9-]', '[a-z0-9_-]')} \{{"
    rf'|graph \[id={_ID} labelloc="t" labeljust="l" margin="14" label={_LABEL}\]'
    r"|(?:graph|node|edge) \[(?:(?:rankdir|nodesep|ranksep|splines|nslimit1?|maxiter|mclimit|pad|shape"
    r'|fixedsize|margin|penwidth|arrowsize|label)="[A-Za-z0-9.]*" ?)+\]'
    r"|digraph \{"
    r"|\}"
)


def is_outline(text: str) -> bool:
    """Return whether a text is a graph as pages write it: boxes with sizes, lines, and no words.

    Parameters
    ----------
    text
        In the DOT language; ``outline`` in ``frontend/src/viewer/drawing/dot.ts`` writes it.
    """
    return all(_LINE.fullmatch(line) for line in text.split("\n"))
