"""The events of compiled functions, in their order, as a table: hooks note them, sessions show them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fxlab.base.author_frames import is_author_code
from fxlab.base.first_use import pd
from fxlab.tracing.dynamo.graph_break import GraphBreak

COMPILE, RECOMPILE = "compile", "recompile"
BREAK, SKIP, LIMIT, ERROR = "break", "skip", "limit", "error"
COLUMNS = (
    "compile", "function", "kind", "reason", "explanation", "hint", "place", "code", "seconds", "graph",
)  # fmt: skip
NO_OPERATORS = "No ops traced"
"""The beginning of Dynamo's reason where there is nothing to compile."""
_EXPLANATION = re.compile(r"^\s*Explanation: (.+?)(?=\n\s*(?:Hint|Developer debug context):|\Z)", re.M | re.S)
_HINT = re.compile(r"^\s*Hint: (.+?)(?=\n\s*(?:Hint|Developer debug context):|\n\s*\n|\Z)", re.M | re.S)
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<name>.+)_at_(?P<line>\d+)$")


@dataclass
class Event:
    """Something that Dynamo has done with a function."""

    compile: str
    """Dynamo's number of the compile, such as ``0/1``: the second one of the first function."""
    function: str
    """The name of the function; with the line, for the rest of one after a graph break."""
    kind: str
    reason: str = ""
    explanation: str = ""
    hint: str = ""
    file: str = ""
    line: int = 0
    code: str = ""
    """The line of Python that it is about."""
    seconds: float | None = None
    graph: int | None = None
    """The number of the graph in the record."""

    @property
    def place(self) -> str:
        """File and line, if they are known."""
        return f"{self.file}:{self.line}" if self.file else ""


@dataclass
class Story:
    """All events of a record or of a compile."""

    events: list[Event] = field(default_factory=list)

    def number_graphs(self, compiles: Iterable[str]) -> None:
        """Note which graph each compile has made; ``compiles`` are those of the graphs, in their order."""
        numbers: dict[str, int] = {}
        for number, compiled in enumerate(compiles, 1):
            numbers.setdefault(compiled, number)
        for event in self.events:
            if event.kind in (COMPILE, RECOMPILE):
                event.graph = numbers.get(event.compile)

    def break_of(self, compile_id: str) -> GraphBreak | None:
        """Return the break that has ended the graph of a compile, if one has."""
        found = (e for e in reversed(self.events) if e.compile == compile_id and e.kind == BREAK)
        event = next(found, None)
        if event is None:
            return None
        hints = "".join(f"\n  Hint: {hint}" for hint in event.hint.split("\n") if hint)
        details = f"{event.reason}\n  Explanation: {event.explanation}{hints}"
        return GraphBreak(event.reason, details, event.file, event.line, event.code)

    def why_no_graph(self) -> str:
        """Return the first reason why a function was left to Python, in words; empty if there is none."""
        kinds = BREAK, SKIP, LIMIT, ERROR
        reasons = (e for e in self.events if e.kind in kinds and not e.reason.startswith(NO_OPERATORS))
        first = next(reasons, None)
        if first is None:
            return ""
        place = f" ({first.place}: {first.code})" if first.file and is_author_code(first.file) else ""
        return f"{first.reason}{place}. {first.explanation}".strip()

    def of(self, compile_ids: Iterable[str]) -> list[Event]:
        """Return the events of the functions that some compiles are of."""
        functions = {number.partition("/")[0] for number in compile_ids}
        return [event for event in self.events if event.compile.partition("/")[0] in functions]


def story_table(events: Iterable[Event]) -> pd.DataFrame:
    """List events; see :meth:`fxlab.compiler.CompileRecord.story`."""
    rows = [tuple(getattr(event, column) for column in COLUMNS) for event in events]
    table = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)
    return table.astype({"seconds": "float64"})


def function_name(name: str) -> str:
    """Return the name of a function as its author knows it."""
    found = _RESUMED.match(name)
    return f"{found['name']} after line {found['line']}" if found else name


def told(message: str) -> dict[str, str]:
    """Read the reason, the explanation and the hints in a message of Dynamo."""
    text = message.strip()
    explanation = _EXPLANATION.search(text)
    hints = dict.fromkeys(_line(hint) for hint in _HINT.findall(text))
    return {
        "reason": text.partition("\n")[0].strip(),
        "explanation": _line(explanation[1]) if explanation else "",
        "hint": "\n".join(hints),
    }


def _line(text: Any) -> str:
    return " ".join(str(text).split())
