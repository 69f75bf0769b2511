"""RemoveDeadCode: what nothing uses goes, unless it does something else, or may."""

import operator

import pytest
import torch
from exactness import Apply, check, refused, traced, traced_whole
from torch import fx, nn
from torch.nn import functional as F

from fxlab import RemoveDeadCode

REMOVE = RemoveDeadCode()


class Unused(Apply):
    """Whatever function is given, whose result nothing uses, and modules in their own modes."""

    def __init__(self, function, **modules):
        super().__init__(function, training=True, **modules)

    def forward(self, x):
        self.function(self, x)
        return x + 1


def names(gm):
    return [node.name for node in gm.graph.nodes]


def why_not(model):
    """Check that a model is left alone; return the code of the reason for the last node."""
    return refused(REMOVE, traced(model)).split()[0]


@pytest.mark.parametrize(
    ("function", "modules"),
    [
        (lambda _, x: x * 2, {}),
        (lambda _, x: torch.relu(x).sum(-1).view(-1)[0], {}),
        (lambda _, x: x.size(0) + x.shape[1] + x.dim(), {}),
        (lambda _, x: (x @ x.mT).softmax(-1).chunk(2, -1)[1], {}),
        (lambda _, x: F.dropout(x, 0.5, training=False), {}),
        (lambda _, x: F.scaled_dot_product_attention(x, x, x), {}),
        (lambda self, x: self.a(self.b(x)), {"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)}),
        (
            lambda self, x: self.drop(self.norm(x)),
            {"drop": nn.Dropout().eval(), "norm": nn.BatchNorm1d(3).eval()},
        ),
        (lambda self, x: F.linear(x, self.a.weight, self.a.bias), {"a": nn.Linear(3, 3)}),
        (lambda self, x: F.batch_norm(x, None, None, training=False) if False else F.layer_norm(x, (3,)), {}),
    ],
)
def test_what_nothing_uses_is_removed(function, modules):
    model = Unused(function, **modules)
    gm = check(REMOVE, model, torch.randn(3, 3), marked=0, removes=True, tolerance=0.0)
    kept = [node.op for node in gm.graph.nodes if node.target != "evaluation_mode"]
    assert kept == ["placeholder", "call_function", "output"]


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda _, x: x.add_(1), "may-write-inputs"),
        (lambda _, x: F.relu(x, inplace=True), "may-write-inputs"),
        (lambda _, x: x.view(-1).mul_(2), "may-write-inputs"),
        (lambda _, x: torch.add(x, 1, out=x), "may-write-inputs"),
        (lambda _, x: torch.rand_like(x), "side-effects"),
        (lambda _, x: torch.bernoulli(x.sigmoid()), "side-effects"),
        (lambda _, x: F.dropout(x, 0.5, training=True), "active-dropout"),
        (lambda _, x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), "random"),
        (lambda _, x: F.batch_norm(x, x[0], x[0].abs(), training=True), "may-write-inputs"),
        (lambda _, x: F.embedding(x.long(), x, max_norm=1.0), "may-write-inputs"),
        (lambda _, x: x.backward(), "may-have-side-effects"),
    ],
)
def test_what_does_something_else_stays(function, code):
    assert why_not(Unused(function)) == code


@pytest.mark.parametrize(
    ("op", "target", "args", "code"),
    [
        ("call_function", operator.iadd, (1,), "may-write-inputs"),
        ("call_function", getattr, ("grad",), "may-have-side-effects"),
        ("call_function", print, (), "may-have-side-effects"),
        ("call_method", "retain_grad", (), "may-write-inputs"),
        ("call_method", "append", (1,), "may-write-inputs"),
        ("call_function", torch.ops.aten.relu_.default, (), "may-write-inputs"),
        ("call_function", torch.ops.aten.bernoulli.default, (), "side-effects"),
    ],
)
def test_calls_that_do_something_else_stay(op, target, args, code):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.create_node(op, target, (x, *args))
    graph.output(x)
    assert refused(REMOVE, fx.GraphModule(nn.Module(), graph)) == code


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (nn.BatchNorm1d(3), "writes-state"),
        (nn.Dropout(), "active-dropout"),
        (nn.ReLU(inplace=True), "may-write-inputs"),
        (nn.RReLU(), "random"),
        (nn.Embedding(3, 3, max_norm=1.0), "writes-state"),
        (nn.MultiheadAttention(3, 1), "may-have-side-effects"),
        (nn.GRU(3, 3), "may-have-side-effects"),
        (nn.InstanceNorm1d(3, track_running_stats=True), "writes-state"),
    ],
)
def test_modules_that_do_something_else_stay(module, code):
    assert why_not(Unused(lambda self, x: self.module(x), module=module)) == code


def test_hooked_subclassed_and_parametrized_modules_stay():
    class Mine(nn.Linear):
        def forward(self, x):
            x.add_(1)
            return super().forward(x)

    call = lambda self, x: self.module(x)  # noqa: E731
    hooked = Unused(call, module=nn.Linear(3, 3))
    hooked.module.register_forward_hook(lambda m, args, out: args[0].add_(1))
    assert why_not(hooked)
    for model in (
        Unused(call, module=Mine(3, 3)),
        Unused(call, module=nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))),
    ):
        assert refused(REMOVE, traced_whole(model, nn.Module))
    replaced = traced(Unused(call, module=nn.Linear(3, 3)))
    replaced.module.forward = lambda x: x.add_(1)
    assert refused(REMOVE, replaced) == "forward-replaced"


def test_functions_of_somebodys_own_stay():
    def add(x, y):
        x.add_(y)

    gm = traced(Unused(lambda _, x: x * 2))
    next(node for node in gm.graph.nodes if node.name == "mul").target = add
    gm.recompile()
    assert refused(REMOVE, gm) == "may-write-inputs"


def test_guards_and_assertions_are_no_candidates():
    class Checked(torch.nn.Module):
        def forward(self, x):
            torch._assert(x.shape[0] == 2, "two rows")
            x.cos()
            return x.sin()

    remove = RemoveDeadCode()
    assert remove.explain(torch.fx.symbolic_trace(Checked())).index.tolist() == ["cos"]
    x = torch.randn(2, 3)
    exported = torch.export.export(Checked(), (x,)).module()
    assert remove.explain(exported).index.tolist() == ["cos"]
    assert len(remove(exported).graph.find_nodes(op="call_module")) == 1
    with pytest.raises(AssertionError, match="Guard failed"):
        exported(torch.randn(5, 3))
