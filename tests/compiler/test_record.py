"""What an unchanged script compiles is recorded, and computes what it does without."""

import copy
import functools
import importlib
import json
import re
import shutil
import types

import pytest
import torch
from functorch.compile import make_boxed_func
from test_hooks import Recorded, left_behind, patched
from tiny_models import Blocks, plant_mistake, relus_to_clamps, without_code
from torch import nn
from torch._inductor.compile_fx import compile_fx

import fxlab
from fxlab.base import heard_calls
from fxlab.compiler.compiling.hooks import _without_code
from fxlab.compiler.recording.steps import Recording
from fxlab.compiler.scripts.script_recorder import ScriptRecorder
from fxlab.html_report.contents import verdict_words
from fxlab.view_model.session_remarks import session_remarks

X = torch.randn(3, 8)


def breaks(x):
    y = torch.relu(x) + 1
    print("here")
    return torch.sigmoid(y)


def with_pass(pass_):
    """Return a backend that compiles with a pass of one's own, and without code."""
    return functools.partial(without_code, post_grad_custom_post_pass=pass_)


@pytest.fixture(scope="module")
def record():
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Blocks().eval()
    with torch.no_grad(), fxlab.compiler.record_compile() as record:
        torch.compile(model, backend=with_pass(plant_mistake))(X)
        torch.compile(breaks, backend="eager")(X)
    record.model = model
    return record


def test_each_graph_that_ran_is_a_session(record):
    assert list(record.sessions) == [f"graph {number}, inference" for number in (1, 2, 3)]
    assert record.remarks == ()
    first = record.sessions["graph 1, inference"]
    assert first.graphs is record.sessions
    names = ["AOTAutograd", "joint/remove_noop_ops", "post_grad/plant_mistake"]
    assert [pass_.name for pass_ in first.passes] == names
    assert list(first.inputs) == ["x"]
    with torch.no_grad():
        assert torch.equal(first.original(**first.inputs)[0], record.model(X)["y"])
    assert dict(first.original.named_parameters()).keys() == dict(record.model.named_parameters()).keys()


def test_the_table_has_a_row_for_each_stack_with_the_reason_of_a_break(record):
    table = record.table
    assert list(table["graph"]) == [1, 2, 3]
    assert list(table["changed"]) == [3, 0, 0]
    assert table["passes"][0] > 20
    assert table["nodes_after"][0] > table["nodes_before"][0]
    assert "test_record.py" in table["break_line"][1]
    assert list(table["break_reason"] != "") == [False, True, False]


def test_switches_say_why_they_are_fixed(record):
    first = record.sessions["graph 1, inference"]
    for switch in (first.revert, lambda name: first.exclude(name, "clone")):
        with pytest.raises(ValueError, match="recorded while a script ran"):
            switch("joint/remove_noop_ops")
    first.revert()
    assert first.applied == first.passes
    assert "record.sessions['graph 1, inference']" in first.to_python()


def test_matches_of_a_recorded_pass_are_told_and_not_excluded():
    with torch.no_grad(), fxlab.compiler.record_compile() as record:
        torch.compile(Blocks().eval(), backend=with_pass(relus_to_clamps(wrong=(1,))))(X)
    (session,) = record.sessions.values()
    name = "post_grad/relus_to_clamps"
    assert list(session.explain(name)["matched"]) == [True] * 3
    assert str(session.changes(name)) == "3 relus become 3 clamp mins"
    assert session.why_not("relu", pass_=name)["matched"].tolist() == [True]
    with pytest.raises(ValueError, match="no match of post_grad/relus_to_clamps can be excluded"):
        session.exclude(name, "relu")
    found = fxlab.bisect(session)
    assert (found.pass_.name, found.rewrites) == (name, ())


def test_other_passes_are_applied_on_top_of_a_recorded_graph(record):
    first = record.sessions["graph 1, inference"]
    first.add(fxlab.EliminateCommonSubexpressions())
    first.apply("eliminate-common-subexpressions")
    assert len(first.applied) == 4
    first.remove("eliminate-common-subexpressions")
    assert len(first.applied) == 3


def returns_nothing(x, count):
    print(count)
    x + 1


