"""Equal updates of parameters become calls for lists of tensors, with the same bits, and back again."""

import copy

import pytest
import torch
from torch import nn

import fxlab

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
OPTIMIZERS = {
    "SGD": lambda model: torch.optim.SGD(
        model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "AdamW": lambda model: torch.optim.AdamW(model.parameters()),
    "two groups": lambda model: torch.optim.Adam(
        [
            {"params": [*model.parameters()][:3]},
            {"params": [*model.parameters()][3:], "lr": 0.01, "weight_decay": 0.1},
        ],
        amsgrad=True,
    ),
    # Each group multiplies by a number that is computed from its own rate.
    "two decays": lambda model: torch.optim.AdamW(
        [
            {"params": [*model.parameters()][:3], "weight_decay": 0.5},
            {"params": [*model.parameters()][3:], "weight_decay": 0.1},
        ]
    ),
    "Rprop": lambda model: torch.optim.Rprop(model.parameters()),  # with writes by index
}


def loss(output):
    return output.float().square().mean()


def recorded(make, model=None):
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = make(model)
    loss(model(X)).backward()
    optimizer.step()
    optimizer.zero_grad()
    return fxlab.trace_step(model, X, loss=loss, optimizer=optimizer)


def calls(graph_module):
    return [str(node.target) for node in graph_module.graph.nodes if "foreach" in str(node.target)]


def described(graph_module):
    return [
        (node.name, str(node.target), str(node.args), str(node.kwargs)) for node in graph_module.graph.nodes
    ]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_merged_updates_have_the_same_bits_and_come_back_exactly(name):
    step = recorded(OPTIMIZERS[name])
    session = fxlab.Session(step, passes=[fxlab.MergeUpdates()])
    before = described(session.graph_module)
    session.apply("merge-updates")
    assert session.verdict().same_bits
    assert len(session.graph_module.graph.nodes) < len(before)
    merge = fxlab.MergeUpdates()
    graph_module = merge(copy.deepcopy(session.original))
    assert all("val" in node.meta for node in graph_module.graph.nodes if "foreach" in str(node.target))
    assert described(merge(graph_module, reverse=True)) == before


def test_lists_are_passed_on_and_numbers_are_computed_once():
    step = recorded(OPTIMIZERS["AdamW"])
    graph_module = fxlab.MergeUpdates()(copy.deepcopy(fxlab.Session(step).original))
    adam = ["mul", "lerp", "mul", "addcmul", "sqrt", "div", "add", "addcdiv"]
    found = [target.partition("_foreach_")[2].partition(".")[0] for target in calls(graph_module)]
    assert sorted(found[-8:]) == sorted(adam)
    read = [node.args[0] for node in graph_module.graph.nodes if "sqrt" in str(node.target)]
    assert all(isinstance(node, torch.fx.Node) and "addcmul" in str(node.target) for node in read)
    divisions = [
        node for node in graph_module.graph.nodes if getattr(node.target, "__name__", "") == "truediv"
    ]
    assert len(divisions) == 1  # of the learning rate, once for all parameters


def test_other_dtypes_and_other_numbers_stay_apart():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 8).to(torch.bfloat16)

        def forward(self, x):
            return self.second(self.first(x).to(torch.bfloat16))

    step = recorded(lambda model: torch.optim.SGD(model.parameters(), 0.1), Mixed())
    session = fxlab.Session(step, passes=[fxlab.MergeUpdates()])
    session.apply("merge-updates")
    assert calls(session.graph_module) == ["aten._foreach_add.List"] * 2
    assert session.verdict().same_bits


def test_a_loop_of_merged_steps_trains_as_an_eager_one():
    def trained(use):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        use(model, torch.optim.AdamW(model.parameters()))
        return [parameter.detach().clone() for parameter in model.parameters()]

    def eager(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            loss(model(X)).backward()
            optimizer.step()

    def merged(model, optimizer):
        session = fxlab.Session(
            fxlab.trace_step(model, X, loss=loss, optimizer=optimizer), passes=[fxlab.MergeUpdates()]
        )
        session.apply("merge-updates")
        train = fxlab.steps.as_step(session)
        for _ in range(3):
            train(X)

    assert all(map(torch.equal, trained(eager), trained(merged)))


def test_a_graph_that_is_no_step_has_nothing_to_merge():
    step = fxlab.trace_step(nn.Linear(4, 1), X, loss=loss)
    for model in (step, torch.fx.symbolic_trace(lambda x, y: (x * 2, y * 2))):
        assert fxlab.MergeUpdates().explain(fxlab.Session(model).original).empty
