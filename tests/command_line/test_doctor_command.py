"""``fxlab doctor``: what works is tried, and what does not is named with what to do."""

import importlib.metadata
import json

import pytest

from fxlab.command_line.commands import doctor

INSTALLED = importlib.metadata.version


def without(monkeypatch, *missing, **versions):
    def version(name):
        if name in missing:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions.get(name) or INSTALLED(name)

    monkeypatch.setattr(doctor, "version", version)


def parts(fxlab, name):
    ended = fxlab("doctor", "--json")
    return ended.code, {row["what"]: row for row in json.loads(ended.out)[name]}


@pytest.mark.slow
def test_everything_works_here(fxlab):
    ended = fxlab("doctor", "--json")
    answer = json.loads(ended.out)
    rows = answer["packages"] + answer["parts"]
    assert ended.code == 0
    assert {row["works"] for row in rows} == {"yes"}
    assert {"torch", "ipywidgets", "inspector", "report"} <= {row["what"] for row in rows}
    assert not any(row["what to do"] for row in rows)


@pytest.fixture
def without_trials(monkeypatch):
    monkeypatch.setattr(doctor, "_TRIALS", ())


@pytest.mark.usefixtures("without_trials")
def test_a_package_that_is_missing_or_too_old_is_named_with_what_to_do(fxlab, monkeypatch):
    without(monkeypatch, "pygraphviz", torch="1.13.0")
    code, rows = parts(fxlab, "packages")
    assert code == 1
    assert rows["pygraphviz"]["found"] == "none"
    assert rows["pygraphviz"]["what to do"] == 'pip install "pygraphviz>=2.0"'
    assert rows["torch"]["works"] == "no"
    assert rows["torch"]["what to do"] == 'pip install --upgrade "torch>=2.9.1"'


@pytest.mark.usefixtures("without_trials")
def test_what_only_an_extra_needs_is_no_fault(fxlab, monkeypatch):
    without(monkeypatch, "anywidget")
    code, rows = parts(fxlab, "packages")
    assert code == 0
    assert rows["anywidget"]["works"] == "not here"
    assert rows["anywidget"]["what to do"] == 'pip install "fxlab[notebook]", for the inspector'


def test_a_part_that_raises_is_told_in_its_words(fxlab, monkeypatch):
    def trial():
        raise OSError("no such library\n  a long story")

    known = doctor._TRIALS
    monkeypatch.setattr(doctor, "_TRIALS", tuple((what, trial, *more) for what, _, *more in known))
    _, rows = parts(fxlab, "parts")
    faults = {what for what, row in rows.items() if row["works"] == "no"}
    assert faults == {"trace, apply a pass, judge", "draw", "report"}
    for is_needed, code in ((True, 1), (False, 0)):
        monkeypatch.setattr(doctor, "_TRIALS", (("draw", trial, is_needed, "reinstall it"),))
        found_code, rows = parts(fxlab, "parts")
        assert found_code == code
        assert (rows["draw"]["found"], rows["draw"]["what to do"]) == (
            "OSError: no such library",
            "reinstall it",
        )