def test_a_graph_that_returns_nothing_is_judged_to_have_nothing_compared(capsys):
    torch._dynamo.reset()
    with torch.no_grad(), fxlab.compiler.record_compile() as record:
        torch.compile(returns_nothing, backend=without_code)(X, 1)
    session = list(record.sessions.values())[-1]
    found = [session.verdict(), session.verdict(variants=True), *map(session.verdict, session.passes)]
    assert {(one.status, one.reason) for one in found} == {
        ("nothing compared", "the graph returns no tensors")
    }
    assert not any(found)
    assert verdict_words(session, judge=True) == ("returns nothing", True, "the graph returns no tensors")


def test_one_report_is_written_of_all_recorded_graphs(record, tmp_path):
    text = fxlab.report(record.sessions, path=tmp_path / "a.html", measure=False).read_text()
    first = json.loads(re.search(r'id="fxlab-contents">(.*?)</script>', text, re.DOTALL)[1])
    assert [row["name"] for row in first["graphs"]] == list(record.sessions)
    assert [row["verdict"] for row in first["graphs"]] == ["not judged", *["no pass changed it"] * 2]
    assert [bool(row["ended"]) for row in first["graphs"]] == [False, True, False]
    assert text.count('id="fxlab-session-') == 3
    assert "record_compile" in text


def test_a_graph_break_is_a_remark_with_its_line_and_what_helps(record):
    found = session_remarks(record.sessions["graph 2, inference"])
    assert found["about"] == "A graph break ends this graph"
    (told,) = found["remarks"]
    assert told["what"].startswith("Graph break: ")
    assert told["code"] == 'print("here")'
    assert "test_record.py:" in told["place"]
    assert told["advice"]
    assert session_remarks(record.sessions["graph 1, inference"])["remarks"] == []


def test_what_a_compile_could_not_tell_is_a_remark(record, monkeypatch):
    session = record.sessions["graph 3, inference"]
    monkeypatch.setattr(session, "remarks", ("<b>Nothing</b> is seen\nof it",))
    found = session_remarks(session)
    assert found["about"] == "Parts of the compile are not shown"
    assert [told["what"] for told in found["remarks"]] == ["<b>Nothing</b> is seen of it"]


def test_no_sessions_and_what_is_none_are_refused_by_name(record, tmp_path):
    path = tmp_path / "a.html"
    with pytest.raises(ValueError, match="there is no session in this mapping"):
        fxlab.report({}, path=path)
    with pytest.raises(TypeError, match="expected a Session under 'a', got a Sequential"):
        fxlab.report({"a": nn.Sequential()}, path=path)
    with pytest.raises(TypeError, match="expected sessions by name, but 1 is the name of one"):
        fxlab.report({1: record.sessions["graph 2, inference"]}, path=path)


def run_eagerly(graph_module, example_inputs, **known):
    _without_code(graph_module, example_inputs, **known)
    return make_boxed_func(graph_module.forward)


def test_backward_graphs_that_are_compiled_late_are_not_shown(monkeypatch):
    def without_setting(place):
        module = importlib.import_module(place)
        is_it = place == "torch._functorch.config"
        return types.SimpleNamespace(patch=module.patch, enable_autograd_cache=True) if is_it else module

    monkeypatch.setattr(heard_calls, "import_module", without_setting)
    backend = functools.partial(compile_fx, inner_compile=run_eagerly)
    x, layer = torch.randn(2, 4, requires_grad=True), nn.Linear(4, 4)

    def run(*models):
        with fxlab.compiler.record_compile() as record:
            sum(torch.compile(model, backend=backend)(x) for model in models).sum().backward()
        assert record.remarks[0].startswith("Backward graphs are not seen")
        assert all(session.verdict().agrees for session in record.sessions.values())
        return record.remarks[1:], [name for name in record.sessions if "backward" in name]

    assert run(lambda x: torch.tanh(layer(x)), lambda x: torch.sigmoid(x) * 2)[1] == []


@pytest.mark.often(3)
@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (Recording, "note_values"),
        *((ScriptRecorder, name) for name in ("captured", "begin_pass", "end_pass", "begin_match")),
    ],
)
def test_a_recording_that_fails_does_not_break_the_script(monkeypatch, owner, method):
    def fails(*args, **kwargs):
        raise Recorded("by a graph that nobody has thought of")

    monkeypatch.setattr(owner, method, fails)
    torch._dynamo.reset()
    with torch.no_grad(), fxlab.compiler.record_compile() as record:
        y = torch.compile(lambda x: torch.relu(x) * 1, backend=with_pass(relus_to_clamps()))(X)
        z = torch.compile(lambda x: torch.sigmoid(x), backend="eager")(X)
    assert torch.equal(y, torch.relu(X))
    assert torch.equal(z, torch.sigmoid(X))
    words = "Nothing was recorded any more when this was raised: Recorded: by a graph that nobody"
    assert any(remark.startswith(words) for remark in record.remarks)
    assert all(name.startswith("graph 1") for name in record.sessions)


