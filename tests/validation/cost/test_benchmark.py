"""How long a model takes with each combination of passes."""

import operator

import pytest
import torch
from torch import fx, nn

from fxlab import ChangeTrueDivToMulByInverse, MergeLinears, Session, Transformation, benchmark
from fxlab.validation.cost.benchmark import Spread

QUICK = {"rounds": 3, "min_seconds": 0.001}


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


class Broken(Transformation):
    def transform(self, graph_module):
        raise ZeroDivisionError("nothing to divide by")


@pytest.fixture
def session():
    return Session(fx.symbolic_trace(Model().eval()), torch.randn(4, 8))


def test_each_combination_of_the_passes_that_change_something_is_timed(session):
    table = benchmark(session, **QUICK)
    merge, change = "merge-linears", "change-true-div-to-mul-by-inverse"
    names = table.index.tolist()
    assert names[0] == "original"
    fuse = "fuse-bias-in-linear"
    assert {merge, change, fuse} <= set(names)
    assert len(names) == 8
    assert all(" + ".join(p.name for p in session.passes if p.name in name) == name for name in names[1:])
    assert (table["time"] > 0).all()
    assert (table["ratio_low"] <= table["ratio"]).all()
    assert (table["ratio"] <= table["ratio_high"]).all()
    assert table.loc["original", ["ratio", "ratio_low", "ratio_high", "outcome"]].tolist() == [1, 1, 1, ""]


def test_each_pass_alone_and_all_of_them(session):
    session.add(Work())
    names = [pass_.name for pass_ in session.passes]
    chosen = ["merge-linears", "remove-redundant-views", "work"]
    table = benchmark(session, passes=chosen, each=True, **QUICK)
    assert table.index.tolist() == [
        "original",
        "merge-linears",
        "work",
        " + ".join(sorted(chosen, key=names.index)),
    ]
    assert table.loc["work", "outcome"] == table.iloc[-1]["outcome"] == "slower"
    assert table.loc["work", "ratio_low"] > 1
    assert len(benchmark(session, passes=["work"], each=True, **QUICK)) == 2


def test_any_number_of_passes_is_timed_alone(session):
    names = [pass_.name for pass_ in session.passes]
    assert len(names) > 5
    assert benchmark(session, passes=names, each=True, **QUICK).index[-1] == " + ".join(names)
    session.apply(*session.passes)
    assert benchmark(session, **QUICK).index[-1] == " + ".join(names)


def test_passes_are_chosen_by_name_or_by_themselves(session):
    merge, change = MergeLinears(), ChangeTrueDivToMulByInverse()
    assert len(benchmark(session, passes=["merge-linears", change], **QUICK)) == 4
    assert len(benchmark(session, passes=[merge], **QUICK)) == 2
    with pytest.raises(ValueError, match=r"there is no pass 'fold-consants'. Did you mean 'fold-constants'"):
        benchmark(session, passes=["fold-consants"], **QUICK)


def test_the_session_stays_as_it_is_and_what_is_on_is_timed(session):
    session.apply("merge-linears")
    stages, applied = session.stages, session.applied
    assert benchmark(session, **QUICK).index.tolist() == ["original", "merge-linears"]
    assert session.stages == stages
    assert session.applied == applied


def test_too_many_combinations_are_refused(session):
    passes = session.passes[:6]
    with pytest.raises(ValueError, match=r"6 passes have 64 combinations. Choose up to 5 of "):
        benchmark(session, passes=passes, **QUICK)


def test_what_cannot_be_timed_is_said_in_words(session):
    with pytest.raises(ValueError, match=r"passes: broken fails: ZeroDivisionError: .* passes=\[...\]"):
        benchmark(Session(session.original, session.inputs, passes=[Broken()]), **QUICK)
    with pytest.raises(ValueError, match=r"Give inputs for: x"):
        benchmark(session.original)
    with pytest.raises(ValueError, match="inputs: a model does not run on these"):
        benchmark(session, torch.randn(4, 3), **QUICK)
    with pytest.raises(ValueError, match="rounds: expected a positive number, got 0"):
        benchmark(session, rounds=0)


def test_a_spread_leaves_out_a_round_of_ten_on_either_side():
    spread = Spread.of([2.0 * n for n in (5, 0, 9, 1, 10, 2, 8, 3, 7, 4, 6)], [2.0] * 11)
    assert (spread.ratio, spread.low, spread.high) == (5, 1, 9)
