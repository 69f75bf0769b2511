"""What a data set has told, in the inspector: the tab Data, and worst batches that open."""

import pytest
import torch
from torch import fx, nn

from fxlab import Session, from_callable, report
from fxlab.notebook.inspector import Inspector


def clamped(graph_module):
    output = graph_module.graph.output_node()
    with graph_module.graph.inserting_before(output):
        output.args = (graph_module.graph.call_function(torch.clamp, (output.args[0], -9.0, 9.0)),)
    graph_module.recompile()


@pytest.fixture
def session():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    result = Session(
        fx.symbolic_trace(model), torch.ones(2, 4), passes=[from_callable(clamped, name="clamp")]
    )
    result.apply("clamp")
    return result


BATCHES = [torch.ones(2, 4), torch.full((2, 4), 1e3), torch.zeros(2, 4)]


def state(inspector, name):
    found = [state for state in inspector._shown_measured if state["name"] == name]
    return found[0] if found else None


def sends(inspector, **message):
    inspector._receive(None, message, [])
    return inspector._shown_status["error"]


def outputs(inspector):
    return inspector._shown_tables["outputs"]["text"]


def test_the_inspector_judges_on_the_data_of_the_session_and_opens_the_worst_batch(session):
    inspector = Inspector(session)
    assert state(inspector, "data") is None
    evaluation = session.evaluate(BATCHES)
    assert evaluation is session._internals.evaluation
    assert state(inspector, "data")["state"] == "none"
    assert sends(inspector, type="measure", name="data") is None
    rows = {row[0]: row[1:] for row in state(inspector, "data")["table"]["rows"]}
    assert rows["batches that agree"][-1] == 3
    assert "different" in state(inspector, "data")["text"]
    sends(inspector, type="measure", name="worst-batches")
    worst = state(inspector, "worst-batches")["table"]
    assert worst["rows"][0][:4] == ["batch 1", "different", "", worst["rows"][0][3]]
    assert worst["numbers"]["batch 1"] == 1
    assert "Same bits" in outputs(inspector)

    assert sends(inspector, type="open-batch", number=1) is None
    assert session.inputs is evaluation.worst[0].inputs
    assert "differ" in outputs(inspector)
    assert state(inspector, "worst-batches")["table"]["rows"][0][2] == "open"
    assert session._internals.evaluation is evaluation
    assert sends(inspector, type="open-batch", number=99) is not None
    sends(inspector, type="open-batch", number=1)
    assert session.inputs is not evaluation.worst[0].inputs
    assert "Same bits" in outputs(inspector)

    session.revert("clamp")
    assert session._internals.evaluation is None
    sends(inspector, type="measure", name="data")
    assert session._internals.evaluation.agrees
    inspector.close()


def test_a_report_has_what_the_data_told(session, tmp_path):
    session.evaluate(BATCHES)
    text = report(session, path=tmp_path / "a.html").read_text()
    assert '"title":"Worst batches"' in text
    assert '"leads":"batches"' not in text


def test_a_partial_result_is_taken_up_again(session):
    def stopping():
        yield BATCHES[0]
        raise KeyboardInterrupt

    assert session.evaluate(stopping()).stopped
    inspector = Inspector(session)
    sends(inspector, type="measure", name="data")
    assert state(inspector, "data")["state"] == "failed"
    assert "iterator" in state(inspector, "data")["text"]
    inspector.close()


def test_inputs_that_are_set_are_those_of_the_next_verdict(session):
    assert session.verdict().agrees
    session.inputs = BATCHES[1]
    assert not session.verdict().agrees
    with pytest.raises(TypeError, match="inputs"):
        session.inputs = 3
    assert session.inputs is BATCHES[1]


def test_a_session_without_data_says_so(session):
    with pytest.raises(ValueError, match=r"session.evaluate\(batches\)"):
        session.evaluate()
