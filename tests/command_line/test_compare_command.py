"""``fxlab compare``: two models of any origin."""

import json

import pytest
import torch

pytestmark = pytest.mark.slow

MODELS = """
import torch


from torch import nn


class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return {"out": x + self.down(torch.relu(self.up(x)))}


class Inner(nn.Module):
    def __init__(self, reference, wrong):
        super().__init__()
        self.up, self.down, self.wrong = reference.up, reference.down, wrong

    def forward(self, hidden):
        inner = self.up(hidden)
        return self.down(inner.sigmoid() if self.wrong else inner.clamp_min(0))


class Port(nn.Module):
    def __init__(self, wrong):
        super().__init__()
        self.block = Inner(reference(), wrong)

    def forward(self, hidden):
        return self.block(hidden) + hidden


def reference():
    torch.manual_seed(0)
    return Reference()


def right():
    return Port(wrong=False)


def wrong():
    return Port(wrong=True)
"""


@pytest.fixture
def models(tmp_path):
    code = tmp_path / f"models_{tmp_path.name}.py"  # a module of its own for each test
    code.write_text(MODELS)
    torch.save({"x": torch.randn(3, 4)}, tmp_path / "x.pt")
    return code, tmp_path / "x.pt"


def test_a_right_port_is_told_by_the_exit_code(fxlab, models):
    code, inputs = models
    ended = fxlab("compare", f"{code}:reference", f"{code}:right", "--inputs", inputs, "--json")
    answer = json.loads(ended.out)
    assert ended.code == 0
    assert answer["first"] is None
    assert {row["status"] for row in answer["weights"]} == {"equal"}
    assert {row["status"] for row in answer["modules"]} == {"agrees"}


def test_a_wrong_port_is_named_and_reported(fxlab, models, tmp_path):
    code, inputs = models
    page = tmp_path / "page.html"
    ended = fxlab("compare", f"{code}:reference", f"{code}:wrong", "--inputs", inputs, "-o", page)
    assert ended.code == 1
    assert "first               block" in ended.out
    assert "sigmoid" in ended.out
    assert page.exists()


def test_programs_are_compared_by_the_outputs_that_are_asked_for(fxlab, models, tmp_path):
    code, inputs = models
    file = tmp_path / "program.pt2"
    namespace = {}
    exec(MODELS, namespace)
    torch.export.save(torch.export.export(namespace["right"](), (torch.randn(3, 4),)), file)
    ended = fxlab("compare", f"{code}:reference", file, "--inputs", inputs, "--outputs", "out=0")
    assert ended.code == 0
    ended = fxlab("compare", f"{code}:reference", file, "--inputs", inputs, "--outputs", "logits=0")
    assert ended.code == 2
    assert "the reference has no output 'logits'" in ended.err


def test_odd_pairs_of_outputs_are_refused(fxlab, models):
    code, _ = models
    ended = fxlab("compare", f"{code}:reference", f"{code}:right", "--outputs", "logits")
    assert ended.code == 2
    assert "expected pairs such as logits=0" in ended.err


def test_files_of_weights_are_compared_without_code(fxlab, tmp_path):
    weights = {"up.weight": torch.randn(4, 3), "up.bias": torch.randn(4)}
    torch.save(weights, tmp_path / "a.pt")
    other = {"layer.weight": weights["up.weight"].T.contiguous(), "layer.bias": weights["up.bias"]}
    torch.save(other, tmp_path / "b.pt")
    ended = fxlab("compare", tmp_path / "a.pt", tmp_path / "b.pt", "--json")
    answer = json.loads(ended.out)
    assert ended.code == 0
    assert answer["compared_weights"] == len(answer["weights"])
    assert {row["weight"]: row["status"] for row in answer["weights"]} == {
        "layer.weight": "transposed",
        "layer.bias": "equal",
    }
    torch.save(weights | {"up.bias": -weights["up.bias"]}, tmp_path / "b.pt")
    ended = fxlab("compare", tmp_path / "a.pt", tmp_path / "b.pt")
    assert ended.code == 1
    assert "up.bias" in ended.out
    assert "up.weight" not in ended.out
    (tmp_path / "b.pt").write_text("none")
    assert fxlab("compare", tmp_path / "a.pt", tmp_path / "b.pt").code == 2


def test_files_without_weights_are_nothing_to_compare(fxlab, tmp_path):
    torch.save({}, tmp_path / "none.pt")
    assert fxlab("compare", tmp_path / "none.pt", tmp_path / "none.pt").code == 5
