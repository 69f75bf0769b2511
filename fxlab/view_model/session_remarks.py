"""Remarks on a session: where its trace or its compile ends, and what could not be seen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fxlab.view_model.protocol import Remark, Remarks
from fxlab.view_model.trace_remarks import MOST_REMARKS, remark, trace_remarks
from fxlab.view_model.wire import clip

if TYPE_CHECKING:
    from fxlab.session import Session
    from fxlab.tracing import GraphBreak

_OF_TRACE = "The traced graph is specialised"
_OF_BREAK = "A graph break ends this graph"
_OF_STORY = "The function was compiled more than once, or for some sizes alone"
_OF_COMPILE = "Parts of the compile are not shown"

_TOLD = {
    "recompile": (
        "Recompiled",
        "No earlier compile of the function fits this call.",
        "Keep the value as it is between calls, pass it as a tensor, or mark the size as dynamic.",
    ),
    "limit": ("Not compiled any more", "Later calls that no compile fits run in Python.", ""),
    "skip": ("Left to Python", "Dynamo does not compile the function here.", ""),
    "specialise": ("Specialised", "The graph is for this size alone, because of this line.", ""),
}
"""Words for the kinds of events that are remarks: about it, its meaning, and advice."""
_BREAK_MEANS = "Dynamo ended this graph here. Python runs this line, and the code after it is another graph."
_BREAK_ADVICE = "Write the line so that Dynamo can follow it, or move it out of the compiled code."
_HINT = re.compile(r"^\s*Hint: (.+)$", flags=re.MULTILINE)


def session_remarks(session: Session) -> Remarks:
    """Return what to know before a session's graph is taken for the whole model."""
    compiled = session.compiled
    if compiled is None:
        return {"about": _OF_TRACE, "remarks": trace_remarks(session.original)}
    broken = [] if compiled.graph_break is None else [break_remark(compiled.graph_break)]
    told = [_told(event) for event in compiled.story().to_dict("records") if event["kind"] in _TOLD]
    about = _OF_BREAK if broken else _OF_STORY if told else _OF_COMPILE
    others = [remark(words, "", "", "") for words in compiled.remarks]
    return {"about": about, "remarks": (broken + told + others)[:MOST_REMARKS]}


def _told(event: dict[Any, Any]) -> Remark:
    """Return an event of the function that the graph is of."""
    what, means, advice = _TOLD[event["kind"]]
    found = remark(f"{what}: {event['reason']}", event["place"], means, event["hint"] or advice)
    if event["code"]:
        found["code"] = clip(event["code"], 400)
    return found


def break_remark(found: GraphBreak) -> Remark:
    """Return why Dynamo ended a graph, at which line, and what Dynamo says helps."""
    hints = " ".join(dict.fromkeys(_HINT.findall(found.details)))
    told = remark(f"Graph break: {found.reason}", found.place, _BREAK_MEANS, hints or _BREAK_ADVICE)
    # As it was when it was compiled, should the file have changed since.
    if found.code:
        told["code"] = clip(found.code.strip(), 400)
    return told
