"""Remarks on a session above its graph: where its trace or compile ends, why it is specialised."""

import linecache
import re
from typing import Any

from torch import fx

from fxlab.session import Session
from fxlab.tracing.dynamo.graph_break import GraphBreak
from fxlab.tracing.report import DATA, FIXED, REAL, WHOLE, Finding, TraceReport
from fxlab.view_model.protocol import Remark, Remarks
from fxlab.view_model.wire import clip

_OF_TRACE = "The traced graph is specialised"
_OF_BREAK = "A graph break ends this graph"
_OF_STORY = "The function was compiled more than once"
_OF_COMPILE = "Parts of the compile are not shown"

_TOLD = {
    "recompile": (
        "Recompiled",
        "No earlier compile of the function fits this call.",
        "Keep the value as it is between calls, pass it as a tensor, or mark the size as dynamic.",
    ),
    "limit": ("Not compiled any more", "Later calls that no compile fits run in Python.", ""),
    "skip": ("Left to Python", "Dynamo does not compile the function here.", ""),
}
"""Words for the kinds of events that are remarks: about it, its meaning, and advice."""
_BREAK_MEANS = "Dynamo ended this graph here. Python runs this line, and the code after it is another graph."
_BREAK_ADVICE = "Write the line so that Dynamo can follow it, or move it out of the compiled code."
_HINT = re.compile(r"^\s*Hint: (.+)$", flags=re.MULTILINE)


def session_remarks(session: Session) -> Remarks:
    """Return the remarks to read before a session's graph is taken for the whole model."""
    compiled = session._internals.compiled
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
    """Return why Dynamo ended a graph, at which line, and Dynamo's advice."""
    hints = " ".join(dict.fromkeys(_HINT.findall(found.details)))
    told = remark(f"Graph break: {found.reason}", found.place, _BREAK_MEANS, hints or _BREAK_ADVICE)
    # As it was when it was compiled, should the file have changed since.
    if found.code:
        told["code"] = clip(found.code.strip(), 400)
    return told


MOST_REMARKS = 100

_ADVICE = {
    "branch on data": (
        "Python decided on the values of a tensor. The graph has the branch that was taken, and refuses "
        "inputs for which the model would take another.",
        "Trace on inputs that take the branch that is wanted, or write the decision with torch.where or "
        "torch.cond.",
    ),
    "fixed size": (
        "The graph refuses inputs of other sizes, which the model takes.",
        "Trace on inputs of the size that is wanted, or compute with the tensor as a whole where Python goes "
        "through it or counts it.",
    ),
    "setting": (
        "Python reads this, and may do something else for another value. The graph checks that it is the "
        "same when it runs, unless torch only chooses a kernel by it.",
        "Trace under the setting under which the graph is to run.",
    ),
    "gradient": (
        "The outputs are the model's, gradients may not be.",
        "Train the model itself, or compare gradients: fxlab.verdict(..., gradients=True).",
    ),
    "state": (
        "The model changes itself when it runs, and the graph does not: a second run may differ.",
        "Keep the state in a registered buffer of one shape, or make it an input and an output.",
    ),
}
"""By the kind of a finding: its meaning, and the remedy."""

_STEPS = {
    DATA: "Sizes are followed; what the model decides on data is checked.",
    WHOLE: "Sizes are followed; parts of the model are single nodes.",
    FIXED: "The graph refuses inputs of other sizes.",
    REAL: "The graph refuses inputs of other sizes, and other numbers where Python has read them.",
}
"""By the rung that a trace ended on: the inputs it holds for."""
_STEP_ADVICE = (
    "Write the line so that torch can follow it, or trace on inputs like those that the graph is to run on."
)
_PLACE = re.compile(r" ?\(at (?P<place>.+?:\d+): .*\)$", flags=re.DOTALL)


def trace_remarks(graph_module: fx.GraphModule) -> list[Remark]:
    """Return why a traced module is specialised; nothing for one that was not traced by fxlab."""
    report = graph_module.meta.get("trace")
    if report is None:
        return []
    found = [_of_finding(finding) for finding in report.limits()]
    steps = _steps(report)
    if report.rung in (DATA, WHOLE):  # the line is told by its finding
        places = {remark["place"] for remark in found}
        steps = [step for step in steps if step["place"] not in places]
    return (steps + found)[:MOST_REMARKS]


def _of_finding(finding: Finding) -> Remark:
    means, advice = _ADVICE[finding.kind]
    return remark(f"{finding.what}: {finding.detail}", finding.where, means, advice)


def _steps(report: TraceReport) -> list[Remark]:
    """Return a remark for each cause for which a more general way to trace was left."""
    causes = dict.fromkeys(step.partition(": ")[2] for step in report.steps_down)
    remarks = []
    for cause in causes:
        found = _PLACE.search(cause)
        words = f"Traced on {report.rung}: {cause[: found.start()] if found else cause}"
        place = found["place"] if found else ""
        remarks.append(remark(words, place, _STEPS.get(report.rung, ""), _STEP_ADVICE))
    return remarks


def remark(what: str, place: str, means: str, advice: str) -> Remark:
    """Return a remark as the page receives it; ``place`` is a file and a line, or empty."""
    file, _, line = place.rpartition(":")
    code = linecache.getline(file, int(line)).strip() if line.isdecimal() else ""
    return {
        "what": clip(" ".join(what.split()), 400),
        "place": clip(place, 1_000),
        "code": clip(code, 400),
        "means": means,
        "advice": clip(advice, 1_000),
    }
