"""``fxlab check``: a saved stack of passes on a model."""

import json

import pytest
import torch

from fxlab.command_line import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def saved(tiny, tmp_path_factory):
    file = tmp_path_factory.mktemp("stack") / "stack.json"
    assert main(["report", tiny, "--passes", "merge-linears,fuse-bias-in-linear", "--save", str(file)]) == 0
    return file.read_text()


@pytest.fixture
def stack(saved, tmp_path):
    file = tmp_path / "stack.json"
    file.write_text(saved)
    return file


def test_a_stack_that_was_saved_is_applied_and_judged(fxlab, tiny, stack):
    ended = fxlab("check", tiny, "--session", stack, "--strict", "--json")
    answer = json.loads(ended.out)
    assert ended.code == 0
    assert [row["pass"] for row in answer["passes"]] == ["merge-linears", "fuse-bias-in-linear"]
    assert answer["verdict"] in ("same bits", "within the model's own rounding")
    assert answer["not_as_saved"] == []


def test_another_environment_is_said_and_a_failure_if_asked_for(fxlab, tiny, stack):
    stack.write_text(stack.read_text().replace(f'"torch": "{torch.__version__}"', '"torch": "1.0"'))
    ended = fxlab("check", tiny, "--session", stack, "--json")
    assert ended.code == 0
    assert "torch 1.0 in the file" in json.loads(ended.out)["not_as_saved"][0]
    assert fxlab("check", tiny, "--session", stack, "--strict").code == 1


def test_what_is_no_saved_session_is_refused(fxlab, tiny, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    ended = fxlab("check", tiny, "--session", broken)
    assert (ended.code, "expected a saved session" in ended.err) == (2, True)


def test_a_saved_stack_is_given_its_own_passes_and_no_others(fxlab, tiny, stack, tmp_path):
    code, own = tmp_path / f"own_{tmp_path.name}.py", tmp_path / "own.json"
    code.write_text("def doubled(graph_module):\n    pass\n\ndef halved(graph_module):\n    pass\n")
    assert fxlab("report", tiny, "--passes", f"merge-linears,{code}:doubled", "--save", own).code == 0
    ended = fxlab("check", tiny, "--session", own, "--passes", f"{code}:doubled", "--strict", "--json")
    assert ended.code == 0, ended.err
    assert [row["pass"] for row in json.loads(ended.out)["passes"]] == ["merge-linears", "doubled"]
    assert "--passes file.py:name" in fxlab("check", tiny, "--session", own).err
    for other in ("fuse-attention", f"{code}:halved"):
        ended = fxlab("check", tiny, "--session", stack, "--passes", other)
        assert (ended.code, f"{stack} does not switch on" in ended.err) == (2, True)


def test_strict_needs_a_saved_stack(fxlab, tiny):
    ended = fxlab("check", tiny, "--passes", "all", "--strict")
    assert (ended.code, "--strict: expected a saved stack" in ended.err) == (2, True)
