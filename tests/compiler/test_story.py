"""The story of compiled functions: why each was compiled again, broken, left to Python or specialised."""

import enum
import logging
import threading
import warnings

import pytest
import torch
from tiny_models import Blocks
from torch import nn

import fxlab
from fxlab.compiler.story.guard_words import Guard
from fxlab.view_model.session_remarks import session_remarks

X = torch.ones(3, 4)
FLAG = 1
logger = logging.getLogger("somebody")


class Cache:
    def __init__(self):
        self.pos = 0


class Kind(enum.Enum):
    A = 1
    B = 2


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
    return lambda: run(X, cache), "cache.pos was 0, is 1 (compile 2 of <lambda>)"


def of_global():
    global FLAG
    FLAG = 1
    run = compiled(lambda x: x * FLAG)
    run(X)
    FLAG = 2
    return lambda: run(X), "FLAG was 1, is 2 (compile 2 of <lambda>)"


def of_closure():
    def make(factor):
        def scaled(x):
            return x * factor

        def change():
            nonlocal factor
            factor = 3

        return scaled, change

    scaled, change = make(2)
    run = compiled(scaled)
    run(X)
    change()
    return lambda: run(X), "factor was 2, is 3 (compile 2 of scaled)"


def of_module():
    model = Scaled()
    run = compiled(model)
    run(X)
    model.mode = "b"
    return lambda: run(X), "self.mode was 'a', is 'b' (compile 2 of forward)"


def with_values(function, first, second, words):
    run = compiled(function)
    run(*first)
    return lambda: run(*second), f"{words} (compile 2 of <lambda>)"


def of_grad_mode():
    run = compiled(lambda x: x + 1)
    with torch.enable_grad():
        run(X)
    return lambda: run(X), "grad_mode was on, is off (compile 2 of <lambda>)"


def of_alias():
    a = torch.ones(2)
    first, second = (a, torch.ones(2)), (a, a)
    words = "x and y are one tensor, and were several before"
    return with_values(lambda x, y: x.add_(y), first, second, words)


CAUSES = {
    "attribute": of_attribute,
    "global": of_global,
    "closure": of_closure,
    "module": of_module,
    "grad mode": of_grad_mode,
    "alias": of_alias,
    "dtype": lambda: with_values(
        lambda x: x + 1, (X,), (X.double(),), "the dtype of x was float32, is float64"
    ),
    "size": lambda: with_values(lambda x: x + 1, (X,), (torch.ones(5, 4),), "x.size(0) was 3, is 5"),
    "rank": lambda: with_values(lambda x: x + 1, (X,), (torch.ones(5),), "the rank of x was 2, is 1"),
    "requires_grad": lambda: with_values(
        lambda x: x + 1, (X,), (torch.ones(3, 4, requires_grad=True),), "x.requires_grad was False, is True"
    ),
    "class": lambda: with_values(
        lambda x: x + 1, (X,), (nn.Parameter(X),), "x was of another class, is a Parameter"
    ),
    "length": lambda: with_values(
        lambda values: values[0] + len(values), ([X],), ([X, X],), "len(values) was 1, is 2"
    ),
    "type": lambda: with_values(
        lambda values: values[0] + 1, ([X],), ((X,),), "values was a list, is a tuple"
    ),
    "key": lambda: with_values(
        lambda x, d: x + ("a" in d), (X, {}), (X, {"a": 1}), "d has the key 'a', and had not before"
    ),
    "element": lambda: with_values(
        lambda x, s: x + 1 if 1 in s else x - 1,
        (X, {1}),
        (X, {2}),
        "s does not have the element 1, and had before",
    ),
    "enumeration": lambda: with_values(
        lambda x, e: x + 1 if e is Kind.A else x - 1,
        (X, Kind.A),
        (X, Kind.B),
        "e is another object than before (Kind.B)",
    ),
    "none": lambda: with_values(
        lambda x, y: x + 1 if y is None else x + y, (X, None), (X, X), "y was None, is a Tensor"
    ),
    "flag": lambda: with_values(
        lambda x, flag: x + 1 if flag else x - 1, (X, True), (X, False), "flag was True, is False"
    ),
    "function": lambda: with_values(
        lambda x, f: f(x), (X, torch.sin), (X, torch.cos), "f is another object than before (cos)"
    ),
}


