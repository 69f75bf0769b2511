"""A loop of transformed steps trains as an eager loop does, bit for bit."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from step_models import LayerDrop, batches, blocks, net, own_loss, squared

import fxlab
from fxlab.values.tensors import same_bits

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, amsgrad=True),
    "adamw": torch.optim.AdamW,
    "adamw of lists": lambda p: torch.optim.AdamW(p, foreach=True),
    "fused adamw": lambda p: torch.optim.AdamW(p, fused=True),
    "fused momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "rmsprop": torch.optim.RMSprop,
}


class ByRoots(torch.optim.Optimizer):
    """Writes that Python computes from the root of the learning rate, as noise is scaled."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-math.sqrt(group["lr"]))


class Noisy(torch.optim.AdamW):
    """Draws random numbers; its state is made in the first step, so the second is traced within the loop."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(torch.randn_like(parameter), alpha=0.01)


OPTIMIZERS["roots of the rate"] = ByRoots
OPTIMIZERS["random numbers"] = Noisy


def in_two_groups(parameters):
    first, *rest = parameters
    return torch.optim.AdamW([{"params": [first], "lr": 0.1}, {"params": rest, "weight_decay": 0.0}])


OPTIMIZERS["two groups"] = in_two_groups


def same_training(model, other, optimizer=None, other_optimizer=None):
    for (name, one), two in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert same_bits(one, two), name
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        ours = {} if optimizer is None else optimizer.state.get(p, {})
        theirs = {} if other_optimizer is None else other_optimizer.state.get(q, {})
        assert {k for k, v in ours.items() if v is not None} == {
            k for k, v in theirs.items() if v is not None
        }
        assert all(same_bits(v, theirs[k]) for k, v in ours.items() if isinstance(v, torch.Tensor))


@pytest.mark.often(3)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_four_steps_are_those_of_an_eager_loop(kind):
    model = net()
    other = copy.deepcopy(model)
    optimizer, other_optimizer = (OPTIMIZERS[kind](m.parameters()) for m in (model, other))
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.7) for o in (optimizer, other_optimizer)]
    data = batches(4)
    session = fxlab.Session(fxlab.trace_step(model, data[0], loss=own_loss, optimizer=optimizer))
    session.apply("eliminate-common-subexpressions")
    session.apply("remove-redundant-views")
    train = fxlab.steps.as_step(session)
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses = []
        for batch in data:
            losses.append(train(batch).item())
            schedules[0].step()
    torch.manual_seed(3)
    for place, batch in enumerate(data):
        other_optimizer.zero_grad()
        loss = other(*batch)
        loss.backward()
        other_optimizer.step()
        schedules[1].step()
        assert losses[place] == loss.item()
    same_training(model, other, optimizer, other_optimizer)
    # Fused kernels take the learning rate as a number, which a schedule changes.
    assert train.graphs <= (len(data) if "fused" in kind else 2)


def test_without_an_optimizer_gradients_are_added_as_backward_adds_them():
    model = net()
    other = copy.deepcopy(model)
    data = batches(2)
    train = fxlab.steps.as_step(fxlab.Session(fxlab.trace_step(model, data[0], loss=own_loss)))
    torch.manual_seed(3)
    for batch in data:
        train(batch)
    torch.manual_seed(3)
    for batch in data:
        other(*batch).backward()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        assert p.grad is None or same_bits(p.grad, q.grad)


class Counts(torch.nn.Module):
    """Two embeddings, one in a bag, whose gradients may be sparse."""

    def __init__(self, sparse=False):
        super().__init__()
        self.words = torch.nn.EmbeddingBag(9, 4, sparse=sparse)
        self.kinds = torch.nn.Embedding(3, 4)

    def forward(self, x):
        return self.words(x) + self.kinds(x[:, 0] % 3)


class Pile(torch.optim.Optimizer):
    """Keeps all gradients, in a state that grows."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            gradient, state = parameter.grad, self.state[parameter]
            state["all"] = torch.cat([*([state["all"]] if "all" in state else []), gradient[None]])
            parameter.add_(state["all"].sum(0), alpha=-0.1)


