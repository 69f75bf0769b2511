"""Many models with many stacks."""

import functools
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch
from torch import nn

from fxlab import Session, from_callable, sweep
from fxlab.sweeping.swept_cell import session_with


def small(width=8):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 16), nn.Identity(), nn.Linear(16, 3)).eval()


def with_a_mistake():
    """A session whose pass is wrong on large values alone."""
    return Session(small(), torch.ones(2, 8), passes=[from_callable(clamped, name="remove-identities")])


def clamped(graph_module):
    output = graph_module.graph.output_node()
    with graph_module.graph.inserting_before(output):
        output.args = (graph_module.graph.call_function(torch.clamp, (output.args[0], -9.0, 9.0)),)
    graph_module.recompile()


def data():
    return [torch.randn(size, 8, generator=torch.Generator().manual_seed(size)) for size in (4, 2, 9)]


def with_large_values():
    return [data()[0], 1e3 * data()[1], data()[2]]


STACKS = {"as it is": [], "identities": ["remove-identities"]}


def without_times(found):
    return found.table().drop(columns=["time", "time_low", "time_high"])


@pytest.mark.slow
def test_a_table_of_models_and_stacks(tmp_path):
    saved = Session(small(), torch.ones(2, 8))
    saved.apply("fuse-bias-in-linear")
    file = saved.save(tmp_path / "stack.json")
    found = sweep(
        {"small": small, "wrong": with_a_mistake},
        STACKS | {"saved": file},
        {"small": data, "wrong": with_large_values()},
    )
    table = found.table()
    assert table["status"].tolist() == [
        "same bits",
        "same bits",
        "within the model's own rounding",
        "same bits",
        "different",
        "failed",
    ]
    assert table["agrees"].tolist() == [True, True, True, True, False, False]
    assert not found.agrees
    assert table.loc[("small", "identities"), ["nodes_before", "nodes_after", "batches"]].tolist() == [
        5,
        4,
        3,
    ]
    assert table.loc[("small", "saved"), "agreement"] == 1
    assert table.loc[("small", "saved"), "time"] > 0
    assert table.loc[("small", "as it is"), "memory"] == 1
    assert "not on offer: fuse-bias-in-linear" in table.loc[("wrong", "saved"), "reason"]


def test_a_folder_has_a_page_and_reports_and_goes_on(tmp_path, monkeypatch):
    path = tmp_path / "sweep"
    models, batches = {"<b>small": small, "wrong": with_a_mistake}, with_large_values()

    def stopping():
        yield batches[0]
        raise KeyboardInterrupt

    partial = sweep(models, STACKS, {"<b>small": batches, "wrong": stopping}, path=path)
    assert partial.stopped
    assert [cell.status for cell in partial.cells] == ["same bits", "same bits"]
    assert "2 judged so far: it was stopped" in (path / "index.html").read_text()
    whole = sweep(models, STACKS, batches, path=path)
    page = (path / "index.html").read_text()
    assert "3 of 4 cells agree" in page
    assert "&lt;b&gt;small" in page
    assert "<b>small" not in page
    for cell in whole.cells:
        assert f'href="{cell.report}"' in page
        assert "fxlab-session" in (path / cell.report).read_text()
    assert whole.cells[:2] == partial.cells[:2]

    def no_run(*_):
        raise AssertionError("judged again")

    monkeypatch.setattr("fxlab.validation.evaluation.evaluate.judged_item", no_run)
    assert sweep(models, STACKS, batches, path=path) == whole
    other = sweep({"<b>small": functools.partial(small, 8), "wrong": small}, STACKS, batches, path=path)
    assert [cell.status for cell in other.cells] == ["same bits", "same bits", "same bits", "failed"]
    assert "of another evaluation" in other.cells[3].reason


@pytest.mark.slow
def test_workers_give_the_same_table(tmp_path):
    models = {"small": functools.partial(small, 8), "wrong": with_a_mistake}
    expected = sweep(models, STACKS, with_large_values)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        found = sweep(models, STACKS, with_large_values, executor)
    assert without_times(found).equals(without_times(expected))


class TwoInputs(nn.Module):
    def forward(self, x, scale=None, *, shift=0.0):
        return x + shift if scale is None else x * scale + shift


@pytest.mark.parametrize(
    ("batch", "inputs"),
    [
        ((torch.ones(2), torch.ones(2)), 1),
        ({"x": torch.ones(2), "scale": torch.ones(2), "label": 1}, 2),
    ],
)
def test_a_model_takes_of_a_batch_what_it_has_parameters_for(batch, inputs):
    assert len(session_with(TwoInputs(), batch).inputs) == inputs
    assert sweep({"two": TwoInputs()}, {"none": []}, [batch]).agrees


def test_what_raises_is_a_row():
    def broken():
        raise OSError("no weights")

    found = sweep({"broken": broken, "none": 1, "late": small}, {"unknown": ["no-such-pass"]}, data)
    reasons = found.table()["reason"].tolist()
    assert reasons[0] == "OSError: no weights"
    assert "expected" in reasons[1]
    assert "no-such-pass" in reasons[2]
    assert not found.agrees


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([small], STACKS, data), TypeError, "models: expected"),
        (({}, STACKS, data), ValueError, "nothing to judge"),
        (({"a": small}, {"a": 3}, data), TypeError, r"stacks\['a'\]"),
        (({"a": small}, {"a": [3]}, data), TypeError, r"stacks\['a'\]"),
        (({"a": small}, {1: []}, data), TypeError, "stacks: expected names"),
        (({"a": small}, STACKS, iter([])), TypeError, "can be read once"),
        (({"a": small}, STACKS, {"b": data}), ValueError, "model 'a'"),
        (({"a": small}, STACKS, 3), TypeError, "batches: expected"),
        (({"a": small}, STACKS, data, "processes"), TypeError, "executor: expected"),
        (({"a": small}, STACKS, data, None, 3), TypeError, "path: expected"),
    ],
)
def test_bad_arguments_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        sweep(*arguments)


def test_what_cannot_be_sent_is_named():
    with ProcessPoolExecutor(1) as executor, pytest.raises(ValueError, match="models: 'a' cannot be sent"):
        sweep({"a": lambda: small()}, STACKS, data, executor)


def test_a_broken_cell_file_is_measured_anew(tmp_path):
    found = sweep({"small": small}, {"none": []}, data, path=tmp_path)
    (file,) = tmp_path.glob("*/cell.json")
    file.write_text(json.dumps({"batches": 1}))
    again = sweep({"small": small}, {"none": []}, data, path=tmp_path)
    assert without_times(again).equals(without_times(found))
    assert json.loads(file.read_text())["cell"]["model"] == "small"
