"""From a model to its inspector in one call."""

import ctypes

import pytest
import torch
from inspected import MUL_TO_ADD, Model, Page, make_session
from torch import fx, nn
from torch.nn import Linear

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

    inspector = fxlab.inspect(Decides().eval(), torch.ones(2, 3))
    with pytest.warns(fxlab.TraceWarning):
        assert inspector.session.applied == ()
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


class ReadsMemory(nn.Module):
    """Can be recorded, and no recording is the model: it reads numbers behind torch's back."""

    def forward(self, x):
        return x * ctypes.c_float.from_address(x.data_ptr()).value


def outputs_of(inspector):
    return inspector._shown_tables["outputs"]


def test_a_model_is_shown_before_it_is_checked_and_checked_before_candidates_are_sought():
    page = Page(fxlab.inspect(Model().eval(), INPUTS))
    assert outputs_of(page.inspector)["state"] == "pending"
    drawn = page.names()
    shown = []
    while not page.asks({"type": "candidates"}):
        shown.append(outputs_of(page.inspector))
    assert [each["state"] for each in shown[:2]] == ["pending", "ready"]
    assert shown[-1]["text"].startswith("No pass is on: same bits as the model on the inputs; ")
    assert shown[-1]["agrees"] is True
    assert drawn <= page.names()
    assert page.error is None


def test_a_click_that_comes_before_the_check_is_not_lost():
    page = Page(fxlab.inspect(Model().eval(), INPUTS))
    merge = MergeLinears()
    page.switches(merge, True)
    assert page.error is None
    assert page.inspector.session.applied.names == ("merge-linears",)
    checks = page.inspector.session.original.meta["trace"].of_kind("check")
    assert any(check.what == "the inputs" for check in checks)
    assert outputs_of(page.inspector)["state"] == "pending", "the graph is painted first"
    assert page.outputs["agrees"]


def test_a_graph_that_is_not_the_model_is_shown_as_such_and_never_handed_out(tmp_path):
    page = Page(fxlab.inspect(ReadsMemory(), torch.tensor([2.0, 3.0])))
    page.looks_for_candidates()
    assert outputs_of(page.inspector)["state"] == "failed"
    assert "does not compute what the model computes" in outputs_of(page.inspector)["text"]
    assert page.error["title"] == "Checking the graph failed"
    for message in ({"type": "undo"}, {"type": "file", "suffix": "html"}, {"type": "file", "suffix": "dot"}):
        number = page.error["number"]
        assert page.asks(message) is None
        assert page.error["number"] > number
    for _ in range(2):
        with pytest.raises(fxlab.TraceError, match="other data"):
            _ = page.inspector.session


def test_an_interrupted_check_waits_until_the_session_is_used(monkeypatch):
    page = Page(fxlab.inspect(Model().eval(), INPUTS))
    with monkeypatch.context() as patch:

        def interrupt(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(Linear, "forward", interrupt)
        page.looks_for_candidates()
    assert "interrupted" in outputs_of(page.inspector)["text"]
    assert not page.inspector._first_look.is_checked
    assert page.inspector.session.verdict()
    assert outputs_of(page.inspector)["agrees"]


def test_a_picture_is_exchanged_in_words_when_the_model_has_changed():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    page = Page(fxlab.inspect(model, torch.ones(2, 4)))
    model[1] = nn.Tanh()
    page.looks_for_candidates()
    assert outputs_of(page.inspector)["text"].startswith("Another graph than at first")
    assert "Tanh" in page.inspector.svg
