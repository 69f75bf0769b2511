"""Memory, gradients, hooks, threads, and Dynamo for others: as they are without as_model."""

import gc
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

import fxlab
from fxlab import MergeLinears, from_callable
from fxlab.tracing.dynamo import compiling


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.use_reentrant = use_reentrant
        self.body = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Dropout(0.3), nn.Linear(64, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant=self.use_reentrant)).sum()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.c(self.a(x).relu() * self.b(x))


def as_model(model, x, *passes):
    session = fxlab.Session(model, x, passes=passes)
    for pass_ in passes:
        session.apply(pass_)
    return session.as_model()


class Doubled(fxlab.Transformation):
    def transform(self, graph_module):
        for parameter in graph_module.parameters():
            parameter.data.mul_(2)
        return graph_module


class Tanhs(fxlab.Transformation):
    def transform(self, graph_module):
        for node in graph_module.graph.find_nodes(op="call_method", target="relu"):
            node.target = "tanh"
        return graph_module


@pytest.mark.parametrize("pass_", [Doubled(), Tanhs()], ids=["weights", "nodes"])
def test_a_pass_that_marks_nothing_is_used_and_writes_weights_of_its_own(pass_):
    torch.manual_seed(0)
    model, x = Block().eval(), torch.randn(3, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    session = fxlab.Session(model, x, passes=[pass_])
    session.apply(pass_)
    with torch.no_grad():
        fast = session.as_model(check=False)
        assert torch.equal(fast(x), session.graph_module(x))
        assert not torch.equal(fast(x), model(x))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_pass_that_does_nothing_after_one_with_new_weights_is_not_named():
    model, x = Block().eval(), torch.randn(3, 4)
    with torch.no_grad():
        fast = as_model(model, x, MergeLinears(), fxlab.FuseAttention())
        fast(x)
    assert fast.graphs()["passes"].tolist() == ["merge-linears"]


def saved_elements(function):
    """Count what a function keeps for backward."""
    found = []

    def pack(tensor):
        if not isinstance(tensor, nn.Parameter):
            found.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function()
    return sum(found)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints_keep_as_little_for_backward_and_compute_the_same(use_reentrant):
    torch.manual_seed(0)
    model, x = Checkpointed(use_reentrant).eval(), torch.randn(16, 8, requires_grad=True)
    fast = as_model(model, x, MergeLinears())
    model.train()
    fast.train()
    assert saved_elements(lambda: fast(x)) == saved_elements(lambda: model(x)) < 16 * 64
    results = []
    for module in (fast, model):
        torch.manual_seed(0)
        output = module(x)
        output.backward()
        leaves = [x, *model.parameters()]
        results.append([output, *(leaf.grad.clone() for leaf in leaves)])
        for leaf in leaves:
            leaf.grad = None
    assert all(map(torch.equal, *results))
    assert "graph" in fast.graphs()["runs"].tolist()


def detached(graph_module):
    """Cut the gradient off: outputs stay the same."""
    node = next(node for node in graph_module.graph.nodes if "relu" in str(node.target))
    with graph_module.graph.inserting_after(node):
        cut = graph_module.graph.call_method("detach", (node,))
    node.replace_all_uses_with(cut, delete_user_cb=lambda user: user is not cut)
    return graph_module


def test_a_pass_that_is_wrong_in_the_gradients_alone_is_not_used():
    torch.manual_seed(0)
    model, x = Block().train(), torch.randn(3, 4)
    fast = as_model(model, x, from_callable(detached))
    with pytest.warns(RuntimeWarning, match=r"detached not used: different: gradient of a\.weight"):
        fast(x).sum().backward()
    assert model.a.weight.grad is not None
    assert fast.graphs()["passes"].tolist() == [""]
    with torch.no_grad():
        assert torch.equal(fast(x), model(x))
    assert fast.graphs()["passes"].tolist() == ["", "detached"]


def raises_later(graph_module):
    """Hold the graph for batches of three."""
    node = next(node for node in graph_module.graph.nodes if "relu" in str(node.target))
    with graph_module.graph.inserting_after(node):
        view = graph_module.graph.call_method("view", (node, 3, 8))
    node.replace_all_uses_with(view, delete_user_cb=lambda user: user is not view)
    return graph_module


def test_a_transformed_graph_that_raises_gives_way_to_the_untransformed():
    model, x = Block().eval(), torch.randn(3, 4)
    fast = as_model(model, x, from_callable(raises_later))
    with torch.no_grad():
        assert torch.equal(fast(x), model(x))
        with pytest.warns(RuntimeWarning, match="the transformed graph raised RuntimeError: shape"):
            assert torch.equal(fast(torch.ones(5, 4)), model(torch.ones(5, 4)))
        assert torch.equal(fast(x), model(x))
    assert "the transformed graph raised" in fast.graphs()["reason"][0]


def test_a_graph_that_cannot_be_rewritten_runs_as_it_is(monkeypatch):
    from fxlab.deployment import compiled_model

    def fails(*_):
        raise NotImplementedError("no such node")

    monkeypatch.setattr(compiled_model, "LiftedGraph", fails)
    model, x = Block().eval(), torch.randn(3, 4)
    fast = as_model(model, x, MergeLinears())
    with torch.no_grad():
        with pytest.warns(RuntimeWarning, match="cannot be rewritten: NotImplementedError: no such node"):
            assert torch.equal(fast(x), model(x))
        assert torch.equal(fast(x), model(x))
    assert fast.graphs()[["runs", "hits"]].values.tolist() == [["graph", 2]]


class Adapted(nn.Module):
    """A linear with adapters of low rank, as peft makes it."""

    def __init__(self, base):
        super().__init__()
        self.base, self.scaling, self.active, self.disabled = base, {"default": 0.5}, ["default"], False
        self.down = nn.ModuleDict({"default": nn.Linear(4, 2, bias=False)})
        self.up = nn.ModuleDict({"default": nn.Linear(2, 8, bias=False)})

    def forward(self, x):
        y = self.base(x)
        for name in [] if self.disabled else self.active:
            y = y + self.up[name](self.down[name](x)) * self.scaling[name]
        return y


def test_adapters_are_added_scaled_and_disabled():
    torch.manual_seed(0)
    model, x = Block().eval(), torch.randn(3, 4)
    adapted = model.a = Adapted(model.a)
    fast = as_model(model, x, MergeLinears())

    def add_another():
        adapted.scaling["other"] = 2.0
        adapted.down["other"], adapted.up["other"] = nn.Linear(4, 2, bias=False), nn.Linear(2, 8, bias=False)
        adapted.active.append("other")

    changes = [
        lambda: None,
        lambda: adapted.scaling.update(default=5.0),
        add_another,
        lambda: setattr(adapted, "disabled", True),
        lambda: setattr(adapted, "disabled", False),
        lambda: adapted.active.remove("default"),
    ]
    results = []
    with torch.no_grad():
        for change in changes:
            change()
            results.append(model(x))
            assert torch.allclose(fast(x), results[-1], atol=1e-6)
    assert len({result.sum().item() for result in results}) == 5
    assert "graph" in fast.graphs()["runs"].tolist()


def test_writes_that_torch_does_not_count_are_seen_by_new_weights():
    model, x = Block().eval(), torch.randn(3, 4)
    fast = as_model(model, x, MergeLinears())
    writes = lambda: model.a.weight.data.mul_(3), lambda: model.b.weight.detach().numpy().fill(2)
    with torch.no_grad():
        for write in (lambda: None, *writes):
            write()
            assert torch.allclose(fast(x), model(x), atol=1e-6)
    assert fast.graphs()["passes"].tolist() == ["merge-linears"]


def test_derivatives_of_torch_func_are_those_of_the_model():
    model, x = Block().eval(), torch.randn(3, 4)
    fast = as_model(model, x, MergeLinears())
    parameters = dict(model.named_parameters())

    def loss(module, values):
        return functional_call(module, values, (x,)).sum()

    actual = grad(lambda values: loss(fast, values))(parameters)
    expected = grad(lambda values: loss(model, values))(parameters)
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    assert torch.equal(vmap(fast)(x), vmap(model)(x))
    assert fast.graphs()[["runs", "hits", "reason"]].values.tolist() == [
        ["eager", 2, "a transform of torch.func is applied"]
    ]
    with torch.no_grad():
        assert torch.equal(fast(x), model(x))
    assert "graph" in fast.graphs()["runs"].tolist()


class Derives(nn.Module):
    """Calls a transform, which the graph of Dynamo enters and leaves by nodes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return grad(lambda value: value.sin().sum())(self.linear(x))


def test_graphs_that_enter_a_transform_are_judged():
    model, x = Derives().eval(), torch.randn(2, 4)
    for _ in range(5):
        fast = as_model(model, x, fxlab.FuseBiasInLinear())
        with torch.no_grad():
            assert torch.equal(fast(x), model(x))
            assert not torch.is_grad_enabled()
        assert fast.graphs()["verdict"].tolist() == ["same bits"]


def test_other_threads_run_while_it_is_compiled():
    torch.manual_seed(0)
    model, x, wrong = Block().eval(), torch.randn(3, 4), []
    fast, expected = as_model(model, x, MergeLinears()), model(x)

    def call(module, count):
        with torch.no_grad():
            for _ in range(count):
                output = module(x)
                if type(output) is not torch.Tensor or not torch.allclose(output, expected, atol=1e-6):
                    wrong.append(output)

    threads = [threading.Thread(target=call, args=args) for args in ((fast, 5), (fast, 5), (model, 200))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert "graph" in fast.graphs()["runs"].tolist()


def test_nothing_keeps_a_model_that_is_not_used_any_more():
    x = torch.randn(3, 4)

    def used():
        model = Block().eval()
        fast = as_model(model, x, MergeLinears())
        with torch.no_grad():
            fast(x)
            fast(torch.randn(5, 4))
        return [weakref.ref(found) for found in (model, fast, model.a.weight)]

    found = used()
    for _ in range(3):
        gc.collect()
    assert [reference() for reference in found] == [None] * 3


def test_a_reset_of_dynamo_costs_the_graphs_alone():
    model, x = Block().eval(), torch.randn(3, 4)
    fast = as_model(model, x)
    with torch.no_grad():
        fast(x)
        torch._dynamo.reset()
        assert fast.graphs().empty
        assert torch.equal(fast(x), model(x))
    assert fast.graphs()["hits"].tolist() == [1]


def test_dynamo_is_for_others_what_it_was():
    model, x = Block().eval(), torch.randn(3, 4)
    fast, asked = as_model(model, x), []

    class Asks(nn.Module):
        def forward(self, x):
            asked.append(torch.compiler.is_compiling())
            return x + 1

    before = torch._dynamo.config.get_config_copy()
    with torch.no_grad():
        fast(x)
        as_model(Asks(), x)(x)
        assert torch._dynamo.config.get_config_copy() == before
        torch.compile(Asks(), backend="eager")(x)
    assert asked[-2:] == [False, True]


def test_code_that_is_not_compiled_any_more_is_compiled_for_others(monkeypatch):
    class Scales(nn.Module):
        scale = 0.0

        def forward(self, x):
            return x * self.scale

    monkeypatch.setitem(compiling._SETTINGS, "recompile_limit", 2)
    model, x, captured = Scales(), torch.ones(2), fxlab.Capture()
    fast = as_model(model, x)

    def run(number):
        fast.scale = number
        assert torch.equal(fast(x), x * number)

    run(0.0)
    run(1.0)
    with pytest.warns(RuntimeWarning, match="2 graphs were compiled"):
        run(2.0)
    run(3.0)
    torch.compile(model, backend=captured)(x)
    assert len(captured.graphs) == 1


def test_a_torch_without_what_guards_are_made_with_runs_it_eagerly(monkeypatch):
    monkeypatch.delattr(compiling.ConstDictVariable, "install_dict_contains_guard")
    model, x = Block().eval(), torch.randn(3, 4)
    fast = as_model(model, x)
    with torch.no_grad():
        with pytest.warns(RuntimeWarning, match="this torch has no ConstDictVariable.install_dict_contains"):
            assert torch.equal(fast(x), model(x))
        assert torch.equal(fast(x), model(x))
    assert fast.graphs()["runs"].tolist() == ["eager"]


def test_it_may_be_part_of_a_model_that_is_compiled():
    class Outer(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.last = inner, nn.Linear(2, 2)

        def forward(self, x):
            return self.last(self.inner(x))

    x = torch.randn(3, 4)
    outer = Outer(as_model(Block().eval(), x, MergeLinears())).eval()
    with torch.no_grad():
        expected = outer(x)
        compiled = torch.compile(outer, backend="eager", fullgraph=True)(x)
        assert torch.allclose(compiled, expected, atol=1e-6)
        assert torch.allclose(fxlab.Session(outer, x).as_model()(x), expected, atol=1e-6)


def test_excluded_candidates_are_excluded_in_all_graphs():
    model, x = nn.Sequential(Block(), nn.Linear(2, 4), Block()).eval(), torch.randn(3, 4)
    session = fxlab.Session(model, x, passes=[MergeLinears()])
    session.apply("merge-linears")
    session.exclude("merge-linears", "_0_a")
    fast = session.as_model()
    with torch.no_grad():
        fast(x)
    merged = [tuple(tensor.shape) for tensor in fast.forward._compiled.graphs()[0].made_tensors()]
    assert merged == [(16, 4), (16,)]
