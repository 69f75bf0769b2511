"""The story of compiled functions: why each was compiled again, broken or left to Python."""

import logging
import threading
import warnings

import pytest
import torch
from tiny_models import Blocks
from torch import nn

import fxlab
from fxlab.view_model.session_remarks import session_remarks

X = torch.ones(3, 4)
logger = logging.getLogger("somebody")


class Cache:
    def __init__(self):
        self.pos = 0


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.mode = nn.Linear(4, 4), "a"

    def forward(self, x):
        return self.linear(x) if self.mode == "a" else x + 1


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, backend="eager", **options)


def told(run, *kinds):
    """Return the events of these kinds while a function runs."""
    with fxlab.compiler.record_compile() as record, torch.no_grad():
        run()
    story = record.story()
    return [event for event in story.to_dict("records") if event["kind"] in kinds]


def of_attribute():
    cache, run = Cache(), compiled(lambda x, cache: x[cache.pos], dynamic=False)
    run(X, cache)
    cache.pos = 1
    return lambda: run(X, cache), "cache.pos == 0"


def of_module():
    model = Scaled()
    run = compiled(model)
    run(X)
    model.mode = "b"
    return lambda: run(X), "self.mode == 'a'"


def of_size():
    run = compiled(lambda x: x + 1)
    run(X)
    return lambda: run(torch.ones(5, 4)), "tensor 'x' size mismatch at index 0. expected 3, actual 5"


CAUSES = {"attribute": of_attribute, "module": of_module, "size": of_size}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_recompile_says_what_has_changed(cause):
    with torch.no_grad():
        run, words = CAUSES[cause]()
    (event,) = told(run, "recompile")
    assert event["reason"].startswith(f"a guard failed: {words} (compile 2 of ")
    assert event["place"].rpartition(":")[0] == __file__
    assert event["compile"] == "0/1"
    assert event["graph"] == 1
    assert event["seconds"] > 0


def test_the_line_that_reads_the_value_is_told():
    with torch.no_grad():
        run, _ = of_module()
    (event,) = told(run, "recompile")
    assert event["code"] == 'return self.linear(x) if self.mode == "a" else x + 1'


def test_what_is_compiled_too_often_is_a_limit_with_the_hint():
    run = compiled(lambda x, n: x * int(n), dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=2):
        (event,) = told(lambda: [run(X, n) for n in range(4)], "limit")
    assert event["reason"] == "Dynamo recompile limit exceeded"
    assert "torch._dynamo.config.recompile_limit" in event["hint"]
    with torch._dynamo.config.patch(recompile_limit=1):
        strict = compiled(lambda x, n: x * int(n), dynamic=False, fullgraph=True)

        def run_strict():
            strict(X, 0)
            with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
                strict(X, 1)

        (event,) = told(run_strict, "limit")


def logs(x):
    logger.warning("here")
    return x + 1


def branches(x):
    if x.sum() > 0:
        x = x + 1
    return x.cos()


def loops(x):
    for _ in range(2):
        print(end="")
        x = x + 1
    return x


def generates(x):
    yield x + 1


BREAKS = {
    "print": (lambda x: (x + 1, print(end=""), x + 2), "break", "Failed to trace builtin operator"),
    "logger": (logs, "break", "logging.Logger method not supported for non-export cases"),
    "branch": (branches, "break", "Data-dependent branching"),
    "item": (lambda x: x.sum().item() + x, "break", "Unsupported Tensor.item() call"),
    "asked for": (
        lambda x: (x + 1, torch._dynamo.graph_break(), x + 2),
        "break",
        "Call to `torch._dynamo.graph_break()`",
    ),
    "loop": (loops, "skip", "Failed to trace builtin operator"),
    "generator": (generates, "skip", "Attempt to trace generator"),
}


@pytest.mark.parametrize("cause", BREAKS)
def test_a_break_has_dynamos_own_reason_and_hint(cause):
    function, kind, reason = BREAKS[cause]
    run = compiled(function)

    def once():
        result = run(X)
        return list(result) if cause == "generator" else result

    event = told(once, kind)[0]
    assert event["reason"].startswith(reason)
    assert event["hint"]
    assert cause == "generator" or event["place"].rpartition(":")[0] == __file__


def test_the_break_of_a_graph_is_the_one_of_its_story():
    with fxlab.compiler.record_compile() as record, torch.no_grad():
        compiled(branches)(X)
    first, second = record.sessions.values()
    assert first.graph_break.reason == "Data-dependent branching"
    assert [*record.story()["kind"]].count("break") == [*first.story()["kind"]].count("break") == 1
    assert first.graph_break.code == "if x.sum() > 0:"
    assert "torch.where" in session_remarks(first)["remarks"][0]["advice"]
    assert [event.split(" ")[0] for event in second.story()["function"]] == ["branches"]
    assert second.story()["function"][0].startswith("branches after line ")
    assert record.table["compile"].tolist() == ["0/0", "1/0"]


def test_an_error_of_a_backend_is_told():
    def fails(graph_module, inputs):
        raise KeyError("of a backend")

    def run():
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
            torch.compile(lambda x: x + 1, backend=fails)(X)

    torch._dynamo.reset()
    (event,) = told(run, "error")
    assert event["reason"] == "KeyError: 'of a backend'"


def test_another_thread_has_a_story_and_is_a_remark():
    run = compiled(lambda x: x + 1)
    with fxlab.compiler.record_compile() as record:
        thread = threading.Thread(target=run, args=(X,))
        thread.start()
        thread.join()
    assert record.sessions == {}
    assert record.story()["kind"].tolist() == ["compile"]
    assert record.remarks[0].startswith("Another thread has compiled <lambda> (")


def test_a_session_of_a_model_tells_its_story():
    session = fxlab.compiler.compile_session(Blocks().eval(), torch.randn(3, 8))
    story = session.story()
    assert story["kind"].tolist() == ["compile"]
    assert story["graph"].tolist() == [1]


def test_recompiles_are_remarks_of_a_session():
    run = compiled(lambda x: x + 1)
    with fxlab.compiler.record_compile() as record, torch.no_grad():
        run(X)
        run(X.double())
    found = session_remarks(record.sessions["graph 2, inference"])
    (remark,) = found["remarks"]
    assert remark["what"].startswith("Recompiled: a guard failed: tensor 'x' dtype mismatch")


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 4)

    def forward(self, x):
        return self.lstm(x)[0]


def scripted():
    with warnings.catch_warnings():  # torch.jit is on its way out
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(nn.Sequential(nn.Linear(4, 4)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Recurrent, r"no graph of it\. .*LSTM.* \(.*test_story.py:\d+: return self.lstm\(x\)\[0\]\)\. "),
        (scripted, r"no graph of it\. torch.jit.script.*Dynamo does not support tracing into"),
        (nn.Identity, r"no graph of it\. Does it compute anything with torch\?"),
    ],
    ids=["recurrent", "scripted", "no operator"],
)
def test_a_model_without_a_graph_is_refused_with_the_first_reason_of_the_story(make, words):
    with pytest.raises(ValueError, match=words):
        fxlab.compiler.compile_session(make(), torch.ones(2, 3, 4))
