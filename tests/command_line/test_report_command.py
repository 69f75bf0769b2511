"""``fxlab report``."""

import json

import pytest

pytestmark = pytest.mark.slow


def test_passes_that_agree_end_with_0(fxlab, config_file):
    ended = fxlab("report", config_file, "--passes", "merge-linears,fuse-bias-in-linear", "--json")
    answer = json.loads(ended.out)
    assert ended.code == 0
    assert answer["verdict"] in ("same bits", "within the model's own rounding")
    assert [row["pass"] for row in answer["passes"]] == ["merge-linears", "fuse-bias-in-linear"]
    assert all("linear" in row["changes"] for row in answer["passes"])
    assert {row["output"] for row in answer["outputs"]} == {"last_hidden_state", "pooler_output"}


def test_without_passes_the_model_is_itself(fxlab, tiny):
    answer = json.loads(fxlab("report", tiny, "--json").out)
    assert answer["verdict"] == "same bits"
    assert answer["passes"] == []


def test_a_pass_that_changes_the_model_ends_with_1_and_is_named(fxlab, tiny, bad_passes):
    passes = f"merge-linears,fuse-bias-in-linear,{bad_passes}:double_weights"
    ended = fxlab("report", tiny, "--passes", passes, "--json")
    answer = json.loads(ended.out)
    assert ended.code == 1
    assert answer["verdict"] == "different"
    assert answer["different_since"] == "double-weights"


def test_outputs_without_numbers_end_with_5(fxlab, tiny):
    ended = fxlab("report", f"{tiny}_without_numbers", "--passes", "merge-linears", "--json")
    answer = json.loads(ended.out)
    assert (ended.code, answer["verdict"], answer["compared_elements"]) == (5, "nothing compared", 0)


def test_a_pass_that_raises_ends_with_4(fxlab, tiny, bad_passes):
    ended = fxlab("report", tiny, "--passes", f"merge-linears,{bad_passes}:raising")
    assert ended.code == 4
    assert "raising failed" in ended.err
    assert "no such layer" in ended.err


def test_text_says_the_same_to_people(fxlab, tiny):
    out = fxlab("report", tiny, "--passes", "merge-linears").out
    assert "verdict" in out
    assert "merge-linears" in out
    assert "keys" in out


@pytest.mark.parametrize("passes", [[], ["--passes", "merge-linears,fuse-bias-in-linear"]])
def test_the_report_is_written(fxlab, tiny, tmp_path, passes):
    path = tmp_path / "report.html"
    ended = fxlab("report", tiny, *passes, "-o", path)
    assert ended.code == 0, ended.err
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "Tiny" in page


@pytest.mark.parametrize(
    ("path", "words"),
    [("no/folder/report.html", "no folder"), ("report.pdf", "ends in .html"), ("a.html", "is a folder")],
)
def test_where_no_report_can_be_written_it_says_so_before_anything_is_loaded(fxlab, tmp_path, path, words):
    (tmp_path / "a.html").mkdir()
    ended = fxlab("report", "there is no such model", "-o", tmp_path / path)
    assert ended.code == 2
    assert words in ended.err


def test_a_report_that_cannot_be_written_is_said_so(fxlab, tiny, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr("fxlab.html_report.report.report", full)
    ended = fxlab("report", tiny, "-o", tmp_path / "report.html")
    assert ended.code == 2
    assert "No space left on device (-o)" in ended.err
