"""Models that draw random numbers, judged on the same ones."""

import copy
import random
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import fxlab
from fxlab import Session, from_callable, verdict
from fxlab.validation.arguments import as_graph

GRU = nn.GRU(12, 12, 2, dropout=0.5, batch_first=True).requires_grad_(False)


class Of(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.recurrent = function, GRU

    def forward(self, x):
        return self.function(x)


X = torch.randn(16, 12, generator=torch.Generator().manual_seed(0))


def third(draw):
    """Return what gives two ways to compute the same, the first of them with a factor."""
    return lambda factor: (Of(lambda x: draw(x / 3 * factor) / 7), Of(lambda x: draw(x * (1 / 3)) * (1 / 7)))


DRAWS = {
    "dropout": lambda x: F.dropout(x, 0.3, training=True),
    "dropout in place": lambda x: F.dropout(x.clone(), 0.3, training=True, inplace=True),
    "channels": lambda x: F.dropout1d(x, 0.3, training=True),
    "alpha": lambda x: F.alpha_dropout(x, 0.3, training=True),
    "native": lambda x: torch.native_dropout(x, 0.3, True)[0],
    "nothing left": lambda x: x + torch.native_dropout(x, 1.0, True)[0],
    "rrelu": lambda x: F.rrelu(x, training=True),
    "functional rrelu": lambda x: torch.ops.aten.rrelu_with_noise_functional(
        x, torch.zeros_like(x), 0.1, 0.3, True
    )[0],
    "noise": lambda x: (
        x + torch.randn_like(x) + torch.rand(()) + torch.randn(12) * torch.empty(12).normal_(1, 2)
    ),
    "gumbel": lambda x: F.gumbel_softmax(x, tau=0.7),
    "around means": lambda x: torch.normal(x, x.abs() + 1),
    "places": lambda x: x[torch.randperm(16)] * torch.randint(1, 4, (12,)),
    "samples": lambda x: (
        x[:, torch.multinomial(torch.ones(12), 5)] * torch.bernoulli(x.abs().clamp(max=1))[:, :5]
    ),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.3),
    "recurrent": lambda x: GRU.train()(x[None])[0],
}


@pytest.mark.often(8)
@pytest.mark.parametrize("gradients", [False, True], ids=["", "gradients"])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_random_numbers_of_one_run_are_those_of_all(draw, gradients):
    original, right = third(draw)(1.0)
    wrong, _ = third(draw)(1 + 1e-5)
    for model in (original, right, wrong):
        model.train()
    state = torch.get_rng_state()
    found = verdict(original, right, X, gradients=gradients)
    assert found.status == "within the model's own rounding", found
    assert not found.notes
    assert not verdict(original, wrong, X, gradients=gradients)
    assert torch.equal(state, torch.get_rng_state())


def test_other_numbers_of_the_same_distribution_are_replaced_and_others_not():
    def drawn(x, **options):
        return x + torch.rand(16, 12, **options)

    found = verdict(Of(drawn), Of(lambda x: drawn(x, dtype=torch.float64).float()), X)
    assert found, found
    assert "it was given those of the original" in found.reason
    wrong = verdict(Of(drawn), Of(lambda x: 1.001 * drawn(x, dtype=torch.float64).float()), X)
    assert wrong.status == "different"
    in_turn = verdict(
        Of(lambda x: x * torch.rand(12) + torch.rand(16, 1)),
        Of(lambda x: torch.rand(16, 1) + x * torch.rand(12)),
        X,
    )
    assert in_turn.reason.startswith(
        "random numbers: draw 1 of random numbers is uniform (0.0, 1.0) of shape (16, 1) in node 'model', "
        "the original's uniform (0.0, 1.0) of shape (12,) in node 'model'"
    )
    assert in_turn.outputs["random numbers"].elements == 0
    less = verdict(Of(lambda x: F.dropout(x, 0.3, True)), Of(lambda x: F.dropout(x, 0.2, True)), X)
    assert "draw 1 of random numbers is bernoulli (0.8)" in less.reason


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_dropout_and_uniform_numbers_that_choose_as_it_does_are_the_same(p, dtype):
    def decomposed(x, threshold=p, scale=1 / (1 - p), turned=False):
        numbers = torch.rand_like(x)
        return (numbers < threshold if turned else numbers > threshold) * x * scale

    whole = Of(lambda x: F.dropout(x, p, training=True))
    for one, other in ((whole, Of(decomposed)), (Of(decomposed), whole)):
        found = verdict(one, other, X.to(dtype))
        assert found, found
        assert "it was given those of the original" in found.reason
    by_size = Of(lambda x: ((torch.rand(16, 12) > p) * x / (1 - p)).t())  # in the order of memory
    assert verdict(Of(lambda x: F.dropout(x.t(), p, training=True)), by_size, X.to(dtype))
    wrong = {"threshold": p + 0.02}, {"threshold": p - 0.02}, {"scale": 1.02 / (1 - p)}, {"turned": True}
    for mistake in wrong:
        assert not verdict(whole, Of(lambda x, mistake=mistake: decomposed(x, **mistake)), X.to(dtype))


