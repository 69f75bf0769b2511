"""Gradients through a trace, and those that a model computes itself."""

import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch._higher_order_ops.strict_mode import strict_mode
from torch.func import jacrev
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import fxlab
from fxlab.tracing.bound_inputs import bound_arguments
from fxlab.tracing.model_code.surroundings import run_alone
from fxlab.tracing.verification.eager import EagerReference

# Torch says these once in a process.
pytestmark = pytest.mark.filterwarnings(
    "ignore:flex_attention called without", "ignore:.torch.jit.script. is deprecated"
)

POSITIONS = torch.randn(5, 3)


class ForceField(nn.Module):
    """Gives an energy and its negative gradient."""

    def __init__(self, create_graph=False):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 8), nn.Linear(8, 1)
        self.create_graph = create_graph

    def energy(self, positions):
        return self.outer(torch.tanh(self.inner(positions))).sum()

    def forward(self, positions):
        positions.requires_grad_()
        energy = self.energy(positions)
        (gradient,) = torch.autograd.grad(energy, positions, create_graph=self.create_graph)
        return energy, -gradient


class OfDetached(ForceField):
    def forward(self, positions):
        with torch.enable_grad():
            positions = positions.detach().requires_grad_()
            (gradient,) = torch.autograd.grad([self.energy(positions)], [positions], create_graph=True)
        return gradient


def gradients(model, *inputs):
    model.zero_grad()
    torch.manual_seed(0)
    outputs = model(*(value.clone() for value in inputs))
    sum(
        t.sum() for t in (outputs if isinstance(outputs, tuple) else (outputs,)) if t.requires_grad
    ).backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize(
    "model", [ForceField(), ForceField(create_graph=True), OfDetached(create_graph=True)]
)
def test_derivatives_in_forward_are_a_node(model):
    traced = fxlab.symbolic_trace(model, POSITIONS)
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert traced.graph.find_nodes(op="call_function", target=torch.autograd.grad)
    other = torch.randn(7, 3)
    for actual, expected in zip(traced(other.clone()), model(other.clone()), strict=True):
        assert torch.equal(actual, expected)
    if not model.create_graph:  # what leads to the energy is gone
        return
    for ours, theirs in zip(gradients(traced, other), gradients(model, other), strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


def write_an_item(weight, y):
    weight[0, 0] += 1


def write_rows(weight, y):
    for row in weight.unbind():
        row.mul_(0.9)


def write_a_view_of_a_view(weight, y):
    weight.t().diagonal().clamp_(-0.1, 0.1)
    y.view(-1)[2:4].mul_(3)


def write_through_a_view_that_stays(weight, y):
    view = y.t()
    view[0] = 3
    y[:, 1] += view[1] * weight[0, 0]


@pytest.mark.parametrize(
    "write", [write_an_item, write_rows, write_a_view_of_a_view, write_through_a_view_that_stays]
)
def test_a_view_that_is_written_without_gradients_leaves_history_as_it_was(write):
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            y = self.linear(x)
            with torch.no_grad():
                write(self.linear.weight, y)
            return y * y

    model, x = Writes(), torch.randn(3, 4)
    traced = fxlab.symbolic_trace(Writes(), x, check=False)
    for _ in range(2):  # the second time with written weights
        ours, theirs = traced(x), model(x)
        assert torch.equal(ours, theirs)
    for result in (ours, theirs):
        result.sum().backward()
    trained = zip(traced.parameters(), model.parameters(), strict=True)
    assert all(torch.equal(ours.grad, theirs.grad) for ours, theirs in trained)


class Switches(ForceField):
    @torch.enable_grad()
    def forces(self, positions):
        positions = positions.detach().requires_grad_()
        with torch.no_grad():
            scale = self.outer.weight.sum()
        with torch.set_grad_enabled(True):
            energy = self.energy(positions) * scale
        return torch.autograd.grad(energy, positions)[0]

    def forward(self, positions):
        forces = self.forces(positions)
        with torch.set_grad_enabled(False):
            energy = self.energy(positions)
            with torch.enable_grad():
                trained = self.inner(positions)
        return forces, energy, trained, self.inner(positions)


@pytest.mark.parametrize("traced_with", [True, False])
def test_gradients_that_a_model_turns_on_are_on_in_the_graph_and_then_as_they_were(traced_with):
    with torch.set_grad_enabled(traced_with):
        traced = fxlab.symbolic_trace(Switches(), POSITIONS, check=False)
    model = Switches()
    model.load_state_dict(traced.state_dict())
    for module in (traced, pickle.loads(pickle.dumps(traced))):
        for run_with in (True, False):
            with torch.set_grad_enabled(run_with):
                expected, actual = model(POSITIONS), module(POSITIONS)
                assert torch.is_grad_enabled() == run_with
            assert all(map(torch.equal, actual, expected))
            assert [one.requires_grad for one in actual] == [one.requires_grad for one in expected]


def test_a_graph_that_takes_derivatives_has_a_verdict():
    session = fxlab.Session(fxlab.symbolic_trace(ForceField(), POSITIONS, check=False), POSITIONS)
    assert session.verdict().agrees


def pulled_back(function, *primals, **options):
    output, pull, *others = torch.func.vjp(function, *primals, **options)
    return output, pull(torch.utils._pytree.tree_map(torch.cos, output)), others


def as_often_as_positive(positions):
    chosen = positions[positions > 0]
    return (chosen.new_ones(chosen.shape[0] * positions.shape[0]).sum() * chosen).sum()


DERIVATIVES = {
    "of a size of inside times one of outside": lambda m, x: torch.func.grad(as_often_as_positive)(x),
    "grad": lambda m, x: torch.func.grad(m.energy)(x),
    "of several arguments": lambda m, x: torch.func.grad(lambda a, b: (m.inner(a) * b).sum(), (0, 1))(
        x, x[:, :1]
    ),
    "with more than the value": lambda m, x: torch.func.grad(
        lambda a: (m.energy(a), {"h": a * 2}), has_aux=True
    )(x),
    "grad_and_value": lambda m, x: torch.func.grad_and_value(m.energy)(x),
    "of dictionaries": lambda m, x: torch.func.grad(lambda d: (d["a"] * d["b"]).sum())({"a": x, "b": x + 1}),
    "numbers and keywords": lambda m, x: torch.func.grad(lambda a, n, *, k: (a**n * k).sum())(
        x, 3, k=x.exp()
    ),
    "jacrev, imported by name": lambda m, x: jacrev(m.inner)(x[0]),
    "jacfwd": lambda m, x: torch.func.jacfwd(lambda a: m.inner(a).tanh())(x[0]),
    "hessian": lambda m, x: torch.func.hessian(m.energy)(x[0]),
    "vjp": lambda m, x: pulled_back(lambda a: m.inner(a).tanh(), x),
    "vjp of several": lambda m, x: pulled_back(
        lambda a, d: ({"sum": a + d["b"]}, a * 2), x, {"b": x.exp()}, has_aux=True
    ),
    "mapped": lambda m, x: torch.vmap(torch.func.grad(m.energy))(x),
    "of a derivative": lambda m, x: torch.func.grad(lambda a: torch.func.grad(m.energy)(a).pow(2).sum())(x),
    "for each sample": lambda m, x: torch.vmap(
        torch.func.grad(lambda p, a: torch.func.functional_call(m.inner, p, (a,)).pow(2).sum()), (None, 0)
    )(dict(m.inner.named_parameters()), x),
}


class Derives(ForceField):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, positions):
        return self.function(self, positions)


