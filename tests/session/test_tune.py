"""Passes chosen by their times, which tests make up of the graph that would be timed."""

import itertools
import operator

import pytest
import torch
from torch import nn

import fxlab
from fxlab import ChangeTrueDivToMulByInverse, MergeLinears, RemoveIdentities, from_callable
from fxlab.session.tuning import tune as module
from fxlab.session.tuning.result import COLUMNS

MERGE, INVERSE = "merge-linears", "change-true-div-to-mul-by-inverse"


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.gate(x) * self.up(x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
        self.mlp = Gate()

    def forward(self, x):
        return self.mlp(self.query(x) * self.key(x)) / 3


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture(scope="module")
def traced():
    torch.manual_seed(0)
    x = torch.randn(3, 4)
    return fxlab.symbolic_trace(Model().eval(), x), x


@pytest.fixture
def session_of(traced):
    def make(*passes):
        return fxlab.Session(*traced, passes=passes)

    return make


class Clock:
    """Times that are made up: ``cost`` of a graph, times the ``noise`` of a round."""

    def __init__(self):
        self.cost = lambda gm: 1.0
        self.noise = (1.0,)
        self.measured = []

    def __call__(self, models, inputs, rounds, min_seconds, on_timed, clock):
        self.measured.append([*models])
        first = next(iter(models))
        return {
            name: [
                self.cost(gm) * (1.0 if name == first else noise)
                for noise in itertools.islice(itertools.cycle(self.noise), rounds)
            ]
            for name, gm in models.items()
        }


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "seconds_in_turns", clock)
    return clock


def linears(gm, place=""):
    """Count the calls of linears; those that were merged are one."""
    return sum(place in str(node.target) for node in gm.graph.find_nodes(op="call_module"))


def divides(gm):
    return bool(gm.graph.find_nodes(op="call_function", target=operator.truediv))


def kept(tuning):
    return [(trial.pass_, trial.where) for trial in tuning.trials if trial.kept]


def test_what_is_faster_and_the_same_is_kept_as_one_change(session_of, clock):
    session = session_of(MergeLinears(), ChangeTrueDivToMulByInverse())
    clock.cost = lambda gm: 10 + linears(gm)
    before = 10 + linears(session.original)
    tuning = fxlab.tune(session, exclusions=False)
    assert tuning.kept == (MERGE,)
    assert [pass_.name for pass_ in session.applied] == [MERGE]
    assert tuning.ratio == tuning.ratio_low == tuning.ratio_high == (before - 4) / before
    assert tuning.verdict.agrees
    assert str(tuning).startswith(f"merge-linears: {tuning.ratio:.2f} of the time (")
    session.undo()
    assert session.applied == ()
    assert not session.can_undo


def test_the_table_says_why(session_of, clock):
    session = session_of(RemoveIdentities(), MergeLinears(), ChangeTrueDivToMulByInverse())
    clock.cost = lambda gm: 10 + linears(gm)
    table = fxlab.tune(session, exclusions=False).table()
    assert list(table) == list(COLUMNS)
    assert dict(table[["pass", "reason"]].values) == {
        MERGE: "faster",
        "remove-identities": "changes nothing",
        INVERSE: "no clear difference",
    }
    assert table["kept"].tolist() == [True, False, False]
    row = table.set_index("pass").loc[INVERSE]
    assert (row["where"], row["on_top_of"], row["ratio"], row["verdict"]) == ("everywhere", MERGE, 1.0, "")


def test_the_fastest_is_chosen_first_and_the_others_on_top_of_it(session_of, clock):
    session = session_of(MergeLinears(), ChangeTrueDivToMulByInverse())
    clock.cost = lambda gm: 10 + linears(gm) + 20 * divides(gm)
    tuning = fxlab.tune(session, exclusions=False)
    assert tuning.kept == (INVERSE, MERGE)
    assert [trial.on_top_of for trial in tuning.trials] == [(), (INVERSE,)]
    assert [pass_.name for pass_ in session.applied] == [MERGE, INVERSE]  # in the order of the session


def test_what_is_slower_is_not_tried_again(session_of, clock):
    session = session_of(MergeLinears(), ChangeTrueDivToMulByInverse())
    clock.cost = lambda gm: 10 + linears(gm) + 5 * (not divides(gm))
    tuning = fxlab.tune(session, exclusions=False)
    assert kept(tuning) == [(MERGE, "everywhere")]
    assert tuning.trials[1].reason == "slower"
    assert tuning.trials[1].on_top_of == ()


def test_a_difference_within_the_noise_is_none(session_of, clock):
    session = session_of(MergeLinears())
    clock.cost = lambda gm: 100 + linears(gm)
    clock.noise = (0.9, 1.1)
    tuning = fxlab.tune(session)
    assert kept(tuning) == []
    assert {trial.reason for trial in tuning.trials} == {"no clear difference"}
    assert not session.can_undo
    assert str(tuning).startswith("Nothing is kept")


