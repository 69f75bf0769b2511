"""Sessions written as files: what the files compute, take and return."""

import warnings

import pytest
import torch
import transformers as hf
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import fxlab
from fxlab import ChangeTrueDivToMulByInverse, MergeLinears, from_callable
from fxlab.deployment.files.export import tensor_graph
from fxlab.validation import Status


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, scale=2.0, *, twice=False):
        y = self.a(x) * self.b(x) / scale
        return {"y": y + y if twice else y, "sizes": [x.sum(1)]}


def session_of(model, inputs, *passes):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fxlab.TraceWarning)
        session = fxlab.Session(model.eval(), inputs, passes=passes)
    for pass_ in passes:
        session.apply(pass_)
    return session


@pytest.fixture(scope="module")
def session():
    torch.manual_seed(0)
    inputs = {"x": torch.randn(3, 4), "twice": True}
    return session_of(Model(), inputs, MergeLinears(), ChangeTrueDivToMulByInverse())


@pytest.fixture(scope="module")
def file(session, tmp_path_factory):
    return fxlab.export(session, tmp_path_factory.mktemp("files") / "model.pt2")


def test_a_file_computes_what_the_model_does_at_other_sizes_too(session, file):
    run = torch.export.load(file.path).module()
    for size in (3, 7):
        x = torch.randn(size, 4)
        with torch.no_grad():
            expected = session.graph_module(x=x, twice=True)
            y, total = run(x)
        assert torch.equal(y, expected["y"])
        assert torch.equal(total, expected["sizes"][0])


class SizesOf(nn.Module):
    def forward(self, x):
        rows = x.shape[0]
        return x + 1, rows, rows / 4, rows > 2, len(x[x > 0]), 7


class Weighed(nn.Module):
    def forward(self, x, y):
        return x + 2 * y


def test_a_tensor_given_for_two_inputs_is_two_inputs_of_the_file(tmp_path):
    x = torch.randn(2, 3)
    file = fxlab.export(session_of(Weighed(), (x, x)), tmp_path / "model.pt2")
    x, y = torch.randn(2, 4, 3)
    assert torch.equal(torch.export.load(file.path).module()(x, y), x + 2 * y)


def test_a_folder_that_is_not_there_is_named_before_anything_is_written(session, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        fxlab.export(session, tmp_path / "none" / "model.pt2")


def test_numbers_that_depend_on_sizes_follow_them_in_the_file(tmp_path):
    file = fxlab.export(session_of(SizesOf(), torch.ones(3, 4)), tmp_path / "sizes.pt2")
    assert file.verdict.same_bits
    x = torch.ones(6, 4)
    told = torch.export.load(file.path).module()(x)
    assert [number.item() for number in told[1:]] == [*SizesOf()(x)[1:]] == [6, 1.5, True, 24, 7]


class ByWidth(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 3))

    def forward(self, x):
        return nn.functional.linear(x, self.weight) * x.shape[1] ** -0.5


THREE_ROWS = torch.ones(3, 4)


def by_rows(x):
    return x * (2.0 if len(x) < 4 else 9.0)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("session", "others"),
    [
        (
            lambda: fxlab.Session(fxlab.trace_step(ByWidth(), torch.ones(4, 3), loss=torch.sum)),
            (torch.ones(2, 5), torch.ones(4, 5)),
        ),
        (
            lambda: fxlab.Session(
                make_fx(by_rows, tracing_mode="symbolic")(torch.ones(3, 4)), torch.ones(3, 4)
            ),
            (torch.ones(5, 4),),
        ),
        (lambda: fxlab.compiler.compile_session(by_rows, THREE_ROWS, dynamic=True), (torch.ones(5, 4),)),
    ],
    ids=["step", "make_fx", "torch.compile"],
)
def test_a_file_has_the_sizes_that_another_tracer_has_computed_numbers_by(tmp_path, session, others):
    file = fxlab.export(session(), tmp_path / "fixed.pt2")
    with pytest.raises(AssertionError, match="Guard failed"):
        torch.export.load(file.path).module()(*others)


@pytest.mark.parametrize("output", [None, ()])
def test_a_model_that_returns_nothing_is_refused(tmp_path, output):
    class Silent(nn.Module):
        def forward(self, x):
            return output

    with pytest.raises(ValueError, match="returns no tensors or numbers"):
        fxlab.export(session_of(Silent(), torch.ones(3, 4)), tmp_path / "silent.pt2")
    assert not (tmp_path / "silent.pt2").exists()


def test_it_is_judged_by_the_model_without_passes(file):
    assert file.verdict.agrees
    assert file.verdict.table.index.tolist() == ["y", "sizes_0"]
    assert file.outputs == ("y", "sizes_0")


def test_inputs_are_named_with_the_sizes_that_are_followed(session, file, tmp_path):
    (words,) = file.inputs
    assert words.startswith("x: float32[s")
    assert words.endswith(", 4]")
    fixed = fxlab.export(session, tmp_path / "fixed.pt2", dynamic=False, check=False)
    assert fixed.inputs == ("x: float32[3, 4]",)
    assert fixed.verdict is None
    with pytest.raises(AssertionError, match="Guard failed"):
        torch.export.load(fixed.path).module()(torch.randn(7, 4))


