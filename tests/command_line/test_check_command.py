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


def test_it_is_judged_on_batches(fxlab, tiny, stack, tmp_path):
    data = tmp_path / "batches.pt"
    torch.save([{"x": torch.ones(size, 4)} for size in (2, 9)], data)
    page = tmp_path / "page.html"
    ended = fxlab("check", tiny, "--session", stack, "--data", data, "-o", page, "--json")
    answer = json.loads(ended.out)
    assert ended.code == 0, ended.out
    assert answer["batches_judged"] == 2
    assert [row["batch"] for row in answer["batches"]] == [0, 1]
    assert page.stat().st_size > 0


def test_it_is_judged_on_a_data_set_in_code(fxlab, tiny, stack, tmp_path):
    code = tmp_path / f"data_{tmp_path.name}.py"  # a module of its own
    lines = "import torch", "data = torch.utils.data.TensorDataset(torch.ones(3, 4), torch.ones(3))"
    code.write_text("\n".join(lines))
    for passes in (("--session", stack), ("--passes", "merge-linears")):
        ended = fxlab("check", tiny, *passes, "--data", f"{code}:data", "--json")
        assert ended.code == 0, ended.err
        assert json.loads(ended.out)["batches_judged"] == 3


def test_what_is_no_saved_session_or_no_list_of_batches_is_refused(fxlab, tiny, stack, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    ended = fxlab("check", tiny, "--session", broken)
    assert (ended.code, "expected a saved session" in ended.err) == (2, True)
    data = tmp_path / "batches.pt"
    torch.save({"x": torch.ones(2, 4)}, data)
    ended = fxlab("check", tiny, "--session", stack, "--data", data)
    assert (ended.code, "--data" in ended.err) == (2, True)


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


def test_a_batch_that_failed_is_no_agreement(fxlab, tiny, tmp_path):
    data = tmp_path / "batches.pt"
    torch.save([torch.ones(2, 4), torch.ones(2, 5)], data)
    ended = fxlab("check", tiny, "--passes", "merge-linears", "--data", data, "--json")
    answer = json.loads(ended.out)
    assert (ended.code, answer["agrees"]) == (1, False)
    assert "1 batch failed" in answer["reason"]


def test_batches_that_are_missing_after_ctrl_c_are_not_judged(fxlab, tiny, tmp_path):
    code = tmp_path / f"data_{tmp_path.name}.py"
    code.write_text("""
import torch

class Data:
    def __iter__(self):
        yield torch.ones(2, 4)
        raise KeyboardInterrupt

data = Data()
""")
    ended = fxlab("check", tiny, "--passes", "merge-linears", "--data", f"{code}:data", "--json")
    answer = json.loads(ended.out)
    assert (ended.code, answer["stopped"], answer["batches_judged"]) == (130, True, 1)