@pytest.mark.often(6)
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch itself calls it
@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
@pytest.mark.parametrize("case", DERIVATIVES)
def test_derivatives_of_torch_func_are_nodes(case):
    model = Derives(DERIVATIVES[case])
    traced = fxlab.symbolic_trace(model, POSITIONS)
    assert traced.meta["trace"].rung == "dynamic shapes"
    again = pickle.loads(pickle.dumps(traced))
    for positions in (POSITIONS, torch.randn(7, 3)):
        expected = torch.utils._pytree.tree_leaves(model(positions))
        for module in (traced, again):
            actual = torch.utils._pytree.tree_leaves(module(positions))
            assert all(map(torch.equal, actual, expected))
            assert [one.requires_grad for one in actual] == [one.requires_grad for one in expected]


def linearized(function, *primals):
    output, push = torch.func.linearize(function, *primals)
    return output, push(*(primal.cos() for primal in primals))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # torch's linearize does
@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
@pytest.mark.parametrize(
    "product",
    [
        lambda m, x: torch.func.jvp(lambda a: m.inner(a).exp(), (x,), (x.cos(),)),
        lambda m, x: linearized(lambda a, b: m.inner(a).exp() * b[0, 0], x, x + 1),
    ],
    ids=["jvp", "linearize"],
)
def test_a_product_with_tangents_follows_sizes(product):
    model = Derives(product)
    traced = fxlab.symbolic_trace(model, POSITIONS, check=False)
    for positions in (torch.randn(5, 3), torch.randn(7, 3)):
        assert all(map(torch.equal, traced(positions), model(positions)))