def test_a_pass_that_changes_the_model_shows_in_the_verdict(tmp_path):
    def shifts(graph_module):
        output = graph_module.graph.output_node()
        with graph_module.graph.inserting_before(output):
            output.args = (graph_module.graph.call_function(torch.add, (output.args[0], 1)),)
        return graph_module

    session = session_of(nn.Linear(4, 4), torch.randn(3, 4), from_callable(shifts))
    verdict = fxlab.export(session, tmp_path / "model.pt2").verdict
    assert verdict.status is Status.DIFFERENT
    assert verdict.reason.startswith("output: ")


class Decides(nn.Module):
    def forward(self, x, states):
        first, (second, _) = states["first"], states["rest"]
        return x + first if x.sum() > 0 else x - second


def test_conditions_on_data_are_said_and_nested_inputs_taken_apart(tmp_path):
    states = {"first": torch.ones(2), "rest": (torch.ones(2), 3)}
    session = session_of(Decides(), (torch.ones(2), states))
    file = fxlab.export(session, tmp_path / "model.pt2")
    assert [words.partition(":")[0] for words in file.inputs] == ["x", "states_first", "states_rest_0"]
    (condition,) = file.conditions
    assert condition.startswith("item == 1 only (decided at ")
    with pytest.raises(AssertionError, match="traced for"):
        session.graph_module(-torch.ones(2), states)
    run = torch.export.load(file.path).module()
    assert torch.equal(run(torch.ones(2), torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))


@pytest.mark.weekly
def test_a_cache_is_taken_apart_on_both_sides(tmp_path):
    config = hf.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, vocab_size=50
    )
    torch.manual_seed(0)
    cache = hf.DynamicCache()
    cache.update(torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8), 0)
    inputs = {"input_ids": torch.ones(2, 1, dtype=torch.long), "past_key_values": cache, "use_cache": True}
    session = session_of(hf.LlamaForCausalLM(config), inputs, MergeLinears())
    file = fxlab.export(session, tmp_path / "step.pt2")
    held = "past_key_values_layers_0_keys", "past_key_values_layers_0_values"
    assert [words.partition(":")[0] for words in file.inputs] == ["input_ids", *held]
    assert file.outputs == ("logits", *(f"{name}_out" for name in held))
    assert file.verdict.agrees
    # Twice: the cache that comes out of one step goes into the next.
    run = torch.export.load(file.path).module()
    tokens, states = inputs["input_ids"], [cache.layers[0].keys, cache.layers[0].values]
    with torch.no_grad():
        for _ in range(2):
            expected = session.graph_module(
                input_ids=tokens, past_key_values=cache_of(*states), use_cache=True
            )
            logits, *states = run(tokens, *states)
            assert torch.allclose(logits, expected["logits"], atol=1e-6)
    assert states[0].shape == (2, 2, 7, 8)


def cache_of(keys, values):
    cache = hf.DynamicCache()
    cache.update(keys, values, 0)
    return cache


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def test_a_model_that_writes_is_refused(tmp_path):
    session = session_of(Counts(), torch.ones(3))
    with pytest.raises(ValueError, match=r"writes in place \(written state calls\)"):
        fxlab.export(session, tmp_path / "model.pt2")
    assert not (tmp_path / "model.pt2").exists()


def test_the_model_is_as_it_was(session, file):
    assert session.graph_module.graph.find_nodes(op="placeholder")[0].target == "x"
    assert {node.target for node in session.graph_module.graph.nodes if node.op == "placeholder"} > {"twice"}


def test_a_graph_is_compiled_whole_and_traced(session_with_model):
    session, _, x = session_with_model
    graph = tensor_graph(session.graph_module, session.inputs)
    with torch.no_grad():
        expected = session.graph_module(x)
        compiled = torch.compile(session.graph_module, backend="eager", fullgraph=True)
        assert torch.equal(compiled(x)["y"], expected["y"])
        with pytest.deprecated_call(match="torch.jit.trace"):
            script = torch.jit.trace(graph.module, graph.inputs)
        assert torch.equal(script(x)[0], expected["y"])


@pytest.fixture(scope="module")
def session_with_model():
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(3, 4)
    return session_of(model, (x,), MergeLinears()), model, x


class Registered:
    """An object that somebody has told ``torch.export`` how to take apart, with less than it holds."""

    def __init__(self, states):
        self.states, self.kind = states, "whole"


class AddsStates(nn.Module):
    def forward(self, x, states):
        return x + states.states if states.kind == "whole" else x


def test_objects_that_are_registered_as_pytrees_stay_whole():
    pytree.register_pytree_node(
        Registered, lambda value: ([value.states], None), lambda parts, _: object.__new__(Registered)
    )
    inputs = {"x": torch.ones(2), "states": Registered(torch.ones(2))}
    graph = fxlab.symbolic_trace(AddsStates(), inputs)
    assert fxlab.verdict(AddsStates(), graph, inputs).status is Status.SAME_BITS
