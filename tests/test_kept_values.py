"""What is kept on disk is read with every field checked, whoever wrote the file."""

import copy
import json
import math
import os

import pytest
import torch
from torch import nn

import fxlab
from fxlab.validation.evaluation.agreement import Measured
from fxlab.validation.evaluation.kept_file import KeptFile, read_as

HOSTILE = (
    None,
    True,
    -1,
    10**400,
    math.nan,
    math.inf,
    "__import__('os').mkdir('executed')",
    "\u202e\x1b[2J<img src=x onerror=alert(1)>",
    "\ud800",
    [],
    ["a"],
    {},
    {"__reduce__": "a"},
)


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Identity(), nn.Linear(16, 8)).eval()


def merged():
    session = fxlab.Session(small(), torch.ones(2, 8))
    session.apply("fuse-bias-in-linear")
    return session


def batches():
    return [torch.linspace(-1, 1, 24).reshape(3, 8)]


def places(data, path=()):
    """Return where there is anything in what JSON holds, itself left out."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [found for key, value in inner for found in ((*path, key), *places(value, (*path, key)))]


def with_another(data, path, value):
    changed = copy.deepcopy(data)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


def refusal(session, file):
    """Return what is said of a file that an evaluation does not go on from."""
    try:
        KeptFile(file, session.original, session.graph_module, {})
    except ValueError as error:
        return str(error)
    return ""


def kind_of(value):
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if is_number else type(value).__name__


@pytest.fixture
def in_a_folder(tmp_path, monkeypatch):
    """A folder of its own, where nothing in a file may make anything."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not os.path.exists("executed")


def test_each_field_of_a_kept_evaluation(in_a_folder):
    session, file = merged(), in_a_folder / "evaluation.jsonl"
    whole = session.evaluate(batches(), resume=file)
    header, line = file.read_text().splitlines()
    data, read = json.loads(line), []
    assert len(places(data)) > 25
    for path in places(data):
        old = data
        for key in path:
            old = old[key]
        for value in HOSTILE:
            if value == old and type(value) is type(old):
                continue
            file.write_text(f"{header}\n{json.dumps(with_another(data, path, value))}\n")
            said = refusal(session, file)
            if not said:
                assert None in (old, value) or kind_of(value) == kind_of(old), (path, value)
                read.append((path, value))
                continue
            assert said.startswith("resume: line 2 of"), (path, value)
            assert said.isprintable()
    # Texts and numbers that may be any are taken as what they are, and nothing else is.
    assert 0 < len(read) < len(places(data)) * len(HOSTILE) / 3
    for path, value in read[::25]:
        file.write_text(f"{header}\n{json.dumps(with_another(data, path, value))}\n")
        found = session.evaluate(batches(), resume=file) if path[0] == "result" else whole
        assert len(found.table().columns)
        assert str(found)
    file.write_text(f"{header}\n{line}\n")
    assert str(session.evaluate(batches(), resume=file)) == str(whole)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("number", -1, "number, elements"),
        ("number", True, r"result\.number: expected int, got bool"),
        ("status", "fine", "status: 'fine' is none"),
        ("status", "refused", "the verdict has another one"),
        ("measures", {"x": {"kind": "share", "total": 3, "count": 2}}, "a share is of a part"),
        ("measures", {"x": {"kind": "share", "total": 0, "count": math.nan}}, "of less than nothing"),
        ("measures", {"x": {"kind": "eval", "total": 0, "count": 1}}, "no kind of measure"),
    ],
)
def test_what_no_batch_gives_is_named(in_a_folder, name, value, words):
    session, file = merged(), in_a_folder / "evaluation.jsonl"
    session.evaluate(batches(), resume=file)
    header, line = file.read_text().splitlines()
    changed = json.dumps(with_another(json.loads(line), ("result", name), value))
    file.write_text(f"{header}\n{changed}\n")
    with pytest.raises(ValueError, match=f"line 2 of .*{words}"):
        session.evaluate(batches(), resume=file)


@pytest.mark.parametrize(("place", "line"), [(1, "[" * 100_000), (2, "[" * 100_000), (3, None)])
def test_what_is_nested_without_end_and_a_batch_told_twice(in_a_folder, place, line):
    session, file = merged(), in_a_folder / "evaluation.jsonl"
    session.evaluate(batches(), resume=file)
    lines = file.read_text().splitlines()
    lines[place - 1 :] = [line or lines[1]]
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=f"line {place} of"):
        session.evaluate(batches(), resume=file)


@pytest.mark.parametrize("value", [value for value in HOSTILE if not isinstance(value, int | float)])
def test_a_number_is_a_number(value):
    with pytest.raises(ValueError, match="total: expected float"):
        read_as(Measured, {"kind": "mean", "total": value, "count": 1})
