"""Every comparison leaves the model as it was, and compares what runs write."""

import pytest
import torch
from torch import fx, nn

import fxlab
from fxlab import ChangeTrueDivToMulByInverse, Session, verdict
from fxlab.validation import Status


class Counts(nn.Module):
    def __init__(self, momentum=0.1):
        super().__init__()
        self.norm = nn.BatchNorm1d(4, momentum=momentum)
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        self.steps.add_(1)
        with torch.no_grad():
            self.weight.mul_(1.5)
        return self.norm(x / 2) * self.weight + self.steps, self.steps


def traced(model, x):
    return fxlab.symbolic_trace(model.train(), x)


def session_of(x):
    session = Session(traced(Counts(), x), x, passes=[ChangeTrueDivToMulByInverse()])
    session.apply("change-true-div-to-mul-by-inverse")
    return session


RUNS = {
    "verdict": lambda s: s.verdict(),
    "gradients": lambda s: s.verdict(gradients=True),
    "outputs": lambda s: fxlab.compare_outputs(s.original, s.graph_module, s.inputs),
    "compare_outputs": lambda s: fxlab.compare_outputs(s.original, s.graph_module, s.inputs),
    "compare_nodes": lambda s: fxlab.compare_nodes(s.original, s.graph_module, s.inputs),
    "first_divergence": lambda s: fxlab.first_divergence(s.original, s.graph_module, s.inputs),
    "profile": lambda s: fxlab.profile(s.graph_module, s.inputs, rounds=1),
    "benchmark": lambda s: fxlab.benchmark(s, rounds=1),
    "bisect": lambda s: fxlab.bisect(s),
    "variants": lambda s: s.verdict(variants=True),
    "stages": lambda s: fxlab.compare_stages(s),
}


@pytest.mark.often(6)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_moves_nothing(name):
    x = torch.randn(6, 4)
    session = session_of(x)
    state = session.original.state_dict()
    before, given = {key: tensor.clone() for key, tensor in state.items()}, x.clone()
    RUNS[name](session)
    assert all(torch.equal(state[key], before[key]) for key in before)
    assert torch.equal(x, given)


def test_a_counter_counts_from_the_same_number_in_both():
    session = session_of(torch.randn(6, 4))
    found = session.verdict()
    assert found.status is Status.SAME_BITS, found
    assert "written state steps" in found.outputs
    table = fxlab.compare_nodes(session.original, session.graph_module, session.inputs)
    assert table["accumulated"].max() == table["introduced"].max() == 0


def test_a_benchmark_does_not_grow_its_inputs():
    def doubles(x):
        return x.mul_(2)

    session = Session(fx.symbolic_trace(doubles), torch.ones(2), passes=[])
    times = fxlab.benchmark(session, rounds=2)
    assert len(times.table) == 1
    assert session.inputs.tolist() == [1, 1]


def test_an_input_that_is_written_no_longer_is_a_difference():
    x = torch.randn(3)
    original, other = fx.symbolic_trace(lambda x: x.mul_(3) + 1), fx.symbolic_trace(lambda x: x * 3 + 1)
    found = verdict(original, other, x)
    assert found.status is Status.DIFFERENT
    assert found.outputs["output"].status is Status.SAME_BITS
    assert not fxlab.compare_outputs(original, other, x).loc["written input x", "same_bits"]
    assert verdict(original, fx.symbolic_trace(lambda x: x.mul_(3) + 1), x).status is Status.SAME_BITS


def test_another_momentum_is_a_difference():
    x = torch.randn(6, 4)
    original, other = traced(Counts(), x), traced(Counts(momentum=0.2), x)
    found = verdict(original, other, x)
    assert found.status is Status.DIFFERENT
    assert found.outputs["written state norm.running_mean"].status is Status.DIFFERENT
    assert found.outputs["0"].status is Status.SAME_BITS


def test_what_is_written_may_be_rounded_otherwise():
    x = torch.randn(20, 30)
    original, other = (
        fx.symbolic_trace(lambda x: x.div_(3.0).sum(1)),
        fx.symbolic_trace(lambda x: x.mul_(1 / 3).sum(1)),
    )
    found = verdict(original, other, x)
    assert found.status is Status.WITHIN_ROUNDING, found
    assert found.outputs["written input x"].status is Status.WITHIN_ROUNDING