def test_what_was_faster_by_luck_is_found_out(session_of, clock):
    session = session_of(MergeLinears())
    times = iter([10.0] * 15 + [5.0] * 15 + [10.0] * 30)
    clock.cost = lambda gm: next(times)
    tuning = fxlab.tune(session, exclusions=False)
    assert [trial.reason for trial in tuning.trials] == ["faster at first, but not when measured again"]
    assert [len(names) for names in clock.measured] == [2, 2]


def shifts(graph_module):
    output = graph_module.graph.output_node()
    with graph_module.graph.inserting_before(output):
        output.args = (graph_module.graph.call_function(torch.add, (output.args[0], 1)),)
    return graph_module


def raises(graph_module):
    raise RuntimeError("halfway")


def test_what_is_faster_but_another_model_is_not_kept(session_of, clock):
    session = session_of(from_callable(shifts), from_callable(raises))
    clock.cost = lambda gm: 1.0 if "torch.add" in gm.code else 2.0
    table = fxlab.tune(session).table().set_index("pass")
    assert table.loc["shifts", "reason"].startswith("faster, but not the same model: ")
    assert table.loc["shifts", "verdict"] == "different"
    assert table.loc["raises", "reason"] == "the pass raises: halfway"
    assert not session.can_undo


def test_passes_that_are_not_to_be_chosen_stay_as_they_are(session_of, clock):
    session = session_of(from_callable(shifts), MergeLinears())
    session.apply("shifts")
    clock.cost = lambda gm: 10 + linears(gm)
    tuning = fxlab.tune(session, passes=["MergeLinears"], exclusions=False)
    assert tuning.verdict.agrees  # with the model as it was, which the other pass has changed
    assert [pass_.name for pass_ in session.applied] == ["shifts", MERGE]
    assert tuning.trials[0].on_top_of == ("shifts",)


def test_candidates_are_excluded_where_that_is_faster(session_of, clock):
    session = session_of(MergeLinears())
    clock.cost = lambda gm: 50 + 5 * linears(gm) - 8 * linears(gm, "mlp")
    tuning = fxlab.tune(session)
    assert kept(tuning) == [(MERGE, "everywhere"), (MERGE, "without layers.*.mlp")]
    assert len(session.excluded(MERGE)) == 2
    assert linears(session.graph_module, "mlp") == 4
    session.undo()
    assert session.excluded(MERGE) == ()


def test_a_pass_that_does_not_pay_everywhere_is_kept_at_one_kind_of_place(session_of, clock):
    session = session_of(MergeLinears())
    clock.cost = lambda gm: 90 + 5 * linears(gm) - 12 * linears(gm, "mlp")
    tuning = fxlab.tune(session)
    assert kept(tuning) == [(MERGE, "only layers.*")]
    assert ("everywhere", "slower") in [(trial.where, str(trial.reason)) for trial in tuning.trials]
    assert len(session.excluded(MERGE)) == 2


def test_parts_without_which_another_pass_raises_are_not_tried(session_of, clock):
    def needs_all(graph_module):
        if linears(graph_module) not in (4, 8):  # all merged, or none
            raise RuntimeError("some are merged")
        return graph_module

    session = session_of(MergeLinears(), from_callable(needs_all))
    session.apply("needs_all")
    clock.cost = lambda gm: 50 + linears(gm)
    tuning = fxlab.tune(session, passes=[MERGE])
    assert kept(tuning) == [(MERGE, "everywhere")]
    raised = {trial.where: str(trial.reason) for trial in tuning.trials if not trial.kept}
    assert raised == dict.fromkeys(["without layers.*", "without layers.*.mlp"], "the pass raises")


def test_what_the_session_excludes_stays_excluded(session_of, clock):
    session = session_of(MergeLinears())
    session.exclude(MERGE, "layers_0_query")
    excluded = session.excluded(MERGE)
    clock.cost = lambda gm: 50 + linears(gm)
    fxlab.tune(session, exclusions=False)
    assert session.is_on(MERGE)
    assert session.excluded(MERGE) == excluded


def test_what_was_on_and_does_not_pay_is_switched_off(session_of, clock):
    session = session_of(MergeLinears())
    session.apply(MERGE)
    clock.cost = lambda gm: 50 - linears(gm)
    fxlab.tune(session, exclusions=False)
    assert session.applied == ()
    session.undo()
    assert session.is_on(MERGE)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no")])
def test_an_interrupt_or_an_error_leaves_the_session_as_it_was(session_of, clock, error):
    session = session_of(MergeLinears(), ChangeTrueDivToMulByInverse())
    session.apply(INVERSE)
    before = session.graph_module

    def cost(gm):
        raise error

    clock.cost = cost
    with pytest.raises(type(error)):
        fxlab.tune(session)
    assert session.graph_module is before


def test_times_are_those_of_the_clock_that_is_given(session_of):
    seconds = itertools.count()
    tuning = fxlab.tune(session_of(MergeLinears()), rounds=3, exclusions=False, clock=lambda: next(seconds))
    assert [(t.spread.ratio, str(t.reason)) for t in tuning.trials] == [(1.0, "no clear difference")]


def test_a_session_of_another_kind_is_refused(traced):
    class Compiled(fxlab.Session):
        pass

    with pytest.raises(TypeError, match=r"expected an fxlab\.Session, got a Compiled"):
        fxlab.tune(Compiled(*traced))
