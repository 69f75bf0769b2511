"""``fxlab sweep``: models and stacks as one table, a page and an exit code."""

import json

import pytest
import torch
from torch import nn

from fxlab import Session

NAMES = ("input_ids", "attention_mask", "token_type_ids")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return the file of two batches for BERT, and that of one for the exported program."""
    folder = tmp_path_factory.mktemp("data")
    texts = [dict.fromkeys(NAMES, torch.ones(size, 7, dtype=torch.long)) for size in (2, 9)]
    torch.save(texts, folder / "texts.pt")
    torch.save([{"x": torch.ones(3, 4), "scale": torch.ones(3, 2)}], folder / "numbers.pt")
    return folder / "texts.pt", folder / "numbers.pt"


@pytest.mark.slow
def test_a_row_for_each_model_with_each_stack(fxlab, checkpoint, exported, data, tmp_path):
    texts, numbers = data
    folder = tmp_path / "sweep"
    arguments = [f"bert={checkpoint}", f"scaled={exported}", "--stack", "as it is=", "--stack", "fuse-bias"]
    arguments += ["--data", f"bert={texts}", "--data", numbers, "-o", folder, "--format", "json"]
    ended = fxlab("sweep", *arguments)
    answer = json.loads(ended.out)
    assert ended.code == 0, ended
    assert (answer["judged"], answer["of"], answer["agree"]) == (4, 4, 4)
    rows = [[row[name] for name in ("model", "stack", "batches", "agrees")] for row in answer["cells"]]
    assert rows == [
        ["bert", "as it is", 2, True],
        ["bert", "fuse-bias", 2, True],
        ["scaled", "as it is", 1, True],
        ["scaled", "fuse-bias", 1, True],
    ]
    assert answer["cells"][1]["nodes_after"] != answer["cells"][1]["nodes_before"]
    page = (folder / "index.html").read_text()
    assert answer["page"] == str(folder / "index.html")
    assert all(f'href="{row["report"]}"' in page for row in answer["cells"])


def test_what_is_different_and_what_fails_have_exit_codes(fxlab, somebodys_passes, data, tmp_path):
    file, batches = tmp_path / "model.pt", tmp_path / "batches.pt"
    torch.save(nn.Sequential(nn.Linear(4, 3)).eval(), file)
    torch.save([torch.ones(2, 4)], batches)
    stack = Session(torch.load(file, weights_only=False), torch.ones(2, 4)).save(tmp_path / "stack.json")
    model = f"small={file}", "--trust"
    ended = fxlab("sweep", *model, "--stack", "double", "--stack", f"none={stack}", "--data", batches)
    assert ended.code == 1, ended
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["small", "double", "different"] in [line[:3] for line in lines]
    assert ["small", "none", "same"] in [line[:3] for line in lines]
    assert "time_low" not in ended.out
    ended = fxlab("sweep", *model, "--stack", "raising", "--data", batches, "--format", "csv")
    assert ended.code == 5, ended
    assert "no such layer" in ended.out
    assert fxlab("sweep", *model, "--stack", "none=", "--data", data[0]).code == 5


@pytest.mark.slow
def test_workers_give_the_same_rows(fxlab, exported, data):
    arguments = exported, "--stack", "none=", "--data", data[1], "--format", "json"
    one, two = (json.loads(fxlab("sweep", *arguments, "--workers", n).out)["cells"] for n in (1, 2))
    measured = ("time", "time_low", "time_high")
    for row in (*one, *two):
        for name in measured:
            assert row.pop(name) > 0
    assert one == two


def test_ctrl_c_leaves_what_is_done(fxlab, exported, data, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fxlab.sweeping.swept_cell.session_with", stopped)
    ended = fxlab("sweep", exported, "--stack", "none=", "--data", data[1], "--format", "json")
    assert ended.code == 130
    assert json.loads(ended.out) == {"judged": 0, "of": 1, "agree": 0, "cells": []}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-file.pt2", "--stack", "x="], "no such file"),
        (["a={model}", "a={model}", "--stack", "x="], "MODEL: 'a' is given twice"),
        (["{model}", "--stack", "no-such-pass"], "no-such-pass"),
        (["{model}", "--stack", "no-such-file.json"], "no-such-file.json"),
        (["{model}", "--stack", "x=", "--data", "b={data}"], "expected the name of a model"),
        (["a={model}", "b={model}", "--stack", "x=", "--data", "{texts}"], "one file can be for all"),
        (["{model}", "--stack", "x=", "--workers", "0"], "positive integer"),
        (["{model}", "--stack", "x=", "-o", "{model}"], "give the name of a folder"),
        (["{model}", "--stack", "x=", "--meta"], "--meta"),
        (["{model}"], "--stack"),
    ],
)
def test_wrong_words_end_before_anything_is_judged(fxlab, exported, data, arguments, words):
    given = [word.format(model=exported, data=data[1], texts=data[0]) for word in arguments]
    ended = fxlab("sweep", *given, "--data", data[1])
    assert ended.code == 2, ended
    assert words in ended.err
    assert ended.out == ""


def test_each_model_needs_data_that_is_a_list(fxlab, exported, data, tmp_path):
    ended = fxlab("sweep", f"a={exported}", f"b={exported}", "--stack", "x=", "--data", f"a={data[1]}")
    assert (ended.code, "--data: there is none for b" in ended.err) == (2, True)
    file = tmp_path / "mapping.pt"
    torch.save({"x": torch.ones(2)}, file)
    ended = fxlab("sweep", exported, "--stack", "x=", "--data", file)
    assert (ended.code, "expected a list of batches" in ended.err) == (2, True)
