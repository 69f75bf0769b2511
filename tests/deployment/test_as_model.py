"""A module of the model's own class that runs graphs: which calls have one, and that none differs."""

import copy
import inspect
import io
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import fxlab
from fxlab import ChangeTrueDivToMulByInverse, MergeLinears, RemoveDeadCode, from_callable
from fxlab.tracing.dynamo import compiling


class Attention(nn.Module):
    """Three linears of one input, as in attention, and what else a model has."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))
        self.dropout = nn.Dropout(0.5)
        self.scale = 2.0

    def forward(self, x, mask=None, *, labels=None, double=False):
        y = self.query(x) * self.key(x) + self.value(x) / self.scale
        if mask is not None:
            y = y * mask
        if double:
            y = y + y
        y = self.dropout(y)
        return y if labels is None else ((y - labels) ** 2).mean()


def session_of(model, *inputs, passes=()):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fxlab.TraceWarning)
        return fxlab.Session(model.eval(), inputs or (torch.randn(2, 4),), passes=passes)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Attention()


@pytest.fixture
def session(model):
    return session_of(model, passes=[MergeLinears(), ChangeTrueDivToMulByInverse()])


def same(fast, model, *args, seed=0, **kwargs):
    torch.manual_seed(seed)
    expected = model(*args, **kwargs)
    torch.manual_seed(seed)
    return torch.equal(fast(*args, **kwargs), expected)


def runs(fast):
    return fast.graphs()["runs"].tolist()


def test_it_is_of_the_models_class_and_shares_its_parameters(model, session):
    fast = session.as_model()
    assert type(fast) is Attention
    assert [id(p) for p in fast.parameters()] == [id(p) for p in model.parameters()]
    assert fast.state_dict().keys() == model.state_dict().keys()
    assert inspect.signature(fast.forward) == inspect.signature(model.forward)
    assert "forward" not in vars(model)


def test_each_kind_of_call_has_a_graph_of_its_own(model, session):
    fast, x = session.as_model(), torch.randn(3, 4)
    with torch.no_grad():
        assert same(fast, model, x)
        assert same(fast, model, x=x)
        assert same(fast, model, torch.randn(5, 4))
        assert same(fast, model, x, torch.ones(3, 1))
        assert same(fast, model, x, mask=torch.ones(3, 1))
        assert same(fast, model, x, double=True)
        assert same(fast, model, x, double=False)
    table = fast.graphs()
    assert list(table) == ["call", "mode", "runs", "hits", "nodes", "passes", "verdict", "reason"]
    assert table["hits"].tolist() == [3, 2, 1, 1]
    assert table["call"][1] == "x: float32[3, 4], mask: float32[3, 1]"
    assert set(table["mode"]) == {"evaluation, no gradients"}


def test_passes_that_are_switched_later_act_at_once(model, session):
    fast, x = session.as_model(), torch.randn(3, 4)
    with torch.no_grad():
        fast(x)
        assert fast.graphs()["passes"].tolist() == [""]
        session.apply("merge-linears")
        assert torch.allclose(fast(x), model(x), atol=1e-6)
        assert fast.graphs()["passes"].tolist() == ["merge-linears"]
        assert fast.graphs()["verdict"].tolist() != [""]
        session.apply("change-true-div-to-mul-by-inverse")
        fast(x)
        assert fast.graphs()["passes"].tolist() == ["merge-linears, change-true-div-to-mul-by-inverse"]
        session.revert()
        assert same(fast, model, x)
    assert fast.graphs()[["hits", "passes"]].values.tolist() == [[4, ""]]


def test_graphs_share_what_passes_have_made(model, session):
    session.apply("merge-linears")
    fast, x = session.as_model(), torch.randn(3, 4)
    with torch.no_grad():
        fast(x)
        fast(x, double=True)
    made = [[id(p) for p in graph.made_tensors()] for graph in fast.forward._compiled.graphs()]
    assert len(made) == 2
    assert made[0] == made[1] != []


def test_weights_that_are_trained_reach_what_passes_have_made(model, session):
    session.apply("merge-linears")
    fast, x = session.as_model(), torch.randn(3, 4)
    optimizer = torch.optim.SGD(fast.parameters(), lr=0.1)
    with torch.no_grad():
        fast(x)
    with pytest.warns(RuntimeWarning, match="merge-linears computes new weights, which an optimizer"):
        fast(x, labels=torch.zeros(3, 4)).backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x, labels=torch.zeros(3, 4)).backward()
    assert all(map(torch.equal, gradients, (p.grad for p in model.parameters())))
    optimizer.step()
    with torch.no_grad():
        assert torch.allclose(fast(x), model(x), atol=1e-6)
    assert fast.graphs()["passes"].tolist() == ["merge-linears", ""]
    assert runs(fast) == ["graph", "graph"]


def test_training_draws_the_same_random_numbers(model, session):
    fast, x = session.as_model(), torch.randn(3, 4)
    fast.train()
    model.train()
    assert same(fast, model, x, labels=torch.ones(3, 4))
    assert same(fast, model, x, labels=torch.ones(3, 4), seed=1)
    fast.eval()
    model.eval()
    assert same(fast, model, x, labels=torch.ones(3, 4))
    assert fast.graphs()["mode"].tolist() == ["training, gradients", "evaluation, gradients"]
    assert runs(fast) == ["graph", "graph"]


def test_a_transformed_graph_that_computes_something_else_is_not_used(model):
    def shifted(graph_module):
        output = graph_module.graph.output_node()
        with graph_module.graph.inserting_before(output):
            output.args = (graph_module.graph.call_function(torch.add, (output.args[0], 1)),)
        return graph_module

    session = session_of(model, passes=[from_callable(shifted)])
    session.apply("shifted")
    fast, x = session.as_model(), torch.randn(3, 4)
    with torch.no_grad():
        with pytest.warns(RuntimeWarning, match="shifted not used: different"):
            assert torch.equal(fast(x), model(x))
        assert torch.equal(session.as_model(check=False)(x), model(x) + 1)
    assert "different" in fast.graphs()["reason"][0]


def test_a_pass_that_raises_on_a_graph_is_left_off(model):
    def fails(graph_module):
        if len(graph_module.graph.find_nodes(op="placeholder")) > 1:
            raise ValueError("one input only")
        return graph_module

    session = session_of(model, passes=[from_callable(fails)])
    session.apply("fails")
    fast, x = session.as_model(), torch.randn(3, 4)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="fails raised ValueError: one input only"):
        assert torch.equal(fast(x, torch.ones(3, 1)), model(x, torch.ones(3, 1)))


class Decides(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


def test_code_that_decides_on_data_runs_between_graphs():
    model = Decides()
    fast = session_of(model, torch.ones(3)).as_model()
    for x in (torch.ones(3), -torch.ones(3), torch.ones(4), -torch.ones(2)):
        assert torch.equal(fast(x), model(x))
    table = fast.graphs().set_index("runs")
    assert table.loc["graph", "hits"].tolist()[0] == 4
    assert table.loc["eager", "reason"].str.contains("return x \\+ 1 if x.sum").any()
    assert table.loc["graph", "reason"].str.startswith("ends at").any()


class ReadsNumbers(nn.Module):
    def forward(self, x):
        return x * int(x[0])


def test_numbers_that_are_read_from_data_are_followed():
    fast = session_of(ReadsNumbers(), torch.ones(2)).as_model()
    assert [fast(torch.full((1,), number)).item() for number in range(2, 13)] == [n**2 for n in range(2, 13)]
    assert runs(fast) == ["graph"]


class HoldsFloat(nn.Module):
    scale = 0.0

    def forward(self, x):
        return x * self.scale


def test_after_many_graphs_the_other_calls_run_eagerly(monkeypatch):
    monkeypatch.setitem(compiling._SETTINGS, "recompile_limit", 4)
    fast = session_of(HoldsFloat(), torch.ones(2)).as_model()
    message = "graphs were compiled of _call, and none holds"

    def run(number):
        fast.scale = number / 4
        return fast(torch.ones(1)).item()

    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        results = [run(number) for number in range(4)]
        with pytest.warns(RuntimeWarning, match=message):
            results.append(run(4))
        results += [run(number) for number in range(5, 7)]
    assert results == [number / 4 for number in range(7)]
    table = fast.graphs()
    assert table["runs"].tolist() == ["graph"] * 4 + ["eager"]
    assert table["hits"].tolist() == [1] * 4 + [3]


class TakesAnything(nn.Module):
    def forward(self, x, way=None):
        return x if way is None else way(x)


def test_functions_among_the_arguments_have_graphs_of_their_own():
    fast = session_of(TakesAnything(), torch.ones(3)).as_model()
    for way in (torch.neg, torch.exp, lambda x: x * 3, torch.neg):
        assert torch.equal(fast(torch.ones(3), way), way(torch.ones(3)))
    assert fast.graphs()["hits"].tolist() == [2, 1, 1]


def test_under_a_mode_of_torch_it_runs_eagerly(model, session):
    fast, x = session.as_model(), torch.randn(3, 4)
    with FlopCounterMode(display=False) as expected:
        model(x)
    with FlopCounterMode(display=False) as counter:
        fast(x)
        fast(x)
    assert counter.get_total_flops() == 2 * expected.get_total_flops() > 0
    assert fast.graphs()[["runs", "hits", "reason"]].values.tolist() == [
        ["eager", 2, "a dispatch mode of torch is on"]
    ]
    assert same(fast, model, x)
    assert "graph" in runs(fast)


def test_arguments_that_the_model_does_not_take_raise_its_own_error(model, session):
    fast, x = session.as_model(), torch.randn(3, 4)
    for _ in range(3):
        with pytest.raises(TypeError, match=r"forward\(\) got an unexpected keyword argument 'y'"):
            fast(x, y=1)
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            fast(torch.ones(2, 5))
    assert same(fast, model, x)
    assert runs(fast) == ["graph"]


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def test_a_counter_of_the_model_itself_is_followed():
    model = Counts()
    fast = session_of(model, torch.ones(3)).as_model()
    assert [fast(torch.ones(1)).item() for _ in range(20)] == [*range(1, 21)]
    assert set(runs(fast)) == {"graph"}
    assert len(fast.graphs()) < 4
    assert model.calls == 0


class SetsItselfUp(nn.Module):
    is_ready = False

    def forward(self, x):
        if not self.is_ready:
            self.is_ready = True
        return x + 1


def test_a_model_that_sets_itself_up_in_its_first_call_has_graphs_from_then_on():
    fast = session_of(SetsItselfUp(), torch.ones(3)).as_model()
    assert [fast(torch.ones(1)).item() for _ in range(3)] == [2, 2, 2]
    assert fast.is_ready
    assert fast.graphs()[["runs", "hits"]].values.tolist() == [["graph", 1], ["graph", 2]]


class Notes:
    """An object that a model writes into, as a cache is."""

    def __init__(self):
        self.steps = 0
        self.values = []
        self.latest = {}


class TakesNotes(nn.Module):
    def forward(self, x, notes):
        notes.steps += 1
        notes.values.append(x * notes.steps)
        notes.latest["x"] = notes.values[-1]
        return {"y": x + sum(v.sum() for v in notes.values), "notes": notes}


def test_objects_that_are_given_are_changed_as_by_the_model():
    model, given, expected = TakesNotes(), Notes(), Notes()
    fast = session_of(model, torch.ones(3), Notes()).as_model()
    values, latest = given.values, given.latest
    for _ in range(4):
        output, own = fast(torch.ones(3), notes=given), model(torch.ones(3), notes=expected)
        assert torch.equal(output["y"], own["y"])
        assert output["notes"] is given
    assert given.values is values
    assert given.latest is latest
    assert given.steps == expected.steps == 4
    assert all(map(torch.equal, given.values, expected.values))
    assert torch.equal(given.latest["x"], expected.latest["x"])
    assert set(runs(fast)) == {"graph"}


class Counter:
    def __init__(self):
        self.steps = 0


class AddsSteps(nn.Module):
    def forward(self, x, counter, offset=0):
        counter.steps += 1
        return x * counter.steps + offset


def test_integers_in_which_calls_differ_are_followed():
    fast = session_of(AddsSteps(), torch.ones(3), Counter()).as_model()
    counter = Counter()
    results = [fast(torch.ones(1), counter, offset=step + 5).item() for step in range(20)]
    assert results == [step + 1 + step + 5 for step in range(20)]
    assert counter.steps == 20
    assert set(runs(fast)) == {"graph"}
    assert len(fast.graphs()) < 5  # zero and one are held


class RefusesLate(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.total += x.sum()
        return x + 1 if self.total > 3 else x - 1


def test_nothing_is_written_twice_where_a_decision_follows():
    model = RefusesLate()
    fast = session_of(copy.deepcopy(model), torch.ones(1)).as_model()
    assert [fast(torch.ones(1)).item() for _ in range(5)] == [model(torch.ones(1)).item() for _ in range(5)]
    assert fast.total.item() == 5


class Positional(nn.Module):
    def forward(self, *tensors):
        return sum(tensors)


def test_arguments_may_be_taken_by_place_only():
    fast = session_of(Positional(), torch.ones(3), torch.ones(3)).as_model()
    assert torch.equal(fast(torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(fast(torch.ones(2)), torch.ones(2))
    assert set(runs(fast)) == {"graph"}


def test_settings_of_the_model_that_change_are_noticed(model, session):
    fast, x = session.as_model(), torch.randn(3, 4)
    with torch.no_grad():
        assert same(fast, model, x)
        model.scale = 8.0
        assert same(fast, model, x)
        fast.scale = 2.0
        assert not same(fast, model, x)
        model.scale = 3.0
        assert same(fast, model, x)
        model.query = nn.Linear(4, 4)
        assert same(fast, model, x)
        model.key.register_forward_hook(lambda module, args, output: output + 1)
        assert same(fast, model, x)
        with torch.no_grad():
            model.value.weight.mul_(2)
        assert same(fast, model, x)
        fast.double()
        assert same(fast, model, x.double())
    assert set(runs(fast)) == {"graph"}


def test_hooks_of_the_model_itself_run_once(model, session):
    called = []
    model.register_forward_hook(lambda module, args, output: called.append(type(module)))
    fast = session.as_model()
    with torch.no_grad():
        fast(torch.randn(3, 4))
        fast(torch.randn(3, 4))
    assert called == [Attention, Attention]


def test_a_deep_copy_has_weights_of_its_own_and_follows_the_session(model, session):
    fast, x = copy.deepcopy(session.as_model()), torch.randn(3, 4)
    assert type(fast) is Attention
    session.apply("merge-linears")
    with torch.no_grad():
        expected = model(x)
        model.query.weight.zero_()
        assert torch.allclose(fast(x), expected, atol=1e-6)
    assert fast.graphs()["passes"].tolist() == ["merge-linears"]
    assert not {id(p) for p in fast.parameters()} & {id(p) for p in model.parameters()}


def test_a_pickle_has_the_passes_that_are_on(model, session):
    session.apply("change-true-div-to-mul-by-inverse")
    fast, x = session.as_model(), torch.randn(3, 4)
    loaded = pickle.loads(pickle.dumps(fast))
    session.revert()
    buffer = io.BytesIO()
    torch.save(fast, buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=False)
    with torch.no_grad():
        assert same(loaded, model, x)
        assert same(saved, model, x)
    assert loaded.graphs()["passes"].tolist() == ["change-true-div-to-mul-by-inverse"]
    assert saved.graphs()["passes"].tolist() == [""]


def test_weights_that_are_loaded_reach_both(model, session):
    fast, other, x = session.as_model(), Attention().eval(), torch.randn(3, 4)
    fast.load_state_dict(other.state_dict())
    with torch.no_grad():
        assert same(fast, other, x)
        assert same(model, other, x)


def test_a_session_of_a_graph_or_function_has_no_model(model):
    for source in (fxlab.symbolic_trace(model, torch.ones(2, 4)), lambda x: x + 1):
        session = fxlab.Session(source, torch.ones(2, 4), passes=[RemoveDeadCode()])
        with pytest.raises(ValueError, match="holds a graph alone and does not know the model"):
            session.as_model()


def test_a_check_is_a_truth_value(model):
    with pytest.raises(TypeError, match="check: expected True or False, got 'no'"):
        session_of(model).as_model(check="no")


def test_the_name_of_the_table_is_not_taken_from_a_model(model):
    model.graphs = 1
    with pytest.raises(ValueError, match="Attention has an attribute graphs"):
        session_of(model).as_model()


def test_under_inference_mode_it_computes_the_same(model, session):
    fast = session.as_model()
    with torch.inference_mode():
        x = torch.randn(3, 4)
        assert same(fast, model, x)
        assert same(fast, model, x)


def test_an_array_that_the_model_counts_in_counts_each_call_once():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = np.zeros(1)

        def forward(self, x):
            self.calls += 1
            return x * float(self.calls[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = fxlab.Session(Counts(), torch.randn(3, 4)).as_model()
        for call in range(1, 4):
            assert torch.equal(fast(torch.ones(3, 4)), torch.full((3, 4), float(call)))
