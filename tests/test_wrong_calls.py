"""Wrong first calls of a new user, each answered by a message that leads to the right one."""

import numpy as np
import pytest
import torch
from torch import nn

import fxlab
from fxlab import MergeLinears, Session
from fxlab.base.hints import OF_SESSIONS

MODEL, X = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.ones(2, 4)


def session():
    return Session(torch.fx.symbolic_trace(MODEL), X)


WRONG = [
    (lambda: fxlab.draw_graph(MODEL), "draw"),
    (lambda: fxlab.sesion(MODEL), "Session"),
    (lambda: fxlab.symbolictrace(MODEL), "symbolic_trace"),
    (lambda: fxlab.HFTracer(), r"fxlab\.symbolic_trace"),
    (lambda: fxlab.Tracer(), r"fxlab\.symbolic_trace\(model, inputs, leaf_modules"),
    (lambda: fxlab.replace_pattern, r"fxlab\.from_pattern"),
    (lambda: fxlab.PassManager, r"fxlab\.compose"),
    (lambda: fxlab.PassBase, r"fxlab\.Transformation"),
    (lambda: fxlab.ShapeProp, r"fxlab\.nodes"),
    (lambda: fxlab.FxGraphDrawer, r"fxlab\.draw"),
    (lambda: fxlab.find_matches, r"fxlab\.rewriting\.find_matches"),
    (lambda: fxlab.RewritePass, r"fxlab\.rewriting\.RewritePass"),
    (lambda: fxlab.compile_session(MODEL, X), r"fxlab\.compiler\.compile_session"),
    (lambda: fxlab.record_run(MODEL, X), r"fxlab\.runs\.record_run"),
    (lambda: fxlab.training_session(MODEL, X), r"fxlab\.Session\(fxlab\.trace_step"),
    (lambda: fxlab.capture, r"fxlab\.Capture\(\)"),
    (lambda: fxlab.as_model, r"fxlab\.as_backend\(session\)"),
    (lambda: session().draw(), r"fxlab\.draw\(session\)"),
    (lambda: session().report("a.html"), r"fxlab\.report\(session, \"report.html\"\)"),
    (lambda: session().graph, r"session\.graph_module\.graph"),
    (lambda: session().aply("merge-linears"), "apply"),
    (lambda: session().is_on("merge-linears"), r"name in session\.applied"),
    (lambda: session().toggle("merge-linears"), r"session\.apply\(pass_\) or session\.revert"),
    (lambda: session().apply("MergeLinears"), "merge-linears"),
    (lambda: session().apply(MergeLinears), r"MergeLinears\(\)"),
    (lambda: session().apply(["merge-linears"]), r"each as an argument: \*passes"),
    (lambda: session().apply((torch.relu, torch.relu)), r"each as an argument|fxlab\.from_pattern"),
    (lambda: session().apply(), "expected a pass"),
    (lambda: session().apply("all"), r"\*session\.passes"),
    (lambda: fxlab.why_not(session(), "merge-linears"), r"fxlab\.Session\(model, inputs\)\.why_not"),
    (lambda: fxlab.apply(MODEL, "merge-linears"), r"fxlab\.Session\(model, inputs\)\.apply"),
    (lambda: session().export("model.pt2"), r"fxlab\.export\(session, \"model\.pt2\"\)"),
    (lambda: fxlab.report(fxlab.compare(MODEL, MODEL, X), "a.html"), "Give its session"),
    (lambda: session().undo(), "nothing to undo"),
    (lambda: Session(MODEL, [X]), r"inputs: .* got a list\. Write a tuple"),
    (lambda: Session(MODEL, (2, 4)), r"torch\.randn\(2, 4\)"),
    (lambda: Session(MODEL, {"inputs": X}), r"takes input\. A mapping has arguments by name"),
    (lambda: fxlab.draw(MODEL, "model.svg"), r"fxlab\.draw\(model\)\.save\(path\)"),
    (lambda: fxlab.symbolic_trace("model.pt2", X), r"fxlab\.load_model\(place\)"),
    (lambda: MergeLinears().reverse(MODEL), r"graph_module: .*fxlab\.symbolic_trace"),
    (lambda: fxlab.compiler.compile_session(session()), r"session\.original"),
    (lambda: fxlab.check(MODEL), r"session\.verdict\(\)"),
    (lambda: fxlab.quantize(MODEL), "Its names: as_backend, .*verdict"),
    (lambda: session().table(), r"session\.changes\(\)"),
    (lambda: session().gm, r"session\.graph_module"),
    (lambda: session().hooks, "Its names: .*why_not"),
    (lambda: Session(MODEL, np.ones((2, 4))), r"inputs: .*torch\.from_numpy"),
    (lambda: Session(MODEL, input=X), "unexpected keyword argument 'input'"),
    (lambda: Session("bert-base-uncased"), r"model: expected a torch\.nn\.Module"),
    (lambda: Session(session()), r"session\.copy\(\)"),
    (lambda: fxlab.load_model("no-such-place"), r"place: expected a \.pt2 file, a folder"),
    (lambda: fxlab.verdict(session(), MODEL, X), r"reference: .*session\.graph_module"),
    (lambda: fxlab.bisect(MODEL), r"session: .*fxlab\.Session\(model, inputs\)"),
    (lambda: fxlab.report(MODEL, "a.html"), r"session: .*fxlab\.Session\(model, inputs\)"),
    (lambda: fxlab.report(session(), "a.html", mesure=False), "mesure"),
    (lambda: fxlab.inspect(session(), X), "inputs: a session has its own"),
    (lambda: fxlab.draw(session(), highlight="linear"), r"highlight: .*Write \[\.\.\.\]"),
    (lambda: fxlab.register(lambda graph_module: None), r"fxlab\.from_callable"),
]


@pytest.mark.parametrize(("call", "words"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_call_is_answered_with_the_right_one(call, words):
    with pytest.raises((AttributeError, TypeError, ValueError), match=words):
        call()


def test_members_of_sessions_are_known_by_name():
    functions = {name for name in dir(fxlab) if hasattr(Session, name)}
    members = {name for name in dir(Session) if name[0] != "_"} | {"original"}
    assert {*OF_SESSIONS} == members - functions - {"inputs"}
