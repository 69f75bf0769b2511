"""A branch that few sizes take is held only if the other one computes something else."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fxlab.tracing import symbolic_trace

pytestmark = pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")


class Padded(nn.Module):
    """Pads to windows, if need be."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, images):
        batch, height, width, channels = images.shape
        down, right = -height % 6, -width % 6
        if down > 0 or right > 0:
            images = F.pad(images, (0, 0, 0, right, 0, down))
        rows, columns = images.shape[1] // 6, images.shape[2] // 6
        parts = images.view(batch, rows, 6, columns, 6, channels).transpose(2, 3).reshape(-1, 36, channels)
        parts = self.linear(parts).view(batch, rows, columns, 6, 6, channels).transpose(2, 3)
        return parts.reshape(batch, rows * 6, columns * 6, channels)[:, :height, :width]


class Positioned(nn.Module):
    """Has positions for an image of 8 times 8, and resizes them for others."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.positions, self.scale = nn.Parameter(torch.randn(1, 3, 8, 8)), scale

    def forward(self, images):
        height, width = images.shape[-2:]
        positions = self.positions
        if height != 8 or width != 8:
            positions = F.interpolate(positions, (height, width), mode="nearest") * self.scale
        return images + positions


def agrees(traced, model, images):
    return torch.equal(traced(images), model(images))


def refuses(traced, images):
    with pytest.raises(AssertionError, match="traced for"):
        traced(images)
    return True


def test_padding_by_nothing_is_padding():
    model = Padded().eval()
    traced = symbolic_trace(model, torch.randn(2, 12, 12, 4))
    for sizes in ((12, 12), (24, 18), (13, 12), (12, 15), (7, 29)):
        assert agrees(traced, model, torch.randn(3, *sizes, 4))


def test_a_table_for_one_size_is_one_that_is_resized_to_it():
    model = Positioned().eval()
    traced = symbolic_trace(model, torch.randn(2, 3, 8, 8))
    assert not traced.meta["trace"].limits()
    for sizes in ((8, 8), (8, 9), (11, 8), (5, 5), (16, 24)):
        assert agrees(traced, model, torch.randn(1, 3, *sizes))


def test_branches_that_compute_something_else_are_held():
    model = Positioned(scale=2.0).eval()
    traced = symbolic_trace(model, torch.randn(2, 3, 8, 8))
    assert agrees(traced, model, torch.randn(1, 3, 8, 8))
    assert refuses(traced, torch.randn(1, 3, 9, 9))


class Nested(Padded):
    """Does something else where a large image needs no padding."""

    def forward(self, images):
        height, width = images.shape[1:3]
        if height % 6 == 0 and width % 6 == 0 and height > 40:
            return images * 3
        return super().forward(images)


def test_what_the_given_branch_decides_on_holds_for_its_sizes():
    model = Nested().eval()
    traced = symbolic_trace(model, torch.randn(2, 12, 12, 4))
    for sizes in ((12, 12), (18, 36), (13, 20), (50, 12)):
        assert agrees(traced, model, torch.randn(1, *sizes, 4))
    assert refuses(traced, torch.randn(1, 42, 12, 4))


def test_a_graph_of_another_branch_takes_the_sizes_of_the_given_one_too():
    class Chunks(nn.Module):
        def forward(self, rows):
            return torch.cat([rows[i : i + 4] * i for i in range(0, rows.shape[0], 4)])

    traced = symbolic_trace(Chunks(), torch.randn(7, 2))
    assert all(agrees(traced, Chunks(), torch.randn(rows, 2)) for rows in (5, 6, 7, 8))
    assert refuses(traced, torch.randn(9, 2))


def test_a_branch_that_loops_over_a_larger_image_is_not_taken():
    class Patches(nn.Module):
        def forward(self, images):
            rows = images.shape[2] // 4
            if rows == 2:
                return images * 2
            return torch.cat([images[:, :, 4 * row : 4 * row + 4].sin().cos() for row in range(rows)], 2)

    traced = symbolic_trace(Patches(), torch.randn(2, 3, 8, 8))
    assert len(traced.graph.nodes) < 20
    assert agrees(traced, Patches(), torch.randn(1, 3, 9, 5))


def test_heights_are_fixed_before_parts_stay_whole_for_the_size_of_a_size():
    class Long(nn.Module):
        def forward(self, images):
            rows = sum(images.shape[2] % window for window in range(3, 40))
            return images.new_zeros(images.shape[0], rows) + images.sum()

    traced = symbolic_trace(Long(), torch.randn(2, 3, 8, 8))
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert agrees(traced, Long(), torch.randn(5, 3, 8, 8))
