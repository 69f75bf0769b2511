"""The words in a box: what it does, with what, and what comes out."""

from __future__ import annotations

import builtins
import operator

import pytest
import torch
from torch import fx, nn

import fxlab
from fxlab.drawing import Group, build_hierarchy
from fxlab.drawing.rendering.describe import (
    lines_of,
    module_text,
)


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

    class Block(nn.Module):
        def __init__(self, *, is_first: bool) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4, bias=not is_first)
            self.act = nn.ReLU() if is_first else nn.Tanh()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(self.linear(x))

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.ModuleList([Block(is_first=i == 0) for i in range(4)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.block:
                x = block(x)
            return x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stack = Stack()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.stack(x)

    hierarchy = build_hierarchy(fxlab.symbolic_trace(Model(), torch.ones(2, 4)))
    stack = hierarchy.groups["stack"]
    kinds = [child.kind for child in stack.children if isinstance(child, Group)]
    assert kinds == ["module", "repeat"]
    assert lines_of(stack, hierarchy.modules)[-1] == "Block × 4"  # noqa: RUF001
