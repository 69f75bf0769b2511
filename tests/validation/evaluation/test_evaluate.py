"""Judging a stack on a whole data set."""

import json
import math
import operator
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import fx, nn

import fxlab
from fxlab import Session, evaluate, from_callable
from fxlab.base.results import json_values
from fxlab.validation.evaluation.evaluation import normal, wilson

ROOT = Path(__file__).parents[3]


def rows(count, size=4, seed=0, width=8):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, width, generator=generator) for _ in range(count)]


@pytest.fixture
def session():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 7)).eval()
    result = Session(fx.symbolic_trace(model), torch.ones(4, 8))
    result.apply("fuse-bias-in-linear")
    return result


def changed_by(change, graph, inputs):
    """Return a session with one pass that plants a mistake."""
    pass_ = from_callable(change, name="mistake")
    result = Session(graph, inputs, passes=[pass_])
    result.apply("mistake")
    return result


def clamped_output(graph_module):
    output = graph_module.graph.output_node()
    value = output.args[0]
    with graph_module.graph.inserting_before(output):
        clamped = graph_module.graph.call_function(torch.clamp, (value, -50.0, 50.0))
    output.args = (clamped,)
    graph_module.recompile()


def other_from_nine(x):
    return x + 1 if len(x) >= 9 else x


def grown_from_nine(graph_module):
    output = graph_module.graph.output_node()
    with graph_module.graph.inserting_before(output):
        grown = graph_module.graph.call_function(other_from_nine, (output.args[0],))
    output.args = (grown,)
    graph_module.recompile()


def forgotten_token(graph_module):
    weight = graph_module.get_parameter("0.weight").detach().clone()
    weight[39] = 0
    graph_module.get_submodule("0").weight = nn.Parameter(weight)


TOKENS = torch.randint(1, 30, (2, 6), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("change", "layer", "one", "more"),
    [
        (grown_from_nine, nn.Identity(), torch.randn(4, 8), [torch.randn(4, 8), torch.randn(9, 8)]),
        (clamped_output, nn.LeakyReLU(1.0), torch.randn(4, 8), [torch.randn(4, 8), 100 * torch.randn(4, 8)]),
        (forgotten_token, nn.Embedding(40, 3), TOKENS, [TOKENS, TOKENS.clone().fill_(39)]),
    ],
    ids=["batch of 9", "large values", "rare token"],
)
def test_mistakes_that_one_batch_misses_are_found(change, layer, one, more):
    wrong = changed_by(change, fx.symbolic_trace(nn.Sequential(layer)), one)
    assert wrong.verdict().agrees
    found = wrong.evaluate(more)
    assert not found.agrees
    assert found.verdict.decided_by == "batch 1"
    assert found.worst[0].number == 1
    assert len(found.worst[0].index) == wrong.original(more[1]).dim()
    assert found.batches["status"].tolist() == ["same bits", "different"]
    assert not wrong.verdict(found.worst[0].inputs).agrees


def test_a_right_stack_agrees_on_batches_of_other_sizes(session):
    found = session.evaluate([*rows(2), *rows(1, size=1)])
    assert found.agrees
    assert found.table.loc["top-1 of output", ["value", "n"]].tolist() == [1, 9]
    assert found.table.loc["top-5 of output", "low"] == pytest.approx(9 / (9 + 1.959964**2))
    assert found.batches["elements"].tolist() == [4, 4, 1]
    assert "3 batches" in str(found)


def by_inverse(graph_module):
    for node in graph_module.graph.find_nodes(op="call_function", target=operator.truediv):
        node.target, node.args = operator.mul, (node.args[0], 1 / 3)
    graph_module.recompile()