def test_state_of_another_size_trains_as_eagerly():
    torch.manual_seed(0)
    model = Counts()
    other = copy.deepcopy(model)
    optimizer, other_optimizer = Pile(model.parameters()), Pile(other.parameters())
    data = [torch.randint(0, 9, (5, 3)) for _ in range(4)]
    train = fxlab.steps.as_step(
        fxlab.Session(fxlab.trace_step(model, data[0], loss=squared, optimizer=optimizer))
    )
    for x in data:
        train(x)
        other_optimizer.zero_grad()
        squared(other(x)).backward()
        other_optimizer.step()
    same_training(model, other, optimizer, other_optimizer)


def test_an_optimizer_of_sparse_gradients_is_refused_for_that_reason():
    model = Counts(sparse=True)
    with pytest.raises(fxlab.TraceError, match=r"the gradient of words\.weight is sparse"):
        fxlab.trace_step(
            model,
            torch.ones(2, 3, dtype=torch.long),
            loss=squared,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        )


def test_steps_inside_inference_mode_leave_tensors_that_train_outside_of_it():
    model, x = blocks(1)
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.inference_mode():
        train = fxlab.steps.as_step(
            fxlab.Session(fxlab.trace_step(model, x, loss=squared, optimizer=optimizer))
        )
        train(x)
        train(x + 1)
    assert train.graphs == 2
    squared(model(x)).backward()
    optimizer.step()
    assert not any(value.is_inference() for state in optimizer.state.values() for value in state.values())


def test_another_size_or_mode_is_traced_when_it_comes():
    model = net()
    train = fxlab.steps.as_step(fxlab.Session(fxlab.trace_step(model, batches(1)[0], loss=own_loss)))
    train(batches(1, size=3)[0])
    train(batches(1, size=3)[0])
    assert train.graphs == 2
    model.eval()
    train(batches(1, size=3)[0])
    assert train.graphs == 3


