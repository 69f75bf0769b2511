"""How large a mistake a verdict says could still hide: no larger one ever does."""

import copy
import functools
from dataclasses import asdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn

import fxlab
from fxlab import FuseBatchNorm2dInConv2d, MergeLinears, verdict
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.validation import Status
from fxlab.validation.verdicts.float64_run import run_in_float64
from fxlab.validation.verdicts.judgement import Errors

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


class Folded(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 3)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu()) * 1.5


class Merged(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, x):
        return torch.softmax(self.query(x) @ self.key(x).transpose(-1, -2) * 0.2, -1) @ x


PAIRS = [
    (*each, dtype)
    for each in ((Folded, (2, 3, 8, 8), FuseBatchNorm2dInConv2d), (Merged, (2, 9, 24), MergeLinears))
    for dtype in DTYPES
]


@functools.cache
def _pair(index):
    cls, shape, make, dtype = PAIRS[index]
    torch.manual_seed(0)
    model = cls().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(), module.running_var.uniform_(0.5, 2)
    x = torch.randn(shape).to(dtype)
    original = fxlab.symbolic_trace(model.to(dtype), (x,), check=False)
    return original, make()(share_tensors_copy(original)), x


def _weights(graph):
    return sorted(name for name, parameter in graph.named_parameters() if parameter.dim() > 1)


def _with_mistake(graph, place, size, rows):
    """Return a copy that is off by a factor: in some rows of a weight, or in a number of the graph."""
    wrong = copy.deepcopy(graph)
    numbers = [n for n in wrong.graph.nodes if "mul" in n.name and isinstance(n.args[1], float)]
    names = _weights(wrong)
    place %= len(names) + len(numbers)
    if place < len(names):
        weight = wrong.get_parameter(names[place])
        with torch.no_grad():
            weight[: max(1, round(rows * len(weight)))] *= 1 + size
    else:
        node = numbers[place - len(names)]
        node.args = (node.args[0], node.args[1] * (1 + size))
        wrong.recompile()
    return wrong


def _size_of_mistake(original, right, wrong, x):
    """Return how far a mistake moves the output in float64, relative as the errors of verdicts are."""
    exact, ours, theirs = (run_in_float64(graph, (x,)).output.flatten() for graph in (original, right, wrong))
    magnitudes = exact.abs()
    scale = magnitudes.clamp(min=magnitudes[magnitudes > 0].median())
    return float(((theirs - ours) / scale).square().mean().sqrt())


@settings(max_examples=15)
@given(
    st.sampled_from(range(len(PAIRS))),
    st.integers(0, 9),
    st.floats(-14, -0.5),
    st.sampled_from([0.1, 0.5, 1.0]),
)
def test_a_mistake_larger_than_what_could_hide_is_always_reported(pair, place, exponent, rows):
    original, right, x = _pair(pair)
    wrong = _with_mistake(right, place, 10**exponent, rows)
    found = verdict(original, wrong, x)
    mistake = _size_of_mistake(original, right, wrong, x)
    assert found.status != Status.WITHIN_ROUNDING or mistake <= found.hidden, (mistake, found)


@pytest.mark.often(3)
@pytest.mark.parametrize("pair", range(len(PAIRS)))
def test_what_could_hide_is_no_idle_number(pair):
    # A mistake in the graph, ten times what the correct model says could hide, is found.
    original, right, x = _pair(pair)
    correct = verdict(original, right, x)
    assert correct.agrees
    if correct.status == Status.SAME_BITS:
        assert correct.hidden is None  # no float64 run was made
        return
    numbers = [node for node in right.graph.nodes if "mul" in node.name and isinstance(node.args[1], float)]
    wrong = _with_mistake(right, len(_weights(right)) + len(numbers) - 1, 10 * correct.hidden, 1)
    assert verdict(original, wrong, x).status == Status.DIFFERENT
    # And it is far below what the outputs could tell without float64, unless new values had to be rounded.
    errors = correct.outputs["output"].errors
    assert errors.new_values > 0 or correct.hidden < errors.own / 1000


def test_the_table_and_the_words_have_it():
    original, right, x = _pair(0)
    found = verdict(original, right, x)
    assert found.table.loc["output", "hidden"] == found.hidden == found.outputs["output"].hidden > 0
    assert "; a mistake of more than " in found.reason
    assert found.reason.endswith("would show")
    wrong = verdict(original, _with_mistake(right, 0, 0.5, 1), x)
    assert wrong.hidden is None
    assert wrong.table["hidden"].isna().all()


def test_the_worst_of_the_outputs_with_other_bits_counts():
    x = torch.randn(64)

    def graph_of(first):
        class Two(nn.Module):
            def forward(self, x):
                return x + 1, first(x)

        return fx.symbolic_trace(Two())

    found = verdict(graph_of(lambda x: (x / 3) / 3), graph_of(lambda x: x / 9), x)
    assert found.outputs["0"].hidden is None
    assert found.hidden == found.outputs["1"].hidden > 0
    assert "hidden" not in asdict(found)
    same = verdict(graph_of(torch.sin), graph_of(torch.sin), x)
    assert same.hidden is None


@pytest.mark.parametrize("pair", range(len(PAIRS)))
def test_each_node_has_its_own(pair):
    original, right, x = _pair(pair)
    table = fxlab.compare_nodes(original, right, x, judge=True)
    assert list(table)[:-3] == list(fxlab.compare_nodes(original, right, x))
    assert set(table["status"]) <= {Status.SAME_BITS, Status.WITHIN_ROUNDING}
    rounded = table["status"] == Status.WITHIN_ROUNDING
    assert (table.loc[rounded, "hidden"] > 0).all()
    assert table.loc[~rounded, "hidden"].isna().all()
    assert (table.loc[table["introduced"] == 0, "status"] == Status.SAME_BITS).all()


def test_the_first_node_that_is_different_is_where_the_models_diverge():
    original, right, x = _pair(0)
    wrong = _with_mistake(right, 0, 0.5, 1)
    found = fxlab.first_divergence(original, wrong, x)
    table = fxlab.compare_nodes(original, wrong, x, judge=True)
    different = table[table["status"] == Status.DIFFERENT]
    assert (different.index[0], different["reason"].iloc[0]) == (found.node, found.judgement.reason)
    assert different["hidden"].isna().all()


def test_without_a_float64_run_as_much_could_hide_as_counts_as_rounding():
    errors = Errors(1e-7, 2e-7, 0.0, 0.0, 0.0, last_rounding=3e-7, float64=0.0, lacks_float64=True)
    assert errors.hidden == pytest.approx(2e-7 + 4 * 3e-7)