@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
def test_a_product_with_tangents_holds_for_the_sizes_that_torch_has_compared():
    model = Derives(
        lambda m, x: torch.func.jvp(lambda a: nn.functional.layer_norm(a, (3,)), (x,), (x.cos(),))
    )
    traced = fxlab.symbolic_trace(model, POSITIONS)
    assert all(map(torch.equal, traced(POSITIONS), model(POSITIONS)))
    with pytest.raises(AssertionError, match="traced for positions"):
        traced(torch.randn(7, 3))


def test_passes_around_a_derivative_are_judged():
    session = fxlab.Session(Derives(lambda m, x: torch.func.grad(m.energy)(x / 2.0)), POSITIONS)
    session.apply("change-true-div-to-mul-by-inverse")
    assert fxlab.rewriting.transformed_nodes(
        session.graph_module, original=session.original
    ).index.tolist() == ["truediv"]
    assert session.verdict().same_bits


class OfFunction(ForceField):
    def forward(self, positions):
        return torch.func.vjp(self.energy, positions)[1](torch.ones(()))[0]


class Functionalized(ForceField):
    def forward(self, positions):
        return torch.func.functionalize(self.energy)(positions)


class Strict(ForceField):
    def forward(self, positions):
        return strict_mode(torch.exp, (positions,))


class Backward(ForceField):
    def forward(self, positions):
        positions = positions.clone().requires_grad_()
        self.energy(positions).backward(inputs=[positions])
        return positions.grad


@pytest.mark.parametrize(
    ("model", "cause", "code"),
    [
        (Functionalized(), "does not show", "hidden-tensor"),
        (Strict(), "strict_mode", "hidden-by-torch"),
        (Backward(), "backward", "backward"),
    ],
)
def test_what_cannot_be_recorded_is_named(model, cause, code):
    with pytest.raises(fxlab.TraceError, match=cause) as raised:
        fxlab.symbolic_trace(model, POSITIONS)
    assert raised.value.code == code


def test_a_leaf_module_may_take_derivatives_by_torch_func():
    model = nn.Sequential(OfFunction(), nn.ReLU())
    traced = fxlab.symbolic_trace(model, POSITIONS, leaf_modules=[OfFunction], check=False)
    assert torch.equal(traced(POSITIONS), model(POSITIONS))


@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
@pytest.mark.parametrize("leaf_modules", [[Strict], None], ids=["named", "found"])
def test_a_part_may_give_functions_to_an_operator(leaf_modules):
    model = nn.Sequential(Strict(), nn.ReLU())
    traced = fxlab.symbolic_trace(model, POSITIONS, leaf_modules=leaf_modules)
    assert "dynamic shapes" in traced.meta["trace"].rung
    for other in (POSITIONS[:4] - 5, POSITIONS + 5):
        assert torch.equal(traced(other), model(other))