def test_samples_of_other_probabilities_are_not_replaced():
    def sampled(x):
        return torch.multinomial(x.softmax(-1), 4)

    assert verdict(Of(sampled), Of(sampled), X)
    found = verdict(Of(sampled), Of(lambda x: sampled(-x)), X)
    assert found.status == "different"


def test_what_draws_inside_of_another_operator_is_refused_by_its_name():
    lib = torch.library.Library("fxlab_tests_draws", "DEF")
    lib.define("noisy(Tensor x) -> Tensor", tags=torch.Tag.nondeterministic_seeded)
    lib.impl("noisy", lambda x: x + torch.rand(x.shape, dtype=x.dtype), "CPU")
    noisy = torch.ops.fxlab_tests_draws.noisy
    graph = fx.symbolic_trace(Of(lambda x: noisy(x / 3)))
    assert verdict(graph, graph, X)
    other = fx.symbolic_trace(Of(lambda x: noisy(x * (1 / 3))))
    with pytest.raises(
        ValueError, match="original: Node 'noisy' draws random numbers that cannot be"
    ) as told:
        verdict(graph, other, X)
    assert "(fxlab_tests_draws.noisy.default draws them inside)" in str(told.value)
    lib._destroy()


def merged():
    torch.manual_seed(0)

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(12, 12), nn.Linear(12, 12)
            self.drop = nn.Dropout(0.4)

        def forward(self, x):
            return self.drop(self.a(x)) * self.drop(self.b(x)).tanh()

    return Layers().train()


def test_sessions_bisecting_and_evaluating_judge_models_in_training():
    def wrong(graph_module):
        layer = copy.deepcopy(graph_module.get_submodule("b"))
        with torch.no_grad():
            layer.weight *= 1.001
        graph_module.add_submodule("b", layer)

    session = Session(merged(), X, passes=[fxlab.FuseBiasInLinear(), from_callable(wrong, name="wrong")])
    session.apply("fuse-bias-in-linear")
    assert session.verdict(), session.verdict()
    assert fxlab.bisect(session) is None
    assert session.evaluate([X, X[:5] + 1])
    session.apply("wrong")
    assert session.verdict().status == "different"
    assert fxlab.bisect(session).pass_.name == "wrong"
    assert not session.evaluate([X])


def test_the_node_that_goes_wrong_is_found_among_those_that_draw():
    graph = fxlab.symbolic_trace(merged(), X)
    assert fxlab.first_divergence(graph, copy.deepcopy(graph), X) is None
    table = fxlab.compare_nodes(graph, copy.deepcopy(graph), X, judge=True)
    assert set(table["status"]) == {"same bits"}
    wrong = copy.deepcopy(graph)
    with torch.no_grad():
        wrong.get_submodule("b").weight *= 1.001
    assert fxlab.first_divergence(graph, wrong, X).node == "b"


@pytest.mark.parametrize("draw", [DRAWS["dropout"], DRAWS["noise"]], ids=["dropout", "noise"])
def test_a_node_that_draws_is_judged_in_float64_on_the_numbers_that_it_has_drawn(draw):
    original, right = (as_graph(model.train(), X) for model in third(draw)(1.0))
    wrong = as_graph(third(draw)(1 + 1e-5)[0].train(), X)
    judged = fxlab.compare_nodes(original, right, X, judge=True)["status"]
    assert "within the model's own rounding" in set(judged)
    assert fxlab.first_divergence(original, right, X) is None
    assert fxlab.first_divergence(original, wrong, X).node == "model"


def test_drawing_costs_no_run_where_every_bit_is_the_same(monkeypatch):
    graph = fxlab.symbolic_trace(merged(), X)
    runs = []
    called = type(graph).__call__
    monkeypatch.setattr(type(graph), "__call__", lambda *given: runs.append(1) or called(*given))
    assert verdict(graph, copy.deepcopy(graph), X).status == "same bits"
    assert len(runs) <= 2


def test_numbers_that_another_thread_draws_meanwhile_are_not_the_model_s():
    runs = []

    def beside_another_thread(x):
        runs.append(1)
        if len(runs) == 1:
            other = threading.Thread(target=random.random)
            other.start()
            other.join()
        return x * 2

    module = graph_of(beside_another_thread)
    assert verdict(module, copy.deepcopy(module), X).agrees
    assert len(runs) > 2


def graph_of(function):
    graph = fx.Graph()
    graph.output(graph.call_function(function, (graph.placeholder("x"),)))
    return fx.GraphModule(nn.Module(), graph)


def test_runs_of_one_thread_wait_for_those_of_another():
    runs, is_over = threading.Semaphore(0), threading.Event()

    def slowly(x):
        runs.release()
        is_over.wait(1)
        return F.dropout(x, training=True)

    def beside_another_thread(x):
        if not other.ident:
            other.start()
        runs.acquire(timeout=0.5)
        return x * torch.rand(2)[1]

    slow, module = graph_of(slowly), graph_of(beside_another_thread)
    other = threading.Thread(target=fxlab.compare_nodes, args=(slow, copy.deepcopy(slow), X))
    before = torch.get_rng_state(), random.getstate()
    assert verdict(module, copy.deepcopy(module), X).status == "same bits"
    is_over.set()
    other.join()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
