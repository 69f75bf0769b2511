"""Sizes that are padded to windows are written shortly, and are the numbers that they were."""

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from fxlab import symbolic_trace
from fxlab.tracing.shapes.asked_sizes import padded_size

SIZE, OTHER = sympy.symbols("size other", positive=True, integer=True)
INNER = FloorDiv(SIZE - 1, 2) + 1


@pytest.mark.parametrize(
    "total",
    [
        SIZE + Mod(7 - Mod(SIZE, 7), 7),
        SIZE + PythonMod(-SIZE, 7),
        INNER + PythonMod(7 - PythonMod(INNER, 7), 7),
        SIZE + 3 * OTHER + PythonMod(-SIZE - 3 * OTHER, 4),
    ],
    ids=str,
)
def test_a_padded_size_is_a_multiple_of_its_window(total):
    shorter = padded_size(total)
    assert not shorter.has(Mod, PythonMod)
    for size in range(1, 60):
        values = {SIZE: size, OTHER: 5}
        assert shorter.subs(values) == total.subs(values)


@pytest.mark.parametrize(
    "total",
    [SIZE + Mod(SIZE, 7), SIZE + PythonMod(1 - SIZE, 7), OTHER + PythonMod(-SIZE, 7), SIZE + OTHER],
    ids=str,
)
def test_other_sums_stay(total):
    assert padded_size(total) == total


class Windows(nn.Module):
    """Pads to windows, computes in them and takes the padding away, at two scales."""

    def __init__(self, missing):
        super().__init__()
        self.linear, self.missing = nn.Linear(4, 4), missing

    def forward(self, images):
        for window in (7, 5):
            batch, height, width, channels = images.shape
            down, right = (self.missing(size, window) for size in (height, width))
            padded = F.pad(images, (0, 0, 0, right, 0, down))
            rows, columns = padded.shape[1] // window, padded.shape[2] // window
            parts = padded.view(batch, rows, window, columns, window, channels)
            parts = self.linear(parts.transpose(2, 3).reshape(-1, window * window, channels))
            parts = parts.view(batch, rows, columns, window, window, channels).transpose(2, 3)
            merged = parts.reshape(batch, rows * window, columns * window, channels)
            images = merged[:, :height, :width][:, ::2, ::2]
        return images


@pytest.mark.weekly
def test_windows_in_windows_are_followed():
    model = Windows(lambda size, window: (window - size % window) % window).eval()
    traced = symbolic_trace(model, torch.randn(2, 24, 31, 4))
    assert not traced.meta["trace"].limits()
    for height, width in ((28, 35), (23, 50), (9, 8)):
        images = torch.randn(1, height, width, 4)
        assert torch.equal(traced(images), model(images))
