"""Values of changed nodes that a report is written with, as it has no kernel to compute them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from fxlab.base.words import counted
from fxlab.session import Session
from fxlab.transformations.marks import marks_of
from fxlab.validation import NodeValues
from fxlab.validation.tensor_values.node_values import values_in
from fxlab.view_model.node_value import non_finite_origin, part_state, value_state
from fxlab.view_model.pass_state import describe_error
from fxlab.view_model.protocol import ValuePart, WrittenValue, WrittenValues

MOST_NODES = 24
MOST_PARTS = 6
"""Tensors of one node: its value, the original's, their difference, and weights."""
MOST_CELLS = 48
"""Of a map, in each direction: 12 KB of text, and 2 MB for all nodes."""


def written_values(session: Session, graphs: Sequence[int]) -> WrittenValues:
    """Compute the values of the changed nodes of the last stage, which these ``graphs`` show."""
    stage = session.graph_module
    names = _changed(stage)
    nodes: dict[str, WrittenValue] = {}
    failed = ""
    for name in names[:MOST_NODES]:
        try:
            nodes[name] = _written(session, stage, name)
        except Exception as error:  # a model may raise anything
            failed = failed or f" Others cannot be computed: {describe_error(error)}"
    return {"text": _words(len(nodes), len(names)) + failed, "graphs": list(graphs), "nodes": nodes}


def _changed(stage: fx.GraphModule) -> list[str]:
    """Return the changed nodes and those that read them, in which a difference can be seen."""
    marked = marks_of(stage)
    nodes = [node for node in stage.graph.nodes if node.op != "output"]
    return [n.name for n in nodes if n.name in marked or any(r.name in marked for r in n.all_input_nodes)]


def _words(written: int, changed: int) -> str:
    if not changed:
        return "This report has no values: no pass has changed a node."
    which = "the nodes" if written == changed else f"{written} of the {counted(changed, 'node')}"
    return (
        f"This report has values of {which} of the last stage that passes have changed or that read such "
        "a node, compared with the original."
    )


def _written(session: Session, stage: fx.GraphModule, name: str) -> WrittenValue:
    original = None if session.original is stage else session.original
    values = values_in(stage, name, session.inputs, original)
    first = non_finite_origin(values, stage, name, session.inputs)
    state = value_state(values, "Original", first)
    state["tensors"] = state["tensors"][:MOST_PARTS]
    return {"value": state, "parts": _parts(values, len(state["tensors"]), state["notes"])}


def _parts(values: NodeValues, count: int, notes: list[str]) -> list[ValuePart]:
    parts = []
    for place in range(count):
        try:
            parts.append(part_state(values, place, most=MOST_CELLS))
        except ValueError as error:
            notes.append(f"{values.tensors[place].name}: {error}")
    return parts