def test_the_worst_batches_are_bounded_and_open():
    session = changed_by(by_inverse, fx.symbolic_trace(lambda x: x / 3), torch.ones(4, 8))
    found = session.evaluate(rows(8))
    assert len(found.worst) == 5
    ratios = [one.verdict.ratio or 0 for one in found.worst]
    assert ratios == sorted(ratios, reverse=True)
    assert found.batches["ratio"].max() == ratios[0]
    assert not fxlab.compare_nodes(session.original, session.graph_module, inputs=found.worst[0].inputs).empty
    assert Session(session.original, found.worst[0].inputs).graph_module is session.original


def test_the_output_that_differs_most_is_named():
    other = evaluate(lambda x: (x, x, x), lambda x: (x + 1, x + 2, x + 1), rows(1)).worst[0]
    assert (other.output, other.max_abs_diff) == ("1", pytest.approx(2))
    assert "(on all of 2 batches)" in evaluate(nn.ReLU(), nn.ReLU(), rows(2)).verdict.reason
    nothing = evaluate(lambda x: x * math.nan, lambda x: x * math.nan, rows(1)).worst[0]
    assert (nothing.output, nothing.index) == ("", ())


def accuracy(outputs, batch):
    return (outputs.argmax(-1) == batch[1]).float().mean()


def test_metrics_read_what_the_model_is_not_given(session):
    data = [[x, torch.zeros(len(x), dtype=torch.long)] for x in rows(3)]
    found = session.evaluate(data, metrics={"accuracy": accuracy})
    known = [float(accuracy(session.original(x), (x, y))) for x, y in data]
    assert found.table.loc["accuracy (original)", "value"] == pytest.approx(sum(known) / 3)
    assert found.table.loc["accuracy (difference)", "value"] == 0
    assert found.not_given == ("1",)


def test_a_metric_that_raises_is_no_agreement(session):
    found = session.evaluate(rows(2), metrics={"accuracy": lambda outputs, batch: 1 / 0})
    assert found.batches["status"].tolist() == ["failed", "failed"]
    assert "'accuracy' raised ZeroDivisionError" in str(found)
    assert not found.agrees


def test_plain_values_tell_of_a_batch_that_failed(session):
    found = session.evaluate([*rows(1), torch.ones(1)])
    assert (found.agrees, found.verdict.agrees, found.as_dict()["agrees"]) == (False, True, False)
    told = json.loads(json.dumps(json_values(found.as_dict())), parse_constant=pytest.fail)  # JSON has no NaN
    assert told["measures"]["largest difference"]["low"] is None


def test_refused_batches_are_counted_and_named():
    class Halves(nn.Module):
        def forward(self, x):
            return x / 2 if len(x) < 9 else x

    session = Session(Halves(), torch.ones(4, 8), passes=[fxlab.ChangeTrueDivToMulByInverse()])
    session.apply("change-true-div-to-mul-by-inverse")
    found = session.evaluate([*rows(1), *rows(1, size=9)])
    assert found.agrees
    assert found.batches["status"].tolist() == ["same bits", "refused"]
    assert "1 batch refused by the original's graph" in found.verdict.reason
    alone = session.evaluate(rows(1, size=9))
    assert not alone.agrees
    assert alone.verdict.status == "nothing compared"


def test_nothing_and_nan_are_no_agreement(session):
    assert session.evaluate([]).verdict.status == "nothing compared"
    assert not session.evaluate([torch.full((2, 8), math.nan)]).agrees


@pytest.mark.parametrize("batches", [torch.ones(2, 3), {"x": torch.ones(2, 3)}, "abc"])
def test_one_batch_is_not_taken_for_several(session, batches):
    with pytest.raises(TypeError, match=r"One batch is given as \[batch\]"):
        session.evaluate(batches)


def test_an_interrupt_keeps_what_is_done(session):
    def stopping():
        yield from rows(3)
        raise KeyboardInterrupt

    partial = session.evaluate(stopping())
    assert partial.stopped
    assert "partial: it was stopped after 3 batches" in str(partial)
    pd.testing.assert_frame_equal(partial.batches, session.evaluate(rows(3)).batches)


