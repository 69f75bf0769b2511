"""The state of a session as a page shows it: outputs, changed nodes, and the words of tables."""

from collections.abc import Iterable

from torch.fx import GraphModule

from fxlab.graphs.unfolded import unfolded
from fxlab.session import Session
from fxlab.session.comparisons import NothingToRunError
from fxlab.tracing.report import Found
from fxlab.transformations import Transformation
from fxlab.transformations.marks import marks_of
from fxlab.view_model.pass_state import describe_error, readable_name
from fxlab.view_model.protocol import ChangedNodes, Outputs, Progress
from fxlab.view_model.table_state import agrees, output_state, table_state, verdict_text
from fxlab.view_model.wire import clip

NO_PASS_IS_ON: Outputs = {
    "state": "none",
    "text": "No pass is on: this is the model as traced.",
    "table": None,
}

CHECKING: Outputs = {"state": "pending", "text": "Checking: not compared with the model yet.", "table": None}
COMPARING: Outputs = {"state": "pending", "text": "Comparing outputs with the original …", "table": None}
RECORDED_AGAIN = "Another graph than at first: the model was recorded again."


def check_failure(error: BaseException) -> Outputs:
    """Return the words in place of a check that has ended without a result."""
    words = "The check was interrupted: it is made when the graph is used."
    is_stopped = isinstance(error, KeyboardInterrupt)
    return {"state": "failed", "text": words if is_stopped else describe_error(error), "table": None}


def _as_traced(original: GraphModule) -> Outputs:
    """Return the inputs on which a trace gives the model's bits, if it was compared."""
    report = original.meta.get("trace")
    checks = [] if report is None else report.of_kind("check")
    same = [finding.what for finding in checks if finding.code == Found.SAME_BITS.code]
    if not same:
        return NO_PASS_IS_ON
    words = f"No pass is on: same bits as the model on {'; '.join(same)}."
    return {"state": "ready", "text": clip(words, 600), "table": None, "agrees": True}


def outputs_state(session: Session) -> Outputs:
    """Compare the outputs of a session with the original's; incomparable ones are described in words."""
    if not session.applied:
        return _as_traced(session.original)
    try:
        found = session._internals.known_verdict()
        if found is not None and not found.outputs:  # proved without a run
            return {"state": "ready", "text": verdict_text(found), "table": None, "agrees": agrees(found)}
        return output_state(session._internals.compare_outputs(), found)
    except Exception as error:
        state: Progress = "none" if isinstance(error, NothingToRunError) else "failed"
        # A ValueError of fxlab's own explains the failure itself.
        is_told = isinstance(error, ValueError)
        words = ("" if is_told else "The outputs could not be compared: ") + describe_error(error)
        return {"state": state, "text": words, "table": None}


def changed_nodes_state(session: Session) -> ChangedNodes:
    """List the nodes that the passes of a session have changed, and by which of them."""
    if not session.applied:
        return {"table": {"columns": [], "rows": [], "total": 0}, "text": NO_PASS_IS_ON["text"]}
    nodes = session._internals.transformed_nodes()
    names = {p.signature: readable_name(p) for p in session.passes}
    marks = marks_of(unfolded(session.graph_module))
    words = [", ".join(names.get(s, s[:12]) for s in marks.get(str(n), ())) for n in nodes.index]
    shown = nodes.drop(columns=[n for n in nodes if str(n).endswith("_before") and n != "target_before"])
    for column in ("before", "target_before"):
        shown[column] = [", ".join(dict.fromkeys(values)) for values in shown[column]]
    shown.insert(0, "changed_by", words)
    on = [f"{readable_name(p)}: {clip(str(session.changes(p)), 300)}." for p in session.applied]
    return {"table": table_state(shown, "Node"), "text": "\n".join(on)}


def model_name(session: Session) -> str:
    """Return the name of the class that a session's model was traced from."""
    original = session.original
    return str(original.meta.get("class_name", type(original).__name__))


def stage_names(applied: Iterable[Transformation]) -> list[str]:
    """Return the names of the stages that passes make, from the original on."""
    return ["Original", *map(readable_name, applied)]


def changes_text(session: Session, p: Transformation) -> str:
    """Return the changes of a pass that is on, or its nearest miss, as a sentence; "" for neither."""
    changes = session.changes(p)
    return clip(str(changes), 300) if changes or changes.nearest else ""
