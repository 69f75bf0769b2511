"""How long each stage of a session takes."""

import operator

import pytest
import torch
from torch import fx, nn

from fxlab import Session, Transformation, benchmark
from fxlab.validation.cost.benchmark import Spread


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.query(x) @ self.key(x).T / 7


class Work(Transformation):
    """Makes the model do the same work once more, many times."""

    name = "work"

    def transform(self, graph_module):
        output = next(iter(graph_module.graph.find_nodes(op="output")))
        (value,) = output.args
        with graph_module.graph.inserting_before(output):
            for _ in range(200):
                value = graph_module.graph.call_function(operator.mul, (value, 1.0))
        output.args = (value,)
        return graph_module


@pytest.fixture
def session():
    return Session(fx.symbolic_trace(Model().eval()), torch.randn(4, 8))


def test_each_stage_is_timed_beside_the_original(session):
    session.add(Work())
    session.apply("merge-linears", "work")
    stages, applied = session.stages, session.applied
    times = benchmark(session, rounds=3)
    table = times.table
    assert table.index.tolist() == ["original", "merge-linears", "work"]
    assert (table["time"] > 0).all()
    assert (table["ratio_low"] <= table["ratio"]).all()
    assert (table["ratio"] <= table["ratio_high"]).all()
    assert table.loc["original", ["ratio", "ratio_low", "ratio_high", "outcome"]].tolist() == [1, 1, 1, ""]
    assert table.loc["work", "outcome"] == times.outcome == "slower"
    assert times.speedup < 1
    assert session.stages == stages
    assert session.applied == applied


def test_what_cannot_be_timed_is_said_in_words(session):
    with pytest.raises(TypeError, match="session"):
        benchmark(session.original)
    with pytest.raises(ValueError, match="rounds: expected a positive number, got 0"):
        benchmark(session, rounds=0)
    session.inputs = torch.randn(4, 3)
    with pytest.raises(ValueError, match="inputs: a model does not run on these"):
        benchmark(session, rounds=1)


def test_a_spread_leaves_out_a_round_of_ten_on_either_side():
    spread = Spread.of([2.0 * n for n in (5, 0, 9, 1, 10, 2, 8, 3, 7, 4, 6)], [2.0] * 11)
    assert (spread.ratio, spread.low, spread.high) == (5, 1, 9)
