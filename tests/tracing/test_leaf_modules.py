"""Which modules are one node: by class, by path, or as a function says."""

import pytest
import torch
from agreement import assert_agree, targets
from torch import nn

from fxlab import symbolic_trace


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Sequential(Block()))


@pytest.mark.parametrize(
    ("leaf_modules", "called"),
    [
        (None, ["0.linear", "1.linear", "2.0.linear"]),
        (Block, ["0", "1", "2.0"]),
        ([Block], ["0", "1", "2.0"]),
        ("1", ["0.linear", "1", "2.0.linear"]),
        (["1", nn.Sequential], ["0.linear", "1", "2"]),
        (lambda module, path: False, []),
        (
            lambda module, path: path.startswith("2") or isinstance(module, nn.Linear),
            ["0.linear", "1.linear", "2"],
        ),
        ([lambda module, path: path == "0", "1"], ["0", "1"]),
    ],
)
def test_leaves_are_those_that_were_chosen(model, leaf_modules, called):
    traced = symbolic_trace(model, (torch.randn(3, 4),), leaf_modules=leaf_modules, check=False)
    assert targets(traced, "call_module") == called
    assert_agree(traced, model, (torch.randn(5, 4),))


@pytest.mark.parametrize("wrong", [3, [3], [None], [nn.ReLU()], int])
def test_what_is_no_choice_is_refused_in_words(model, wrong):
    with pytest.raises(TypeError, match="module classes, module paths"):
        symbolic_trace(model, (torch.randn(3, 4),), leaf_modules=wrong)


def test_a_path_that_is_not_there_is_named(model):
    with pytest.raises(ValueError, match="no module 7"):
        symbolic_trace(model, (torch.randn(3, 4),), leaf_modules="7")


def test_modules_of_torch_that_hide_modules_are_named_and_can_be_opened():
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 5, 8)
    found = symbolic_trace(model, x).meta["trace"].of_kind("module")
    assert [(each.code, each.what) for each in found] == [("module-of-torch", "TransformerEncoderLayer")]
    opened = symbolic_trace(
        model, x, leaf_modules=lambda module, path: isinstance(module, nn.Linear | nn.LayerNorm)
    )
    assert "layers.1.linear1" in {node.target for node in opened.graph.nodes}
    assert not opened.meta["trace"].of_kind("module")
    torch.testing.assert_close(opened(x), model(x))