@pytest.mark.often(6)
@pytest.mark.parametrize("cause", CAUSES)
def test_a_recompile_says_what_has_changed(cause):
    with torch.no_grad():
        run, words = CAUSES[cause]()
    (event,) = told(run, "recompile")
    assert event["reason"] == words
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
    assert record.breaks["reason"].tolist() == first.breaks["reason"].tolist() != []
    assert record.recompiles.empty
    assert first.graph_break.code == "if x.sum() > 0:"
    assert "torch.where" in session_remarks(first)["remarks"][0]["advice"]
    assert [event.split(" ")[0] for event in second.story()["function"]] == ["branches"]
    assert second.story()["function"][0].startswith("branches after line ")
    assert record.table["compile"].tolist() == ["0/0", "1/0"]


def test_a_size_that_a_line_decides_on_is_specialised():
    def function(x):
        return x * 2 if x.size(0) == 5 else x + 1

    run = compiled(function, dynamic=True)
    (event,) = told(lambda: run(torch.ones(5)), "specialise")
    assert event["reason"].startswith("x.size(0) (s")
    assert event["reason"].endswith("is taken for 5")
    assert event["code"] == "return x * 2 if x.size(0) == 5 else x + 1"
    symbols = told(lambda: run(torch.ones(7)), "symbol")
    words = [event["reason"] for event in symbols]
    assert any("is x.size(0), at least 2" in reason for reason in words)
    assert "the graph is for x.size(0) != 5" in words


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


def test_guards_are_in_the_names_of_the_function():
    with fxlab.compiler.record_compile() as record, torch.no_grad():
        compiled(Scaled())(X)
    guards = record.guards().set_index("guard")
    (found,) = [guard for guard in guards.index if "mode" in guard]
    assert found == "self.mode == 'a'"
    assert guards.loc[found, "place"].startswith(f"{__file__}:")


class Sly:
    calls = 0

    @property
    def value(self):
        Sly.calls += 1
        return 1


def test_no_code_of_others_runs_to_read_a_value():
    guard = Guard.of("L['sly'].value == 2")
    assert guard.failed({"sly": Sly()}, {}) == "sly.value was 2, is another value"
    assert Sly.calls == 0


def test_a_session_of_a_model_tells_its_story():
    session = fxlab.compiler.compile_session(Blocks().eval(), torch.randn(3, 8))
    story = session.story()
    assert story["kind"].tolist() == ["compile"]
    assert story["graph"].tolist() == [1]
    dynamic = fxlab.compiler.compile_session(Blocks().eval(), torch.randn(3, 8), dynamic=True)
    assert ".size(0)" in " ".join(dynamic.story()["reason"])


def test_recompiles_are_remarks_of_a_session():
    run = compiled(lambda x: x + 1)
    with fxlab.compiler.record_compile() as record, torch.no_grad():
        run(X)
        run(X.double())
    found = session_remarks(record.sessions["graph 2, inference"])
    (remark,) = found["remarks"]
    assert remark["what"].startswith("Recompiled: the dtype of x was float32, is float64")


def test_a_capture_that_is_thrown_away_is_told():
    def function(x):
        made = torch.zeros(3).requires_grad_(True)
        return x * made

    run = compiled(function)
    with fxlab.compiler.record_compile() as record:
        run(torch.ones(3))
    story = record.story()
    (event,) = story[story["kind"] == "discard"].to_dict("records")
    assert event["reason"].startswith("captured again: ")
    assert "requires_grad_" in event["reason"]


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
