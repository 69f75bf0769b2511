"""Python's arithmetic on sizes, followed in the graph."""

import math
import operator

import numpy as np
import pytest
import torch
from agreement import assert_agree, outcome
from torch import nn

from fxlab import TraceWarning, symbolic_trace
from fxlab.tracing.shapes import asked_sizes, fake_inputs

ARITHMETIC = {
    "floor": lambda n: math.floor(n / 3),
    "ceil": lambda n: math.ceil(n / 3),
    "round": lambda n: round(n / 3),
    "round half": lambda n: round(n / 2),
    "max": lambda n: max(n, 4),
    "modulo": lambda n: n % 4,
    "divmod": lambda n: sum(divmod(n, 5)),
    "floor division": lambda n: (n + 2) // 3,
    "power": lambda n: n**2,
    "difference": lambda n: n - 2,
    "remainder of a half": lambda n: n + (n % 0.5 != 0),
    "remainder of a quarter": lambda n: n + (2 * n % 0.25 != 0),
    "int of a quotient": lambda n: int(n / 3),
    "square root": lambda n: int(n**0.5),
    "math.sqrt": lambda n: int(math.sqrt(n)),
    "int of a product": lambda n: int(float(n) * 1.5),
    "int of a size, which it is": lambda n: int(n) + isinstance(n, int),
    "ints of sizes": lambda n: sum(map(int, (n, n / 2))),
}
FIXED_BY_PYTHON = {
    "an index": lambda n: operator.index(n // 3),
    "a logarithm": lambda n: int(math.log2(n)),
    "a branch": lambda n: min(n // 2, 7),
    "remainder of a tenth": lambda n: n + int(n % 0.1 > 0.05),
}
"""What must return a number of Python's, so there Python itself asks which one it is."""


class Sized(nn.Module):
    def __init__(self, arithmetic):
        super().__init__()
        self.arithmetic = arithmetic

    def forward(self, x):
        size = self.arithmetic(x.shape[1])
        return x.new_zeros(2, size) + 1, x * size


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_on_sizes_is_followed(name):
    model = Sized(ARITHMETIC[name])
    traced = symbolic_trace(model, (torch.randn(3, 12),))
    assert traced.meta["trace"].rung == "dynamic shapes"
    for length in (12, 5, 9, 17):
        assert_agree(traced, model, (torch.randn(2, length),))


@pytest.mark.parametrize("name", FIXED_BY_PYTHON)
@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
def test_arithmetic_that_fixes_a_size_is_right_or_refused(name):
    model = Sized(FIXED_BY_PYTHON[name])
    traced = symbolic_trace(model, (torch.randn(3, 12),), check=False)
    assert_agree(traced, model, (torch.randn(3, 12),))
    for length in (5, 11, 13, 17):
        with torch.no_grad():
            refused = outcome(traced, torch.randn(3, length))[1]
        assert refused is None or "x.shape[1]" in str(refused) or "x of shape (3, 12)" in str(refused)
        if refused is None:
            assert_agree(traced, model, (torch.randn(2, length),))


@pytest.mark.parametrize("number", [np.float64(0.1), np.float32(0.1), np.int64(3), np.bool_(True)])
def test_numbers_of_numpy_are_plain_numbers_in_the_graph(number):
    class Scaled(nn.Module):
        def forward(self, x):
            return x * number

    traced = symbolic_trace(Scaled(), (torch.randn(2, 3),))
    assert "np." not in traced.code
    assert_agree(traced, Scaled(), (torch.randn(4, 3),))


class Windows(nn.Module):
    """Windows of seven, padded and put together again, a few times over."""

    def forward(self, x):
        for _ in range(4):
            batch, height, width, channels = x.shape
            padded = nn.functional.pad(x, (0, 0, 0, -width % 7, 0, -height % 7))
            rows, columns = padded.shape[1] // 7, padded.shape[2] // 7
            windows = (
                padded.view(batch, rows, 7, columns, 7, channels).transpose(2, 3).reshape(-1, 49, channels)
            )
            windows = windows.softmax(1)
            count = windows.shape[0] // (rows * columns)
            x = (
                windows.view(count, rows, columns, 7, 7, -1)
                .transpose(2, 3)
                .reshape(count, rows * 7, -1, channels)
            )
            x = x[:, ::2, ::2]
        return x


@pytest.mark.weekly
def test_sizes_that_take_too_much_arithmetic_are_given_up_and_said():
    with pytest.warns(TraceWarning, match=r"x.shape\[1\] fixed at 40"):
        traced = symbolic_trace(Windows(), (torch.randn(2, 40, 33, 4),))
    report = traced.meta["trace"]
    assert (report.rung, report.steps_down) == ("dynamic shapes", ())
    fixed = findings(traced, "fixed size")
    assert (fixed["x.shape[1]"], fixed["x.shape[2]"]) == ("costly-size", "costly-size")
    assert not report.of_kind("branch on a size"), "what is decided on fixed sizes needs no check"
    assert_agree(traced, Windows(), (torch.randn(5, 40, 33, 4),))
    for shape in ((2, 41, 33, 4), (2, 40, 34, 4)):
        with pytest.raises(AssertionError, match=r"traced for x.shape\[[12]\] = \d+ only"):
            traced(torch.randn(shape))


class Patches(nn.Module):
    """Has positions for a number of patches, which several heights and widths give."""

    def __init__(self, of_any_even_size=False):
        super().__init__()
        self.convolutions = nn.Sequential(*(nn.Conv2d(2, 2, 3, stride=2, padding=1) for _ in range(3)))
        self.positions = nn.Parameter(torch.randn(20, 2))
        self.of_any_even_size = of_any_even_size

    def forward(self, x):
        x = self.convolutions(x)
        if self.of_any_even_size:
            return x.unflatten(2, (-1, 2)).flatten(2).softmax(2)
        return (x.flatten(2).transpose(1, 2) + self.positions).softmax(1)


@pytest.fixture
def counted_soon(monkeypatch):
    monkeypatch.setattr(asked_sizes, "LARGE_EXPRESSION", 1)
    monkeypatch.setattr(fake_inputs, "FREE_OPERATIONS", 10**6)


def test_sizes_of_which_the_model_takes_few_others_are_given_up(counted_soon):
    model = Patches()
    traced = symbolic_trace(model, (torch.randn(2, 2, 40, 32),))
    assert findings(traced, "fixed size") | {"x.shape[1]": "fixed-size"} == {
        "x.shape[1]": "fixed-size",
        "x.shape[2]": "narrow-size",
        "x.shape[3]": "narrow-size",
    }
    assert_agree(traced, model, (torch.randn(5, 2, 40, 32),))
    assert model(torch.randn(2, 2, 39, 32)).shape == (2, 20, 2)
    with pytest.raises(AssertionError, match=r"traced for x.shape\[2\] = 40 only"):
        traced(torch.randn(2, 2, 39, 32))


def test_sizes_of_which_the_model_takes_many_others_are_followed(counted_soon):
    model = Patches(of_any_even_size=True)
    traced = symbolic_trace(model, (torch.randn(2, 2, 48, 32),))
    assert "narrow-size" not in findings(traced, "fixed size").values()
    assert_agree(traced, model, (torch.randn(3, 2, 80, 24),))


def test_sizes_on_which_the_model_branches_are_followed(counted_soon):
    class Interpolates(Patches):
        def forward(self, x):
            x = self.convolutions(x)
            count = x.shape[2] * x.shape[3]
            positions = self.positions if count == 20 else self.positions.mean(0, keepdim=True)
            return (x.flatten(2).transpose(1, 2) + positions).softmax(1)

    traced = symbolic_trace(Interpolates(), (torch.randn(2, 2, 40, 32),))
    assert traced.meta["trace"].of_kind("branch on a size")
    assert "narrow-size" not in findings(traced, "fixed size").values()


@pytest.fixture
def soon_given_up(monkeypatch):
    monkeypatch.setattr(asked_sizes, "LARGE_EXPRESSION", 1)
    monkeypatch.setattr(fake_inputs, "FREE_OPERATIONS", 60)
    monkeypatch.setattr(fake_inputs, "OPERATIONS_PER_CALL", 0)


def test_the_graph_has_numbers_for_the_sizes_that_were_given_up(soon_given_up):
    class Grid(nn.Module):
        def forward(self, x):
            height, width = x.shape[1] // 2, x.shape[2] // 2
            x = x.unflatten(1, (height, 2)).flatten(1, 2)
            return x[:, ::3, 1::2].softmax(1) * width

    with pytest.warns(TraceWarning, match="fixed at 34"):
        traced = symbolic_trace(Grid(), (torch.randn(2, 40, 34, 4),))
    assert findings(traced, "fixed size")["x.shape[2]"] == "costly-size"
    (unflatten,) = traced.graph.find_nodes(op="call_method", target="unflatten")
    assert unflatten.args[2] == (20, 2)
    (product,) = traced.graph.find_nodes(op="call_function", target=operator.mul)
    assert product.args[1] == 17
    assert_agree(traced, Grid(), (torch.randn(3, 40, 34, 4),))


@pytest.mark.weekly
def test_lengths_are_followed_beside_images_that_are_given_up(soon_given_up):
    class Both(nn.Module):
        def forward(self, ids, image):
            rows = image[:, 1::3].flatten(1, 2)[:, ::5]
            return ids.cumsum(1)[:, 2:] + rows.softmax(1).sum((1, 2)).unsqueeze(1)

    with pytest.warns(TraceWarning, match=r"image.shape\[1\] fixed at 40"):
        traced = symbolic_trace(Both(), (torch.randn(2, 7), torch.randn(2, 40, 33, 4)))
    assert_agree(traced, Both(), (torch.randn(3, 11), torch.randn(3, 40, 33, 4)))


class Beside(nn.Module):
    """Puts what it makes of an image, which has two rows of patches, among the numbers of each item."""

    def __init__(self, one_by_one):
        super().__init__()
        self.one_by_one = one_by_one

    def forward(self, numbers, patches):
        if len(patches) != 2 * len(numbers):
            raise ValueError("each item has two rows of patches")
        images = patches.view(numbers.shape[0], -1)
        if self.one_by_one:
            images = torch.stack([image.exp() for image in images])
        return numbers + images.sum(1, keepdim=True)


def findings(traced, kind):
    return {f.what: f.code for f in traced.meta["trace"].findings if f.kind == kind}


def test_inputs_with_several_rows_for_each_item_are_checked_at_a_larger_batch():
    traced = symbolic_trace(Beside(one_by_one=False), (torch.randn(3, 5), torch.randn(6, 4)))
    assert findings(traced, "check")["a larger batch"] == "same-bits"
    assert_agree(traced, Beside(one_by_one=False), (torch.randn(4, 5), torch.randn(8, 4)))


class Marked(nn.Module):
    """Wants as many marks in front as there are images, whatever follows."""

    def forward(self, ids, images):
        if int((ids == 1).sum()) != images.shape[0] * images.shape[1]:
            raise ValueError("marks and images do not match")
        return ids.cumsum(1) + images.sum()


@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
def test_where_a_longer_text_must_not_begin_anew_it_goes_on_from_its_end():
    ids = torch.tensor([[1, 1, 7, 8, 9, 6], [1, 1, 5, 6, 7, 8]])
    traced = symbolic_trace(Marked(), (ids, torch.randn(2, 2, 3)))
    outcomes = {what: code for what, code in findings(traced, "check").items() if "ids.shape[1] = 7" in what}
    assert set(outcomes.values()) == {"same-bits"}
