"""The preview of a pass before it is switched on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import fx

from fxlab.drawing.hierarchy.changes import CHANGES, merged_graph
from fxlab.transformations import RewritePass
from fxlab.units import counted
from fxlab.view_model.pass_state import readable_name

if TYPE_CHECKING:
    from fxlab.session import Session
    from fxlab.transformations import Transformation
    from fxlab.view_model.graph_view.scene import Marks


@dataclass(frozen=True)
class Preview:
    """The present model and what a pass would make of it, as one graph."""

    signature: str
    """Of the pass."""
    name: str
    text: str
    """How much it would do."""
    graph: fx.GraphModule = field(repr=False)
    marks: Marks = field(repr=False)

    @classmethod
    def of(cls, session: Session, p: Transformation) -> Preview:
        """Try a pass out on a copy of a session's model; the session stays as it is.

        Raises
        ------
        fxlab.TransformationError
            If the pass raises.
        """
        after = session.preview(p)
        graph, marks = merged_graph(session.graph_module, after)
        return cls(p.signature, readable_name(p), _words(p, after, marks), graph, marks)

    def state(self) -> dict[str, Any]:
        """Describe it in words."""
        return {"signature": self.signature, "name": self.name, "text": self.text}


def _words(p: Transformation, after: fx.GraphModule, marks: Marks) -> str:
    if not marks:
        return "no changes"
    counts = Counter(change for (change,) in marks.values())
    (change, count), *others = ((change, counts[change]) for change in CHANGES if counts[change])
    nodes = ", ".join([f"{counted(count, 'node')} {change}", *(f"{n:,} {other}" for other, n in others)])
    if not isinstance(p, RewritePass):
        return nodes
    return f"{counted(len(p.rewrites(after)), 'rewrite')} ({nodes})"