@pytest.mark.parametrize("error", [Recorded, KeyboardInterrupt])
def test_torch_is_as_it_was_when_the_block_raises(error):
    model = Blocks().eval()
    before = left_behind(model)

    def run():
        with fxlab.compiler.record_compile():
            assert list(map(id, patched())) != before[0]
            raise error("halfway")

    with pytest.raises(error):
        run()
    assert left_behind(model) == before
    with fxlab.compiler.record_compile() as record:
        pass
    assert not record.sessions
    assert record.table.empty


@pytest.mark.often(1)
@pytest.mark.parametrize(
    "backend",
    [
        "eager",
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(shutil.which("g++") is None, reason="generates code"),
            ],
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_runs_computes_the_same_bits(backend):
    def run():
        torch._dynamo.reset()
        with torch.no_grad():
            return torch.compile(breaks, backend=backend)(X)

    plain = run()
    with fxlab.compiler.record_compile() as record:
        recorded = run()
    assert torch.equal(plain, recorded)
    assert len(record.sessions) == 2


def test_a_record_inside_of_another_is_refused():
    with fxlab.compiler.record_compile():
        with pytest.raises(RuntimeError, match="another one records"), fxlab.compiler.record_compile():
            pass
        with pytest.raises(RuntimeError, match=r"while record_compile records.*fxlab compile -- COMMAND"):
            fxlab.compiler.compile_session(Blocks().eval(), X)
    with fxlab.compiler.record_compile() as record:
        pass
    assert record.sessions == {}


def test_a_record_is_its_own_block_which_it_has_once():
    record = fxlab.compiler.record_compile()
    for read in (lambda: record.sessions, lambda: record.remarks, lambda: record.table):
        with pytest.raises(AttributeError, match=r"Nothing has been recorded yet.*record_compile"):
            read()
    another = fxlab.compiler.record_compile()
    with another, pytest.raises(RuntimeError, match=r"another one records.*fxlab compile -- COMMAND"), record:
        pass
    with record as same:
        assert same is record
    assert (record.sessions, record.remarks, len(record.table)) == ({}, (), 0)
    with pytest.raises(RuntimeError, match=r"had its.*record_compile"), record:
        pass


def test_a_record_in_place_of_a_session_is_told_how_to_give_its_sessions(tmp_path):
    with fxlab.compiler.record_compile() as record:
        pass
    with pytest.raises(TypeError, match=r"got a CompileRecord\. Give one of its sessions; fxlab\.r"):
        fxlab.report(record, path=tmp_path / "a.html")


def test_a_story_before_its_block_says_what_is_missing():
    record = fxlab.compiler.record_compile()
    with pytest.raises(AttributeError, match=r"with fxlab\.compiler\.record_compile"):
        record.story()


def test_a_part_that_a_backend_compiles_alone_is_not_taken_for_the_graph():
    def backend(graph_module, inputs):
        part = copy.deepcopy(graph_module)
        output = part.graph.output_node()
        (last,) = output.args[0]
        output.args = ((last.args[0],),)
        part.graph.erase_node(last)
        part.recompile()
        compile_fx(part, inputs, inner_compile=_without_code)
        return graph_module.forward

    with torch.no_grad(), fxlab.compiler.record_compile() as record:
        torch.compile(lambda x: torch.relu(torch.sin(x)), backend=backend)(X)
    (session,) = record.sessions.values()
    assert len(session.passes) == 0
    assert record.remarks == (
        "graph 2: its inputs are not known: it has not run, or a backend made it of another.",
    )


def test_hooks_that_cannot_be_set_are_the_error(monkeypatch):
    def fails(*_):
        raise OSError("no hooks")

    monkeypatch.setattr("fxlab.compiler.scripts.record.listening_to_script", fails)
    with pytest.raises(OSError, match="no hooks"), fxlab.compiler.record_compile():
        pass
