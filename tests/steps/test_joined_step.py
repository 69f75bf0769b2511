"""AOTAutograd's forward and backward graph as one step."""

import pytest
import torch
from functorch.compile import aot_function, make_boxed_func
from torch import nn

import fxlab
from fxlab.node_info import is_backward


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


MODEL = nn.Sequential(Block(), Block(), nn.Linear(8, 2))
X = torch.randn(4, 8)


def compiled(*, dynamic=False):
    """Return both graphs, and what an eager step returns: the output and the gradients."""
    graphs = []

    def keep(graph_module, inputs):
        graphs.append(graph_module)
        return make_boxed_func(graph_module)

    parameters = [parameter.detach().clone().requires_grad_() for parameter in MODEL.parameters()]
    names = [name for name, _ in MODEL.named_parameters()]

    def call(x, *parameters):
        values = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(MODEL, values, (x,)) * x.shape[0]

    output = aot_function(call, keep, keep, dynamic=dynamic)(X, *parameters)
    output.sum().backward()
    return graphs, parameters, output


def test_both_graphs_become_one_that_computes_the_step():
    graphs, parameters, output = compiled()
    names = [f"primals_{at}" for at in range(2, 2 + len(parameters))]
    paths = [name for name, _ in MODEL.named_parameters()]
    step = fxlab.steps.joined_step(*graphs, dict(zip(names, paths, strict=True)))
    found = step(X, *parameters, torch.ones(4, 2))
    assert torch.equal(found["output 0"], output)
    gradients = [value for name, value in found.items() if name.startswith("grad of")]
    assert all(map(torch.equal, gradients, [parameter.grad for parameter in parameters]))
    assert [name for name in found if name != "output 0"] == [f"grad of {path}" for path in paths]
    passes = [is_backward(node) for node in step.graph.nodes if node.op == "call_function"]
    assert passes == sorted(passes)
    assert set(passes) == {False, True}
    session = fxlab.Session(step, (X, *(p.detach() for p in parameters), torch.ones(4, 2)))
    session.apply("eliminate-common-subexpressions")
    assert session.verdict().same_bits
    assert fxlab.memory(session).table["activations"].max() > 0


def test_saved_values_that_a_pass_has_renamed_are_found_by_their_order():
    graphs, parameters, output = compiled()
    for node in graphs[1].graph.find_nodes(op="placeholder"):
        if not node.name.startswith("tangents"):
            node._rename(f"saved_{node.name}")
    found = fxlab.steps.joined_step(*graphs)(X, *parameters, torch.ones(4, 2))
    assert torch.equal(found["output 0"], output)
    gradients = [value for name, value in found.items() if name.startswith("grad of")]
    assert all(map(torch.equal, gradients, [parameter.grad for parameter in parameters]))


def test_sizes_that_are_saved_are_told_from_tensors():
    graphs, parameters, _ = compiled(dynamic=True)
    step = fxlab.steps.joined_step(*graphs)
    assert len(step.graph.output_node().args[0]) == 1 + len(parameters)


def test_graphs_of_two_compiles_are_refused():
    (forward, backward), _, _ = compiled()
    with pytest.raises(
        ValueError, match=r"backward: its input .* is no value that the forward graph returns"
    ):
        fxlab.steps.joined_step(backward, forward)
    with pytest.raises(ValueError, match="no input 'weight'"):
        fxlab.steps.joined_step(forward, backward, {"weight": "2.weight"})
    with pytest.raises(TypeError, match="forward"):
        fxlab.steps.joined_step(MODEL, backward)
