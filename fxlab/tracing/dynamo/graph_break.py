"""Places at which Dynamo ends a graph, read from its private notes: captures and compiles keep them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule


@dataclass(frozen=True)
class GraphBreak:
    """A place at which Dynamo ended a graph and went on in Python.

    Examples
    --------
    >>> print(GraphBreak("Call to print", "Call to print ...", "model.py", 7, "print(x)"))
    Call to print (model.py:7: print(x))
    """

    reason: str
    """Why, in one line."""
    details: str
    """All that Dynamo says about it, hints included."""
    file: str = ""
    line: int = 0
    code: str = ""
    """The line of Python that it could not capture."""

    @property
    def place(self) -> str:
        """File and line, if they are known."""
        return f"{self.file}:{self.line}" if self.file else ""

    def __str__(self) -> str:
        place = ": ".join(filter(None, (self.place, self.code)))
        return f"{self.reason} ({place})" if place else self.reason


def break_after(graph_module: GraphModule) -> GraphBreak | None:
    """Return the break that has ended a graph, if one has."""
    return graph_break(getattr(graph_module, "compile_subgraph_reason", None))


def reasons_noted() -> list[Any]:
    """Return Dynamo's notes of graph breaks in this process, also of breaks without a graph before them."""
    return [*(getattr(sys.modules.get("torch._dynamo.utils"), "graph_break_reasons", None) or ())]


def graph_break(reason: Any) -> GraphBreak | None:
    """Return the break that Dynamo's note is about, if it is about one."""
    if not getattr(reason, "graph_break", False):
        return None
    details = str(getattr(reason, "reason", "")).strip()
    first = details.partition("\n")[0]
    frames = list(getattr(reason, "user_stack", None) or ())
    if not frames:
        return GraphBreak(first, details)
    return GraphBreak(first, details, frames[-1].filename, frames[-1].lineno or 0, frames[-1].line or "")
