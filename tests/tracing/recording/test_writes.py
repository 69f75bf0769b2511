"""Calls that write are kept, whoever reads their results, and the check compares what they have written."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fxlab import symbolic_trace
from fxlab.tracing.bound_inputs import bound_arguments
from fxlab.tracing.model_code.surroundings import run_alone
from fxlab.tracing.verification.eager import EagerReference

LIBRARY = torch.library.Library("fxlab_writes", "DEF")
LIBRARY.define("store(Tensor x, Tensor(a!) out) -> ()")
LIBRARY.impl("store", lambda x, out: (out.copy_(x.mean(0)), None)[1], "CPU")
LIBRARY.impl("store", lambda x, out: None, "Meta")
LIBRARY.define("add_to_all(Tensor(a!)[] outs, Tensor x) -> Tensor")
LIBRARY.impl("add_to_all", lambda outs, x: ([out.add_(x[0]) for out in outs], x + 1)[1], "CPU")
LIBRARY.impl("add_to_all", lambda outs, x: torch.empty_like(x), "Meta")


class UpdatesInForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mean, var):
        F.batch_norm(x, mean, var, training=True)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, None, None


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.seen += x.mean(0)
        return x


class Writes(nn.Module):
    def __init__(self, write):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))
        self.inner, self.write = Remembers(), write

    def forward(self, x):
        self.write(self, x)
        return x + 1


def statistics_under_autocast(model, x):
    with torch.autocast("cpu"):
        F.batch_norm(x, model.mean, model.var, training=True)
        F.batch_norm(2 * x, model.mean, model.var, training=True)


WAYS = {
    "statistics under autocast": statistics_under_autocast,
    "statistics of instances": lambda m, x: F.instance_norm(x.T[None], m.mean, m.var, use_input_stats=True),
    "an operator without a result": lambda m, x: torch.ops.fxlab_writes.store(x, m.mean),
    "an operator of a list": lambda m, x: torch.ops.fxlab_writes.add_to_all([m.mean, m.var], x),
    "an input": lambda m, x: torch.ops.fxlab_writes.store(x + 1, x[0]),
    "a function of autograd": lambda m, x: UpdatesInForward.apply(x, m.mean, m.var),
    "a part that stays whole": lambda m, x: m.inner(x),
}


@pytest.mark.each_value
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_write_whose_result_nobody_reads_is_made(way, check):
    model = Writes(WAYS[way]).eval()
    ours = copy.deepcopy(model)
    traced = symbolic_trace(ours, torch.rand(3, 4), check=check, leaf_modules=[Remembers])
    given = torch.rand(5, 4)
    same = given.clone()
    for _ in range(2):
        assert torch.equal(traced(given), model(same))
    assert torch.equal(given, same)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, ours.state_dict()[name]), name


@pytest.mark.parametrize("way", ["an operator of a list", "an operator without a result"])
def test_the_check_compares_the_state_that_a_run_leaves(way):
    model = Writes(WAYS[way]).eval()
    traced = symbolic_trace(model, torch.rand(3, 4), check=False)
    writer = next(node for node in traced.graph.nodes if "fxlab_writes" in str(node.target))
    traced.graph.erase_node(writer)
    traced.recompile()
    given = bound_arguments(model, torch.rand(3, 4))
    with run_alone(model) as around:
        eager = EagerReference(model, given, has_data=True, around=around)
        assert "writes mean" in eager.difference(
            traced, {argument.name: argument.value for argument in given}
        )


class Squeezes(nn.Module):
    """Asks for tensors, and lets torch decide on a size of one."""

    def forward(self, x, y):
        if isinstance(x, torch.Tensor) and torch.is_tensor(y):
            x = x.squeeze(0)
        return x * y


def test_the_graph_that_is_returned_is_the_one_that_was_checked():
    model, given = Squeezes(), (torch.rand(1, 3), torch.rand(3))
    with pytest.warns(UserWarning, match=r"x.shape\[0\]"):
        traced = symbolic_trace(model, given)
    traced.graph.lint()
    assert torch.equal(traced(*given), model(*given))