def test_a_refusal_names_all_batches_only_where_they_are_few():
    session = Session(fx.symbolic_trace(nn.Linear(8, 2)), torch.ones(4, 8))
    some = str(session.evaluate([torch.ones(2, 7)] * 2 + rows(1)))
    many = str(session.evaluate([torch.ones(2, 7)] * 30 + rows(1)))
    assert "(0, 1)" in some
    assert "…" not in some
    assert ", …)" in many


def test_worst_batches_are_those_that_were_judged_whatever_the_loader_does_with_its_tensors(session):
    def reusing():
        buffer = torch.empty(4, 8)
        for number in range(4):
            yield buffer.fill_(number)

    found = session.evaluate(reusing())
    for one in found.worst:
        (given,) = one.inputs if isinstance(one.inputs, tuple) else (one.inputs,)
        assert (given == one.number).all()
        assert one.batch is not None


def test_a_metric_that_writes_spoils_nothing(session):
    def writes(outputs, batch):
        batch.mul_(0)
        return outputs.mul_(0).sum()

    def size(outputs, batch):
        return outputs.abs().mean() + batch.abs().mean()

    data = rows(2)
    both = session.evaluate(data, {"writes": writes, "size": size})
    alone = session.evaluate(rows(2), {"size": size})
    assert both.table.loc["size (original)"].equals(alone.table.loc["size (original)"])
    assert torch.equal(data[0], rows(2)[0])
    assert both.batches["max_abs_diff"].equals(alone.batches["max_abs_diff"])


def test_batches_are_counted_as_python_counts_them(session):
    data = [*rows(2), 1e30 * rows(1)[0].sign() * math.inf, *rows(1)]
    found = session.evaluate(data)
    assert found.batches.index.tolist() == [0, 1, 2, 3]
    number = found.worst[0].number
    assert found.verdict.decided_by == f"batch {number}"
    assert torch.equal(found.worst[0].batch, data[number])


def test_a_loader_may_not_know_its_length(session):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(torch.ones(6, 8))

    assert len(session.evaluate(torch.utils.data.DataLoader(Stream(), batch_size=4)).batches) == 2


def test_a_terminal_shows_how_far_it_is_until_it_is_done(session, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    session.evaluate(rows(3))
    shown = capsys.readouterr().err
    assert "0/3 [" in shown
    assert "?batch/s" in shown
    assert shown.split("\r")[-2:] == [" " * len(shown.split("\r")[-2]), ""]


def test_intervals_are_those_of_the_textbooks():
    assert [round(end, 4) for end in wilson(100, 100)] == [0.963, 1.0]
    assert [round(end, 4) for end in wilson(5, 10)] == [0.2366, 0.7634]
    assert (wilson(0, 20)[0], wilson(20, 20)[1]) == (0.0, 1.0)
    assert [round(number, 3) for number in normal([1.0, 2.0, 3.0], [1, 1, 1])] == [2.0, 0.868, 3.132]


def test_arrays_of_a_batch_are_copied_like_tensors(session):
    def writes(outputs, batch):
        total = float(batch["labels"].sum())
        batch["labels"][:] = 0
        return total

    def refilled():
        x, labels = torch.empty(4, 8), np.empty(4)
        for number in range(3):
            x[:] = labels[:] = number + 1
            yield {"input": x, "labels": labels}

    found = session.evaluate(refilled(), {"sum": writes})
    assert found.batches["sum (transformed)"].tolist() == [4.0, 8.0, 12.0]
    assert all(float(one.batch["input"][0, 0]) == one.number + 1 for one in found.worst)


def test_batches_with_nothing_to_compare_are_in_no_share(session):
    found = session.evaluate([torch.empty(0, 8), torch.ones(2, 8)])
    assert found
    assert found.table.loc["batches that agree", ["value", "n"]].tolist() == [1.0, 1]
