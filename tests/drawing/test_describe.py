"""The words in a box: what it does, with what, and what comes out."""

from __future__ import annotations

import builtins
import operator

import pytest
import torch
from drawing_models import Bert
from torch import fx, nn

from fxlab.drawing import Group, build_hierarchy
from fxlab.drawing.rendering.box import lines_of, module_text


class Renamed(nn.MaxPool2d):
    """A subclass that keeps its arguments elsewhere."""

    def __init__(self) -> None:
        super().__init__(2)
        del self.kernel_size


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.Linear(3, 5), "Linear 3→5"),
        (nn.Conv2d(4, 8, 3), "Conv2d 4→8 k3"),
        (nn.Conv2d(4, 8, (3, 5), stride=2, groups=2), "Conv2d 4→8 k3×5 s2 g2"),  # noqa: RUF001
        (nn.ConvTranspose1d(2, 4, 3), "ConvTranspose1d 2→4 k3"),
        (nn.MaxPool2d(3, stride=2), "MaxPool2d k3 s2"),
        (nn.AdaptiveAvgPool2d(1), "AdaptiveAvgPool2d →1"),
        (nn.GroupNorm(2, 6), "GroupNorm 2 of 6"),
        (nn.BatchNorm2d(7), "BatchNorm2d 7"),
        (nn.Dropout(0.25), "Dropout p=0.25"),
        (nn.ReLU(), "ReLU"),
        (Renamed(), "Renamed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_module_is_described_by_the_arguments_that_people_know_it_by(module: nn.Module, text: str) -> None:
    assert module_text(module) == text


@pytest.mark.parametrize(
    ("target", "args", "line"),
    [
        (operator.truediv, ("x", 8.0), "÷ 8"),
        (operator.getitem, ("x", 0), "[0]"),
        (operator.sub, (1, "x"), "1 − …"),  # noqa: RUF001
        (builtins.getattr, ("x", "shape"), ".shape"),
        (torch.transpose, ("x", 1, 2), "(1, 2)"),
    ],
)
def test_the_constants_of_a_call_stand_in_its_box(
    target: object, args: tuple[object, ...], line: str
) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(target, tuple(x if arg == "x" else arg for arg in args))
    graph.output(node)
    gm = fx.GraphModule(nn.Module(), graph)
    leaf = build_hierarchy(gm).leaves[1]
    assert line in lines_of(leaf, dict(gm.named_modules()))[0]


def test_a_closed_group_counts_all_blocks_of_a_class_that_repeats() -> None:
    """The first of equal blocks may be unlike the others, and is one of them all the same."""
    graph_module = fx.symbolic_trace(Bert(layers=4))
    divided = next(node for node in graph_module.graph.nodes if node.target is operator.truediv)
    divided.target = operator.mul
    hierarchy = build_hierarchy(graph_module)
    encoder = hierarchy.groups["encoder"]
    assert [child.kind for child in encoder.children if isinstance(child, Group)] == ["module", "repeat"]
    assert lines_of(encoder, hierarchy.modules)[-1] == "Block × 4"  # noqa: RUF001