class WithoutGradient(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        x = self.linear(x)
        if torch.is_grad_enabled() and x.requires_grad:
            raise NotImplementedError("This kernel does not support backward")
        return x * 2


def test_a_model_that_runs_without_gradients_only_is_traced_without():
    model = WithoutGradient()
    traced = fxlab.symbolic_trace(model, POSITIONS, check=False)
    with torch.no_grad():
        assert torch.equal(traced(POSITIONS), model(POSITIONS))


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant, first=True):
        super().__init__()
        self.first = nn.Linear(3, 3) if first else nn.Identity()
        self.block = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
        self.last = nn.Linear(3, 3)
        self.use_reentrant = use_reentrant

    def forward(self, x):
        return self.last(checkpoint(self.block, self.first(x), use_reentrant=self.use_reentrant))


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints_train_what_they_train_in_the_model(use_reentrant, first):
    model = Checkpointed(use_reentrant, first).train()
    traced = fxlab.symbolic_trace(model, POSITIONS, check=False)
    for ours, theirs in zip(gradients(traced, POSITIONS), gradients(model, POSITIONS), strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.filterwarnings("ignore::fxlab.TraceWarning")
@pytest.mark.parametrize("traced_with", [True, False])
@pytest.mark.parametrize("run_with", [True, False])
def test_what_a_reentrant_checkpoint_trains_depends_on_the_inputs_of_the_run(traced_with, run_with):
    model = Checkpointed(True, first=False).train()
    traced = fxlab.symbolic_trace(model, POSITIONS.clone().requires_grad_(traced_with), check=False)
    given = POSITIONS.clone().requires_grad_(run_with)
    for ours, theirs in zip(gradients(traced, given), gradients(model, given), strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


@pytest.mark.parametrize("check", [True, False])
def test_a_model_that_does_something_else_where_torch_has_no_gradients(check):
    class FallsBack(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(16, 16)

        def forward(self, x):
            heads = self.linear(x)[:, None]
            try:
                return flex_attention(heads, heads, heads)
            except NotImplementedError:  # of torch, on a CPU
                return heads * 2

    model, x = FallsBack(), torch.randn(2, 8, 16)
    traced = fxlab.symbolic_trace(model, x, check=check)
    assert torch.equal(traced(x), model(x))
    with torch.no_grad():
        with pytest.raises(AssertionError, match=r"torch.is_grad_enabled\(\) being True only"):
            traced(x)
        assert torch.equal(fxlab.symbolic_trace(model, x, check=check)(x), model(x))


class Tripled(torch.autograd.Function):
    """The sine, with three times its derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient * ctx.saved_tensors[0].cos()


class Of(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(3, 3), function

    def forward(self, x):
        return self.function(self.linear(x))


tripled = Tripled.apply
TABLE = {"tripled": Tripled.apply}
WAYS_TO_HOLD = {
    "a variable of the module": lambda x: tripled(x),
    "a table": lambda x: TABLE["tripled"](x),
    "a partial function": partial(Tripled.apply),
    "a default": lambda x, function=Tripled.apply: function(x),
    "a builtin": lambda x: next(map(tripled, [x])),
}


@pytest.mark.skipif(
    not isinstance(vars(torch.autograd.Function)["apply"], classmethod),
    reason="written in C since torch 2.15",
)
@pytest.mark.parametrize("way", WAYS_TO_HOLD)
def test_a_function_of_autograd_that_is_held_as_a_value_keeps_its_backward(way):
    model = Of(WAYS_TO_HOLD[way])
    traced = fxlab.symbolic_trace(model, torch.rand(2, 3), check=False)
    x = torch.rand(4, 3)
    assert all(map(torch.equal, gradients(traced, x), gradients(model, x)))


IN_C = torch._C._FunctionBase.__dict__["apply"]
"""The ``apply`` of torch 2.15, which earlier ones call."""


def test_an_apply_that_is_written_in_c_keeps_its_backward_where_it_is_called(monkeypatch):
    monkeypatch.setattr(torch.autograd.Function, "apply", IN_C)
    model, x = Of(lambda x: Tripled.apply(x)), torch.rand(4, 3)
    traced = fxlab.symbolic_trace(model, torch.rand(2, 3))
    assert all(map(torch.equal, gradients(traced, x), gradients(model, x)))


def test_an_apply_that_is_written_in_c_and_held_is_named(monkeypatch):
    monkeypatch.setattr(torch.autograd.Function, "apply", IN_C)
    with pytest.warns(fxlab.TraceWarning, match="Tripled.*its own backward is not in the graph"):
        fxlab.symbolic_trace(Of(partial(Tripled.apply)), torch.rand(2, 3))


def test_the_check_finds_gradients_that_the_graph_loses():
    model = Of(lambda x: Tripled.apply(x))
    traced = fxlab.symbolic_trace(model, torch.rand(2, 3))
    node = next(node for node in traced.graph.nodes if node.name == "tripled")
    with traced.graph.inserting_after(node):
        cut = traced.graph.call_method("detach", (node,))
    node.replace_all_uses_with(cut, lambda user: user is not cut)
    traced.recompile()
    given = bound_arguments(model, torch.rand(2, 3))
    with run_alone(model) as around:
        eager = EagerReference(model, given, has_data=True, around=around)
        values = {argument.name: argument.value for argument in given}
        assert "to linear.weight" in eager.difference_with_gradients(traced, values)
        assert not eager.difference(traced, values)


class OnHost(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        with torch.autograd.graph.save_on_cpu():
            return self.linear(x).exp()


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize(
    ("model", "name"),
    [
        (Checkpointed(True).train(), "checkpoint"),
        (Checkpointed(False).train(), "checkpoint_hook"),
        (OnHost(), "save_on_cpu"),
    ],
)
def test_a_trace_reports_tensors_that_a_model_recomputes_or_moves(model, name):
    found = fxlab.symbolic_trace(model, POSITIONS).meta["trace"].of_kind("saved tensors")
    assert [finding.what for finding in found] == [name]


class Slope(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x):
        x = x.requires_grad_()
        values = (x * self.weight).sin() @ self.weight
        return torch.autograd.grad(values @ values, [x])[0] * 2


def test_a_model_that_differentiates_is_exported(tmp_path):
    session = fxlab.Session(Slope(), POSITIONS)
    assert fxlab.export(session, tmp_path / "model.pt2").verdict
