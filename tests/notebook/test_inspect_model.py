"""From a model to its inspector in one call."""

import pytest
import torch
from inspected import MUL_TO_ADD, Model, Page, make_session
from torch import fx, nn

import fxlab
from fxlab import MergeLinears, Session
from fxlab.notebook.inspector import Inspector

INPUTS = (torch.ones(2, 3, 6, 6),)


def test_a_model_is_traced_and_shown():
    inspector = fxlab.inspect(Model().eval(), INPUTS)
    assert isinstance(inspector, Inspector)
    assert isinstance(inspector.session, Session)
    assert inspector.session.inputs is INPUTS
    model = Page(inspector).data.tables["graphs"][0]["model"]
    assert (model["title"], model["inputs"]) == ("Model", ["x"])
    assert {"name": "Linear", "count": 2} in model["contents"]
    assert "<svg" in inspector.svg


def test_a_notebook_shows_where_a_model_fails(capsys):
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(4, 3))
    with pytest.raises(fxlab.TraceError, match="itself raises"):
        fxlab.inspect(model, torch.ones(2, 4))
    assert "<Drawing: 5 nodes in 5 boxes, 1 highlighted>" in capsys.readouterr().out


def test_a_session_is_shared():
    session = make_session()
    assert fxlab.inspect(session).session is session


def test_the_passes_that_are_given_are_the_ones_offered():
    gm = fx.symbolic_trace(Model().eval())
    inspector = fxlab.inspect(Session(gm, INPUTS, passes=[MUL_TO_ADD, MergeLinears()]))
    assert [card["name"] for card in inspector._shown_passes["passes"]] == ["Mul to add", "Merge linears"]


def test_a_session_without_passes_is_shown():
    inspector = fxlab.inspect(Session(fx.symbolic_trace(Model().eval()), INPUTS, passes=[]))
    assert inspector._shown_passes["passes"] == []
    assert not inspector._shown_passes["canUndo"]


@pytest.mark.parametrize("value", [None, "bert-base-uncased", 3, Model, torch.ones(2), {"model": 1}])
def test_what_is_no_model_is_refused_in_words(value):
    with pytest.raises(TypeError, match=r"model: expected a torch\.nn\.Module.* got \S+"):
        fxlab.inspect(value)


def test_a_session_has_its_own_inputs():
    with pytest.raises(TypeError, match="inputs: a session has its own"):
        fxlab.inspect(make_session(), INPUTS)
    with pytest.raises(TypeError, match=r"session: expected an fxlab\.Session, got a Model"):
        Inspector(Model())


def test_the_details_say_how_a_model_was_traced_in_words():
    class Decides(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    with pytest.warns(fxlab.TraceWarning):
        inspector = fxlab.inspect(Decides().eval(), torch.ones(2, 3))
    first, *rest = Page(inspector).data.tables["graphs"][0]["model"]["trace"]
    assert first == "Traced on dynamic shapes, with data"
    assert rest[0].startswith("left: dynamic shapes: ")
    assert rest[1].startswith("branch on data: ")
    assert any(line.startswith("check: the inputs same bits") for line in rest)
    assert not any("Finding(" in line for line in rest)


def test_the_details_say_how_many_operations_a_node_and_a_group_make():
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), nn.Tanh())
    inspector = fxlab.inspect(model, torch.ones(2, 4))

    page = Page(inspector)

    def flops(name, kind):
        fields = page.details(name, kind)["fields"]
        return {field["label"]: field["value"] for field in fields}.get("FLOPs")

    assert flops("_0_0", "node") == f"{2 * 2 * 4 * 8}"
    assert flops("_0_1", "node") is None
    assert flops("0", "group") == f"{2 * 2 * 4 * 8 + 2 * 2 * 8 * 3}"
