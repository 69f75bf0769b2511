"""``len`` and ``range`` of symbolic sizes, and inputs of which there are none."""

import functools
import sys
from types import ModuleType

import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab import symbolic_trace


class Counts(nn.Module):
    def forward(self, x):
        return x.reshape(len(x), -1) * len(x) + torch.arange(len(x[0])).sum() + len([1, 2]) + len("abc")


class Loops(nn.Module):
    def forward(self, x):
        return sum(x[i] for i in range(len(x)))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.masks = {}

    def forward(self, x):
        key = tuple(x.shape[1:])
        if key not in self.masks:
            self.masks[key] = torch.ones(key)
        return x + self.masks[key]


class LooksUp(nn.Module):
    def forward(self, x):
        return x * {3: 1.5, 4: 2.0}.get(x.shape[1], 5.0) + len({x.shape[1], 3, 4})


class Cached(nn.Module):
    @staticmethod
    @functools.lru_cache
    def ones(count):
        return torch.ones(count, 1)

    def forward(self, x):
        return x + self.ones(x.shape[1])


@pytest.mark.parametrize("module", [Masked(), LooksUp(), Cached()], ids=lambda module: type(module).__name__)
def test_a_size_that_a_model_looks_up_is_fixed_and_others_are_not(module):
    with pytest.warns(UserWarning, match="fixed at 3"):
        traced = symbolic_trace(module, torch.randn(2, 3, 4))
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert vars(module).get("masks", {}) == {}
    assert_agree(traced, module, (torch.randn(5, 3, 4),))
    with pytest.raises(AssertionError, match=r"traced for x.shape\[1\] == 3"):
        traced(torch.randn(2, 6, 4))


FLATTENED = """
import functools
@functools.lru_cache
def flat(shape):
    return shape[0] * shape[1], shape[2]
def flattened(x):
    try:
        return x.reshape(flat(tuple(x.shape)))
    except TypeError:
        return x.reshape(flat.__wrapped__(tuple(x.shape)))
"""


def test_a_cache_in_a_file_that_knows_nothing_of_torch_keeps_no_size(monkeypatch):
    helper = ModuleType("helper")
    monkeypatch.setitem(sys.modules, "helper", helper)
    exec(compile(FLATTENED, "helper.py", "exec"), vars(helper))
    module, x = Chunks(), torch.randn(2, 3, 4)
    module.forward = lambda x: helper.flattened(x)
    traced = symbolic_trace(module, {"x": x})
    assert module(x).shape == (6, 4)
    assert_agree(traced, module, {"x": torch.randn(5, 6, 7)})


class Chunks(nn.Module):
    def forward(self, x):
        parts = [x[start : start + 4] * start for start in range(0, x.shape[0], 4)]
        ends = [min(x.shape[0], stop) for stop in range(x.shape[0], 0, -1)][:1]
        return torch.cat(parts) + len(range(1, 3)) + ends[0] + sum(range(x.shape[0], x.shape[0] + 2))


def test_a_range_fixes_how_many_numbers_it_has_and_not_where_it_ends():
    module = Chunks()
    traced = symbolic_trace(module, (torch.randn(7, 2),), check=False)
    assert_agree(traced, module, (torch.randn(7, 3),))
    module.forward = lambda x: torch.cat([x[i : i + 4] * i for i in range(0, x.shape[0], 4)])
    traced = symbolic_trace(module, {"x": torch.randn(7, 2)})
    for rows in (5, 6, 8):
        assert_agree(traced, module, {"x": torch.randn(rows, 2)})
    for rows in (3, 4, 9):
        with pytest.raises(AssertionError, match=r"traced for .*test_python_builtins"):
            traced(torch.randn(rows, 2))


@pytest.mark.parametrize(
    "number", [lambda x: int(torch.tensor(x.shape[0])), lambda x: int(torch.arange(x.shape[0])[-1])]
)
def test_a_size_that_is_read_out_of_a_tensor_is_held(number):
    class Reads(nn.Module):
        def forward(self, x):
            return x * sum(i * i for i in range(number(x)))

    with pytest.warns(UserWarning, match="test_python_builtins"):
        traced = symbolic_trace(Reads(), (torch.randn(3, 4),))
    assert_agree(traced, Reads(), (torch.randn(3, 4),))
    with pytest.raises(AssertionError, match="traced for"):
        traced(torch.randn(5, 4))


def test_attention_takes_a_flag_that_is_made_of_a_size():
    class Causal(nn.Module):
        def forward(self, x):
            attend = nn.functional.scaled_dot_product_attention
            return attend(x, x, x, is_causal=x.shape[2] > 1)

    before = nn.functional.scaled_dot_product_attention
    traced = symbolic_trace(Causal(), (torch.randn(2, 2, 5, 4),))
    assert nn.functional.scaled_dot_product_attention is before
    assert traced.meta["trace"].rung == "dynamic shapes"
    for length in (7, 1):
        assert_agree(traced, Causal(), (torch.randn(3, 2, length, 4),))


def test_python_s_own_are_there_again():
    symbolic_trace(Counts(), (torch.randn(3, 4),))
    assert not {"len", "range"} & globals().keys()


def test_inputs_without_any_element_keep_the_others_dynamic():
    class Joins(nn.Module):
        def forward(self, x, y):
            return torch.cat((x, y), dim=1) @ x.new_ones(4, 2)

    traced = symbolic_trace(Joins(), (torch.randn(3, 4), torch.randn(3, 0)))
    assert traced.meta["trace"].rung == "dynamic shapes"
    assert_agree(traced, Joins(), (torch.randn(5, 4), torch.randn(5, 0)))
    with pytest.raises(AssertionError, match=r"y\.shape\[1\] = 0"):
        traced(torch.randn(3, 2), torch.randn(3, 2))


@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")  # of the branch
@pytest.mark.parametrize(
    "cut",
    [
        lambda x, n: x[: int(n.max())],
        lambda x, n: x[: int(n.float().mean())],
        lambda x, n: x * float(n.float().mean()),
        lambda x, n: x if float(n.max()) < 9 else x / 2,
        lambda x, n: x[:, : isinstance(int(n[0]), int) + 1],
    ],
)
def test_numbers_that_are_read_out_of_tensors_are_followed(cut):
    class Cuts(nn.Module):
        def forward(self, x, n):
            return cut(x, n)

    traced = symbolic_trace(Cuts(), (torch.randn(7, 2), torch.tensor([4, 2])), check=False)
    for lengths in ([2, 1], [5, 5]):
        assert_agree(traced, Cuts(), (torch.randn(7, 2), torch.tensor(lengths)))