class Scheduled(torch.nn.Module):
    """Reads settings that a schedule may change between steps."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        self.drop, self.last = torch.nn.Dropout(0.1), torch.nn.Linear(4, 2)
        self.factor, self.settings = 1.0, {"shift": 0.0}

    def forward(self, x):
        x = self.drop(self.norm(self.first(x)) * self.factor + self.settings["shift"])
        return self.last(x)


class ScheduledLoss:
    scale, weights = 1.0, {"mean": 0.0}

    def __call__(self, output):
        return output.square().mean() * self.scale + self.weights["mean"] * output.abs().mean()


class ScheduledSGD(torch.optim.SGD):
    noise = 0.0

    def step(self, closure=None):
        super().step()
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.add_(parameter, alpha=-self.noise)


def replaces_the_last_layer(model, loss, optimizer):
    torch.manual_seed(5)
    last = torch.nn.Linear(4, 2)
    last.load_state_dict(model.last.state_dict())
    model.last = torch.nn.Sequential(torch.nn.Tanh(), last)
    optimizer.param_groups[0]["params"] = [*model.parameters()]


SCHEDULES = {
    "dropout": lambda model, loss, optimizer: setattr(model.drop, "p", 0.6),
    "momentum": lambda model, loss, optimizer: setattr(model.norm, "momentum", 0.9),
    "attribute": lambda model, loss, optimizer: setattr(model, "factor", 3.0),
    "item": lambda model, loss, optimizer: model.settings.update(shift=2.0),
    "loss's attribute": lambda model, loss, optimizer: setattr(loss, "scale", 7.0),
    "loss's item": lambda model, loss, optimizer: setattr(loss, "weights", {"mean": 3.0}),
    "optimizer's attribute": lambda model, loss, optimizer: setattr(optimizer, "noise", 0.1),
    "hook of a module": lambda model, loss, optimizer: model.first.register_forward_hook(
        lambda module, args, output: output * 2
    ),
    "hook of a gradient": lambda model, loss, optimizer: model.first.weight.register_hook(lambda g: g * 0.5),
    "method": lambda model, loss, optimizer: setattr(model, "forward", lambda x: model.last(x)),
    "module": replaces_the_last_layer,
}


@pytest.mark.often(4)
@pytest.mark.parametrize("kind", SCHEDULES)
def test_what_python_reads_otherwise_now_is_traced_again(kind):
    torch.manual_seed(0)
    model = Scheduled()
    other = copy.deepcopy(model)
    losses = ScheduledLoss(), ScheduledLoss()
    optimizer, other_optimizer = (ScheduledSGD(m.parameters(), lr=0.1) for m in (model, other))
    x = torch.randn(6, 4)
    session = fxlab.Session(fxlab.trace_step(model, x, loss=losses[0], optimizer=optimizer))
    train = fxlab.steps.as_step(session)
    for step in range(3):
        if step == 1:
            SCHEDULES[kind](model, losses[0], optimizer)
            SCHEDULES[kind](other, losses[1], other_optimizer)
        torch.manual_seed(step)
        loss = train(x)
        torch.manual_seed(step)
        other_optimizer.zero_grad()
        expected = losses[1](other(x))
        expected.backward()
        other_optimizer.step()
        assert same_bits(loss, expected.detach())
        same_training(model, other)
    assert train.graphs == 2


def test_a_changed_setting_is_told_when_the_step_is_judged():
    model = Scheduled()
    session = fxlab.Session(fxlab.trace_step(model, torch.randn(6, 4), loss=squared))
    session.verdict()
    model.drop.p = 0.5
    with pytest.warns(RuntimeWarning, match=r"changed since it was traced: drop\.p\."):
        session.verdict()


def test_data_for_which_python_decides_otherwise_are_traced_when_they_come():
    class Routed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.a(x) if x.sum() > 0 else self.b(x)

    model = Routed()
    train = fxlab.steps.as_step(fxlab.Session(fxlab.trace_step(model, torch.ones(1, 2), loss=squared)))
    for sign in (1, -1, 1, -1):
        train(sign * torch.ones(1, 2))
    assert train.graphs == 2
    assert model.b.weight.grad is not None


def by_a_list(y, kinds):
    return sum(part.square() * at for at, part in zip(kinds.tolist(), y, strict=True))


def by_an_array(y, kinds):
    return y[np.asarray(kinds) > 0]


def by_unique_rows(y, kinds):
    return y[kinds.unique()]


def by_the_number_of_kinds(y, kinds):
    return y / kinds.unique(return_counts=True)[1].numel()


def by_fixed_rates(y, kinds):
    return y * torch.linspace(0.5, 1, 3).tolist()[1] + torch.arange(3.0).sum().item()


def by_tensors_of_tensors(y, kinds):
    halves = torch.tensor([[kinds[0], 1], [True, kinds.sum() / 2]])
    return y @ halves * torch.as_tensor([kinds.max(), 2], dtype=torch.float64).to(y.dtype)


@pytest.mark.parametrize(
    ("forward", "graphs"),
    [
        (by_tensors_of_tensors, 1),
        (by_a_list, 3),
        (by_an_array, 3),
        (by_unique_rows, 2),
        (by_the_number_of_kinds, 2),
        (by_fixed_rates, 1),
    ],
)
def test_a_loop_follows_all_that_python_reads_from_data(forward, graphs):
    class Reads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 2)

        def forward(self, x, kinds):
            return forward(self.linear(x), kinds)

    model, x = Reads(), torch.randn(3, 4)
    other = copy.deepcopy(model)
    optimizer, other_optimizer = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other))
    data = [(x, torch.tensor(kinds)) for kinds in ([0, 1, 2], [2, 2, 0], [1, 0, 1], [0, 1, 2])]
    train = fxlab.steps.as_step(
        fxlab.Session(fxlab.trace_step(model, data[0], loss=squared, optimizer=optimizer))
    )
    for batch in data:
        train(*batch)
        other_optimizer.zero_grad()
        squared(other(*batch)).backward()
        other_optimizer.step()
        same_training(model, other)
    assert train.graphs == graphs


def test_a_pass_that_makes_another_step_of_it_is_left_off_with_a_warning():
    def wrong(graph_module):
        for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.gelu.default):
            node.target = torch.ops.aten.relu.default
        graph_module.recompile()
        return graph_module

    model, x = blocks(1)
    other = copy.deepcopy(model)
    optimizer, other_optimizer = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other))
    session = fxlab.Session(fxlab.trace_step(model, x, loss=squared, optimizer=optimizer))
    session.add(fxlab.from_callable(wrong, name="wrong"))
    session.apply("wrong")
    train = fxlab.steps.as_step(session)
    torch.manual_seed(3)
    with pytest.warns(RuntimeWarning, match="runs without passes"):
        train(x)
    torch.manual_seed(3)
    squared(other(x)).backward()
    other_optimizer.step()
    same_training(model, other)


def test_a_step_that_decides_on_random_numbers_trains_as_an_eager_loop():
    model, data = LayerDrop(), torch.randn(6, 2, 4)
    other = copy.deepcopy(model)
    optimizer, eager = (torch.optim.SGD(each.parameters(), lr=0.01) for each in (model, other))
    session = fxlab.Session(fxlab.trace_step(model, data[0], loss=squared, optimizer=optimizer))
    session.apply("eliminate-common-subexpressions")
    train = fxlab.steps.as_step(session)
    torch.manual_seed(3)
    with pytest.warns(RuntimeWarning, match="cannot be judged"):
        losses = [train(x) for x in data]
    torch.manual_seed(3)
    for x, found in zip(data, losses, strict=True):
        eager.zero_grad()
        loss = squared(other(x))
        loss.backward()
        eager.step()
        assert same_bits(found, loss.detach())
    same_training(model, other)
    assert 1 < train.graphs <= len(data) + 1


def test_a_session_of_another_graph_has_no_steps():
    with pytest.raises(ValueError, match=r"fxlab\.trace_step"):
        fxlab.steps.as_step(fxlab.Session(torch.fx.symbolic_trace(torch.nn.ReLU())))


def other_at_the_end(graph_module):
    """A pass with a mistake that shows in the parameters alone, one step later in the loss."""
    results = dict(graph_module.graph.output_node().args[0])
    name = next(name for name in results if name.startswith("new ") and name.endswith("weight"))
    with graph_module.graph.inserting_before(graph_module.graph.output_node()):
        results[name] = graph_module.graph.call_function(torch.mul, (results[name], 1.0001))
    graph_module.graph.output_node().args = (results,)
    return graph_module


def test_several_steps_are_compared_bit_for_bit_and_leave_nothing_behind():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    step = fxlab.trace_step(model, torch.randn(6, 4), loss=squared, optimizer=optimizer)
    session = fxlab.Session(
        step, passes=[fxlab.ActivationCheckpointing(("1", "2")), fxlab.from_callable(other_at_the_end)]
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batches = [torch.randn(6, 4) for _ in range(3)]
    session.apply("activation-checkpointing")
    found = fxlab.steps.compare_steps(session, batches)
    assert found
    assert str(found).startswith("same bits of ")
    assert str(found).endswith(" after each of 3 steps")
    session.apply("other-at-the-end")
    found = fxlab.steps.compare_steps(session, batches)
    assert not found
    assert (found.first, found.differing) == (1, ("0.weight",))
    assert str(found) == "step 1 gives another 0.weight"
    assert not optimizer.state
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(("batches", "error"), [([], ValueError), (torch.ones(6, 4), TypeError)])
def test_batches_of_several_steps_are_a_list(batches, error):
    session = fxlab.Session(fxlab.trace_step(torch.nn.Linear(4, 1), torch.ones(6, 4), loss=squared))
    with pytest.raises(error, match="batches: expected"):
        fxlab.steps.compare_steps(session, batches)


def test_steps_without_numbers_are_not_compared():
    model, batch = torch.nn.Linear(4, 1, device="meta"), torch.ones(6, 4, device="meta")
    with pytest.raises(ValueError, match="model: expected parameters with numbers"):
        fxlab.steps.compare_steps(fxlab.Session(fxlab.trace_step(model, batch, loss=squared)), [batch])
