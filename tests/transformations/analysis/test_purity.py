"""What modules of torch do besides computing a result, held against torch's own samples of them."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.fx import Graph, GraphModule
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

from fxlab.operators import function_of
from fxlab.transformations.analysis.aliasing_and_writes import may_return_view
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.purity import is_pure_in_evaluation, why_impure
from fxlab.values.tensors import same_bits, storage_of

SAMPLES = 4


def calling(module, *inputs):
    """Return a graph module that calls a module on placeholders, and the node that does."""
    graph = Graph()
    node = graph.call_module("inner", tuple(graph.placeholder(f"x{index}") for index in range(len(inputs))))
    graph.output(node)
    root = nn.Module()
    root.inner = module
    root.train(module.training)
    return GraphModule(root, graph), node


def torchs_own_calls(training):
    for info in module_db:
        if function_of(info.module_cls) is None:
            continue
        made = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=False, training=training
        )
        for sample in itertools.islice(made, SAMPLES):
            constructor, forward = sample.constructor_input, sample.forward_input
            module = info.module_cls(*constructor.args, **constructor.kwargs).train(training)
            if all(isinstance(value, torch.Tensor) for value in forward.args) and not forward.kwargs:
                yield module, forward.args


def bits(tensors):
    return [(t.detach().clone(), t._version) for t in tensors]


def are_same(before, after):
    return all(same_bits(a, b) and v == w for (a, v), (b, w) in zip(before, after, strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [False, True])
def test_nothing_that_torchs_own_samples_of_modules_do_is_missed(training):
    wrong, pure = [], set()
    for module, inputs in torchs_own_calls(training):
        gm, node = calling(copy.deepcopy(module), *inputs)
        name, is_pure = type(module).__name__, not why_impure(node, GraphFacts(gm))
        state = [*module.parameters(), *module.buffers()]
        before, generator = bits([*state, *inputs]), torch.get_rng_state()
        try:
            result = module(*inputs)
        except RuntimeError:  # its samples hold numbers of another dtype
            continue
        did_more = not are_same(before, bits([*state, *inputs])) or not torch.equal(
            generator, torch.get_rng_state()
        )
        tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        shared = {storage_of(t) for t in tensors if t.numel()} & {storage_of(t) for t in inputs if t.numel()}
        if is_pure and did_more:
            wrong.append(f"{name} does more than compute its result")
        if shared and not may_return_view(node, gm):
            wrong.append(f"{name} returns memory of its input")
        if did_more and training and not is_pure_in_evaluation(node, GraphFacts(gm)):
            wrong.append(f"{name} is another module in training")
        pure |= {name} if is_pure else set()
    assert not wrong
    assert len(pure) > 40


class Dropout(nn.Module):
    """One's own class with a name of torch's."""

    def forward(self, x):
        return x


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (nn.Linear(2, 2), None),
        (nn.Hardshrink(), None),
        (nn.RMSNorm(2), None),
        (nn.MSELoss(), None),
        (nn.Identity(), None),
        (nn.RReLU().train(), "random"),
        (nn.RReLU().eval(), None),
        (nn.FractionalMaxPool2d(2, output_size=1).eval(), "random"),
        (nn.BatchNorm1d(2).train(), "writes-state"),
        (nn.InstanceNorm1d(2, track_running_stats=True).train(), "writes-state"),
        (nn.EmbeddingBag(2, 2, max_norm=1.0), "writes-state"),
        (nn.LSTM(2, 2), "may-have-side-effects"),
        (Dropout().eval(), "may-write-inputs"),
    ],
)
def test_why_a_module_is_impure(module, code):
    gm, node = calling(module, torch.ones(2, 2))
    found = why_impure(node, GraphFacts(gm))
    assert (found.code if found else None) == code


def test_a_module_that_a_node_hands_on_is_called_once_more():
    model = nn.Sequential(nn.ReLU())
    graph = Graph()
    x = graph.call_module("0", (graph.placeholder("x"),))
    graph.output(graph.call_function(torch.utils.checkpoint.checkpoint, (graph.get_attr("0"), x)))
    assert GraphFacts(GraphModule(model, graph)).calls == {"0": 2}
