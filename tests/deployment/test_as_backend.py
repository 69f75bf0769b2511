"""Models compiled with the passes of a session: they compute as in eager mode, whatever is on."""

import copy
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers as hf
from hypothesis import settings
from hypothesis import strategies as st
from laws import law
from random_modules import Recipe
from strategies import recipes
from torch import nn

import fxlab
from fxlab import MergeLinears, RemoveIdentities, from_callable
from fxlab.base.exchanged import PROCESS_LOCK
from fxlab.operators.node_info import attribute_at
from fxlab.transformations import available

IDS = torch.tensor([[5, 6, 7, 8, 9], [50, 40, 30, 20, 10]])
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def reset():
    yield
    torch.compiler.reset()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.dropout = nn.Dropout()

    def forward(self, x):
        return self.dropout(self.a(x)) * self.b(x)


def model():
    torch.manual_seed(0)
    return Model().eval()


def session_with(*passes):
    session = fxlab.Session(model(), X, passes=passes)
    if passes:
        session.apply(*session.passes)
    return session


def compiled(module, *passes, session=None, **options):
    """Return a copy of a model that is compiled with passes, and the session by which they are switched."""
    session = session or session_with(*passes)
    module = copy.deepcopy(module)
    module.compile(backend=fxlab.as_backend(session, **options))
    return module


def double_in_graph(graph_module):
    """Return twice the result: a wrong pass."""
    output = graph_module.graph.output_node()
    with graph_module.graph.inserting_before(output):
        output.args = torch.fx.map_arg(
            output.args, lambda n: graph_module.graph.call_function(torch.add, (n, n))
        )


def fix_first_size(graph_module):
    """Take each size for three: a pass that is right at one size alone."""
    for node in graph_module.graph.find_nodes(op="call_method", target="size"):
        node.replace_all_uses_with(3)


class BySize(nn.Module):
    def forward(self, x):
        return x.relu() * x.shape[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=6)
@law(recipes(), st.sets(st.sampled_from(available())))
def test_any_passes_on_any_module(recipe: Recipe, passes):
    torch.compiler.reset()
    module = copy.deepcopy(recipe.build()).eval()
    fast = compiled(module, *(cls() for cls in passes))
    with torch.no_grad():
        expected = copy.deepcopy(module)(*recipe.inputs())
        actual = fast(*recipe.inputs())
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3, equal_nan=True)


def test_the_object_and_its_class_stay_and_the_passes_act():
    calls = []

    def count(graph_module):
        calls.append([str(node.target) for node in graph_module.graph.nodes if node.op == "call_function"])

    module = model()
    fast = compiled(module, MergeLinears(), from_callable(count))
    assert type(fast) is Model
    with torch.no_grad():
        assert torch.equal(fast(X), module(X))
    assert len([name for name in calls[-1] if "linear" in name]) == 1


def test_a_pass_that_is_switched_acts_on_the_next_call():
    seen = []
    session = fxlab.Session(model(), X, passes=[from_callable(lambda gm: seen.append(gm), name="looks")])
    fast = compiled(model(), session=session)
    fast(X)
    assert not seen
    session.apply("looks")
    before = len(seen)
    fast(X)
    assert len(seen) == before + 1
    session.revert("looks")
    fast(X)
    assert len(seen) == before + 1


def test_a_wrong_pass_is_refused_by_name_and_the_outputs_stay_right():
    module = model()
    fast = compiled(module, RemoveIdentities(), from_callable(double_in_graph))
    with pytest.warns(
        RuntimeWarning, match=r"graph 1 of Model \(\d+ nodes\).*without double-in-graph.*differ"
    ):
        assert torch.equal(fast(X), module(X))
    assert torch.equal(fast(X), module(X))


def test_a_pass_that_raises_is_left_off_and_the_others_apply():
    def fails(graph_module):
        if "trace" not in graph_module.meta:  # not on the session's own graph
            raise KeyError("no such node")

    module = model()
    fast = compiled(module, from_callable(fails), MergeLinears())
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="without fails: it raised .*no such node"):
        assert torch.equal(fast(X), module(X))


def test_a_pass_that_is_right_at_one_size_alone_is_refused_at_the_next():
    module = BySize()
    session = session_with(from_callable(fix_first_size))
    fast = torch.compile(module, backend=fxlab.as_backend(session), dynamic=True)
    assert torch.equal(fast(X), module(X))
    with pytest.warns(RuntimeWarning, match="without fix-first-size"):
        assert torch.equal(fast(X[:2]), module(X[:2]))
    assert torch.equal(fast(X.repeat(2, 1)), module(X.repeat(2, 1)))


class Printed(nn.Module):
    """Calls that torch's generator of code prints as others, or as no Python."""

    def forward(self, x):
        by_size = x * (-2) ** x.shape[0] + (-3) ** x.shape[1]
        return by_size + (-0.5) ** x + x * complex(-0.0, 1.0) + x * complex(1.0, float("inf"))


@pytest.mark.often(2)
@pytest.mark.parametrize("kind", ["no pass", "a pass", "capture"])
def test_code_that_torch_prints_wrongly_is_not_run(kind):
    module, passes = Printed(), [RemoveIdentities()] if kind == "a pass" else []
    backend = fxlab.Capture() if kind == "capture" else fxlab.as_backend(session_with(*passes))
    fast = torch.compile(module, backend=backend, dynamic=True)
    for x in (X, X[:2], X.repeat(2, 1)):
        torch.testing.assert_close(fast(x), module(x), rtol=0, atol=0, equal_nan=True)


