"""What a report says of passes, verdict and nodes is what its session says, whatever is on."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from received import Received
from test_html_report import Blocks, Page
from torch import fx

import fxlab

PASSES = ("merge-linears", "change-true-div-to-mul-by-inverse", "remove-dead-code", "off")


def off(graph_module: fx.GraphModule) -> None:
    """Return twice what the model does, by a call that is there: its nodes have the names that they had."""
    output = graph_module.graph.output_node()
    with graph_module.graph.inserting_before(output):
        output.args = (graph_module.graph.call_function(torch.mul, (output.args[0], 2.0)),)


@pytest.mark.slow
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.permutations(PASSES), st.integers(0, len(PASSES)), st.integers(1, 3))
def test_a_report_is_read_back_as_the_session_that_it_is_of(tmp_path, order, count, blocks):
    torch.manual_seed(0)
    own = fxlab.from_callable(off, name="off")
    session = fxlab.Session(fx.symbolic_trace(Blocks(blocks)), (torch.randn(2, 4),))
    session.add(own)
    for name in order[:count]:
        session.apply(name)
    data = Page(fxlab.report(session, path=tmp_path / "report.html").read_text(encoding="utf-8")).data

    cards = data["passes"]["passes"]
    assert [card["key"] for card in cards] == [p.name for p in session.passes]
    assert [card["key"] for card in cards if card["on"]] == [p.name for p in session.applied]
    applied = {p.name: number for number, p in enumerate(session.applied, 1)}
    assert {card["key"]: card["stage"] for card in cards if card["on"]} == applied
    assert {card["key"]: card["changes"] for card in cards if card["on"]} == {
        name: str(session.changes(name)) for name in applied
    }

    verdict, outputs = session.verdict(), data["tables"]["outputs"]
    assert outputs.get("agrees", True) is bool(verdict)
    assert bool(verdict) is ("off" not in applied)
    rows = fxlab.compare_outputs(session.original, session.graph_module, session.inputs)
    assert [row[0] for row in (outputs["table"] or {"rows": []})["rows"]] == [*rows.index] * bool(applied)

    received, stages = Received(data["data"]), data["stages"]
    for number, stage in enumerate(session.stages):
        graph = stages["alone"][str(number)]
        assert received.names(graph) == [node.name for node in stage.graph.nodes]
        marked = {node.name for p in session.applied for node in p.get_transformed_nodes(stage)}
        assert received.marked(graph).keys() == marked
