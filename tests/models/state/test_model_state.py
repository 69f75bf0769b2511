"""A run leaves a model as it was."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from fxlab import verdict
from fxlab.models.state.model_state import generator_state, state_kept


class Busy(nn.Module):
    """Writes everything that a forward can write."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.table = nn.Embedding(4, 3, max_norm=0.1)
        self.weight, self.other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.constant, self.seen = torch.zeros(2), {"calls": [0]}
        self.generator, self.calls = torch.Generator().manual_seed(3), 0

    def forward(self, x):
        self.calls += 1
        self.seen["calls"].append(self.calls)
        self.fresh = self.seen["last"] = x
        self.steps += 1
        self.constant[0] = self.calls
        torch.autograd.backward((self.weight * self.norm.weight).sum())
        with torch.no_grad():
            self.weight.mul_(1.5)
            self.other.data = torch.full((5,), 2.0)
        torch.rand(1, generator=self.generator)
        return self.norm(x) * self.weight + self.table(torch.arange(3)).sum(0)


def test_whatever_a_run_writes_is_put_back():
    model = Busy().train()
    model.weight.grad = gradient = torch.ones(3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    versions = {name: tensor._version for name, tensor in model.named_parameters()}
    objects, draws = dict(vars(model)), model.generator.get_state()
    with state_kept(model) as state:
        model(torch.randn(4, 3))
        assert (model.weight[0], model.weight.grad[0]) == (1.5, 2)
        written = set(state.written())
    assert written >= {"weight", "other", "steps", "constant", "norm.running_mean", "table.weight"}
    after = model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert {name: tensor._version for name, tensor in model.named_parameters()} == versions
    assert vars(model).keys() == objects.keys()
    assert (model.seen, model.calls, model.constant.tolist()) == ({"calls": [0]}, 0, [0, 0])
    assert torch.equal(model.generator.get_state(), draws)
    assert (model.weight.grad is gradient, gradient.tolist(), model.norm.weight.grad) == (True, [1] * 3, None)


def test_arrays_iterators_and_namespaces_are_put_back():
    class Goes(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps, self.space = np.zeros(2), SimpleNamespace(scale=1.0, draws=random.Random(0))
            self.rates = iter([1.0, 2.0, 3.0])

        def forward(self, x):
            self.steps += 1
            self.space.scale *= 2
            return x * self.space.scale * self.space.draws.random() * next(self.rates)

    model = Goes()
    with state_kept(model):
        first = model(torch.ones(1))
    assert torch.equal(model(torch.ones(1)), first)
    assert model.steps.tolist() == [1, 1]


def test_a_buffer_has_no_history_after_a_run_with_gradients():
    model = nn.BatchNorm1d(3)
    with torch.enable_grad(), state_kept(model):
        model.running_mean.copy_(model.weight * 2)
        assert model.running_mean.requires_grad
    assert model.running_mean.grad_fn is None
    assert not model.running_mean.requires_grad
    assert model.running_mean.tolist() == [0, 0, 0]


def test_a_parameter_that_nothing_writes_is_not_copied():
    model = nn.Sequential(
        nn.Linear(3, 3), nn.ReLU(inplace=True), nn.LayerNorm(3), nn.MultiheadAttention(3, 1)
    )
    with state_kept(model) as state, torch.no_grad():
        model[:3](torch.randn(2, 3))
        assert state.copied_parameters == []


@pytest.mark.parametrize(
    "write",
    [
        lambda p: p.add_(1),
        lambda p: p.view(-1).zero_(),
        lambda p: p.data.mul_(2),
        lambda p: p.__setitem__(0, 7.0),
        lambda p: torch.add(p, 1, out=p),
        lambda p: torch._foreach_add_([p], 1),
        lambda p: torch.ops.aten.add_.Tensor(p, 1),
        lambda p: nn.init.zeros_(p),
        lambda p: p.detach().numpy().fill(3),
        lambda p: nn.functional.relu(p - 2, inplace=True) is p.copy_(p * 3),
    ],
)
def test_every_way_to_write_a_parameter_is_seen(write):
    model = nn.Linear(3, 3)
    before = model.weight.detach().clone()
    with state_kept(model), torch.no_grad():
        write(model.weight)
        assert not torch.equal(model.weight, before)
    assert torch.equal(model.weight, before)


def test_what_could_not_be_foreseen_is_said():
    class Scripted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            with torch._C.DisableTorchFunctionSubclass(), torch._C.DisableTorchFunction(), torch.no_grad():
                self.weight.mul_(2)
            return x

    model = Scripted()
    with pytest.warns(RuntimeWarning, match="'weight' where that could not be foreseen"), state_kept(model):
        model(torch.ones(1))


def test_generators_of_python_and_numpy_are_put_back():
    from fxlab.models.running.running import run

    class Draws(nn.Module):
        def forward(self, x):
            return x + random.random() + np.random.rand() + torch.rand(())

    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    first, second = (run(Draws(), torch.ones(1)) for _ in range(2))
    assert torch.equal(first, second)
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])


def test_a_buffer_may_share_memory_with_a_parameter():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 3))
            self.register_buffer("row", self.weight.detach()[0])

        def forward(self, x):
            return x @ self.weight, self.row

    model = Shared()
    with state_kept(model) as state:
        outputs = state.apart(dict(enumerate(model(torch.ones(2, 3)))))
        assert state.copied_parameters == []
    assert outputs[1].data_ptr() != model.row.data_ptr()
    assert verdict(model, model, torch.ones(2, 3)).agrees


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: torch.Generator().manual_seed(3), lambda it: torch.rand(2, generator=it)),
        (lambda: random.Random(3), random.Random.random),
        (lambda: np.random.default_rng(3), np.random.Generator.random),
        (lambda: np.random.RandomState(3), np.random.RandomState.rand),
        (lambda: iter([1, 2]), next),
    ],
)
def test_states_of_generators_are_compared_by_what_comes_next_and_not_by_where_they_lie(make, draw):
    one, other = make(), make()
    before = generator_state(one)
    kept = [generator.get_state() for generator in [torch.Generator()] * 9]  # other memory for the next state
    assert before == generator_state(other) == generator_state(one)
    draw(one)
    assert generator_state(one) != before
    draw(other)
    assert generator_state(one) == generator_state(other)
    assert len(kept) == 9