def test_new_weights_follow_those_that_they_are_computed_from():
    module = model()
    fast = compiled(module, MergeLinears())
    with torch.no_grad():
        fast(X)
        for write in (
            lambda m: m.a.weight.mul_(2),
            lambda m: m.b.bias.data.add_(1),
            lambda m: setattr(m.a, "weight", nn.Parameter(torch.ones(4, 4))),
            lambda m: setattr(m.a.weight, "data", torch.full((4, 4), 2.0)),
        ):
            write(module)
            write(fast)
            torch.testing.assert_close(fast(X), module(X))


def share_equal_weights(graph_module):
    """Take equal weights for one: right for the values that they have."""
    weights = [node for node in graph_module.graph.nodes if node.op == "get_attr"]
    for node in weights:
        value = attribute_at(graph_module, node.target)
        same = next(n for n in weights if torch.equal(attribute_at(graph_module, n.target), value))
        node.replace_all_uses_with(same)


class TwoScales(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x.relu() * self.first + (x * self.second).sigmoid()


@pytest.mark.often(1)
@pytest.mark.filterwarnings("ignore:.*without share-equal-weights:RuntimeWarning")
@pytest.mark.parametrize("trains", [False, True])
def test_a_pass_that_reads_values_is_applied_again_when_they_are_written(trains):
    outputs = []
    for module in (TwoScales(), compiled(TwoScales(), from_callable(share_equal_weights))):
        for _ in range(3):
            with torch.set_grad_enabled(trains):
                outputs.append(module(X).detach())
            with torch.no_grad():
                module.second.mul_(2)
    for actual, expected in zip(outputs[3:], outputs[:3], strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.often(1)
@pytest.mark.filterwarnings("ignore:.*which an optimizer would not train:RuntimeWarning")
@pytest.mark.parametrize("autocast", [False, True])
def test_a_training_loop_goes_as_in_eager_mode(autocast):
    losses = []
    for module in (model(), compiled(model(), MergeLinears(), RemoveIdentities())):
        torch.manual_seed(0)
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, fused=True)
        for _ in range(3):
            module.train()
            with torch.autocast("cpu", enabled=autocast):
                loss = module(X).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            module.eval()
            with torch.no_grad():
                losses += [loss.item(), module(X).sum().item()]
    assert losses[:6] == pytest.approx(losses[6:], rel=1e-5)


def test_gradients_are_judged():
    def detach(graph_module):
        output = graph_module.graph.output_node()
        with graph_module.graph.inserting_before(output):
            output.args = torch.fx.map_arg(
                output.args, lambda n: graph_module.graph.call_method("detach", (n,))
            )

    module = model()
    fast = compiled(module, from_callable(detach))
    with pytest.warns(RuntimeWarning, match="without detach"):
        fast(X).sum().backward()
    module(X).sum().backward()
    assert torch.equal(fast.a.weight.grad, module.a.weight.grad)


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = model(), model()
        self.calls = 0

    def forward(self, x):
        x = self.first(x)
        torch._dynamo.graph_break()
        self.calls += 1
        return self.second(x).sigmoid()


def test_graphs_between_breaks_get_the_passes_each():
    module = Broken().eval()
    fast = compiled(module, MergeLinears(), RemoveIdentities())
    with torch.no_grad():
        for x in (X, X[:2], X[:1]):
            torch.testing.assert_close(fast(x), module(x))
    assert fast.calls == 3


def test_errors_of_the_model_are_its_own():
    module = model()
    fast = compiled(module, RemoveIdentities())
    with pytest.raises(RuntimeError):
        module(X[:, :3])
    with pytest.raises(RuntimeError):
        fast(X[:, :3])
    assert torch.equal(fast(X), module(X))


@pytest.mark.usefixtures("young")
def test_a_backend_holds_no_model():
    session = fxlab.Session(model(), X)
    session.apply("remove-identities")
    module = session.model
    module.compile(backend=fxlab.as_backend(session))
    module(X)
    gone = weakref.ref(module)
    del module, session
    gc.collect()
    assert gone() is None


def test_other_arguments_are_refused():
    with pytest.raises(TypeError, match="session"):
        fxlab.as_backend(model())
    session = fxlab.Session(model(), X)
    with pytest.raises(TypeError, match="check"):
        fxlab.as_backend(session, check="yes")
    with pytest.raises(TypeError, match="is a backend"):
        fxlab.as_backend(session)(model(), ())


def llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 100}
    tokens = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
    config = hf.LlamaConfig(**sizes, **tokens, num_hidden_layers=1, num_key_value_heads=1)
    return hf.LlamaForCausalLM(config).eval()


@pytest.mark.weekly
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({}, id="greedy", marks=pytest.mark.weekly),
        pytest.param({"do_sample": True}, id="sample"),
        pytest.param({"num_beams": 3}, id="beams", marks=pytest.mark.weekly),
    ],
)
def test_generation_gives_the_same_tokens(asked):
    eager, module = llama(), llama()
    session = fxlab.Session(module, {"input_ids": IDS, "use_cache": False})
    session.apply("merge-linears", "fuse-attention", "fuse-rms-norm")
    module.compile(backend=fxlab.as_backend(session))
    tokens = []
    for each in (eager, module):
        torch.manual_seed(0)
        tokens.append(each.generate(IDS, max_new_tokens=12, **{"do_sample": False, **asked}))
    assert torch.equal(*tokens)


def test_a_call_does_not_wait_for_another_thread_whose_run_may_wait_for_it():
    changed = compiled(model(), RemoveIdentities())
    with ThreadPoolExecutor(1) as pool:
        with PROCESS_LOCK:
            first = pool.submit(changed, X).result(timeout=60)
        assert torch.equal(first, model()(X))
        assert torch.allclose(pool.submit(changed, X).result(timeout=60), first)
