"""The table of output differences."""

import dataclasses
import math
from collections import namedtuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fxlab import compare_outputs, symbolic_trace, verdict
from fxlab.values.tensors import tensors_by_path

Pair = namedtuple("Pair", "left right")


class Returns(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        return self.value(x) if callable(self.value) else self.value


def row(a, b, x=None, **tolerances):
    table = compare_outputs(Returns(a), Returns(b), torch.zeros(1) if x is None else x, **tolerances)
    assert len(table) == 1
    return table.iloc[0]


NUMBERS = st.lists(st.floats(width=32), min_size=3, max_size=3).map(torch.tensor)
EITHER_WAY = [
    "shape", "max_abs_diff", "mean_abs_diff", "max_ulp_diff", "cosine_similarity", "worst_index", "compared",
    "nan_inf_disagreement", "same_bits",
]  # fmt: skip


@given(NUMBERS, NUMBERS)
def test_all_but_what_is_relative_to_the_reference_is_the_same_the_other_way_round(a, b):
    one, other = row(a, b)[EITHER_WAY], row(b, a)[EITHER_WAY]
    assert one.equals(other), f"{one}\n{other}"
    assert row(a, a)["same_bits"]
    assert not row(a, a)["nan_inf_disagreement"]


def test_differences_are_counted_and_measured():
    result = row(torch.tensor([1.0, 2.0, 0.0]), torch.tensor([1.0, 2.5, 0.25]), atol=0.1, rtol=0)
    assert result["max_abs_diff"] == 0.5
    assert result["mean_abs_diff"] == 0.25
    assert result["max_rel_diff"] == 0.25
    assert result["mismatched"] == 2
    assert not result["allclose"]


def test_tolerances_follow_allclose():
    a, b = torch.randn(50), torch.randn(50)
    result = row(a, b, atol=0.3, rtol=0.5)
    expected = torch.isclose(b.double(), a.double(), atol=0.3, rtol=0.5)
    assert result["mismatched"] == int((~expected).sum())


def test_nan_and_infinity_agree_only_with_themselves():
    a = torch.tensor([math.nan, math.inf, -math.inf, math.inf, 1.0])
    b = torch.tensor([math.nan, math.inf, math.inf, 1.0, math.nan])
    result = row(a, b)
    assert result["nan_inf_disagreement"] == 3
    assert result["mismatched"] == 3
    assert math.isnan(result["max_abs_diff"])
    assert (row(a, a)["allclose"], row(a, a)["compared"]) == (True, 1)


def test_another_shape_is_a_row_with_a_note():
    result = row(torch.zeros(2, 3), torch.zeros(3, 2))
    assert result["note"] == "shapes differ: (2, 3) and (3, 2)"
    assert not result["allclose"]
    assert math.isnan(result["max_abs_diff"])


def test_another_dtype_is_a_note_and_not_close():
    result = row(torch.zeros(2), torch.zeros(2, dtype=torch.float64))
    assert result["note"] == "dtypes differ: float32 and float64"
    assert not result["allclose"]


def test_a_missing_tensor_is_a_row():
    table = compare_outputs(
        Returns({"a": torch.ones(1), "b": torch.ones(2)}), Returns({"a": torch.ones(1)}), torch.ones(1)
    )
    assert table.loc["b", "note"] == "only the original returns it"
    assert table.loc["a", "allclose"]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.complex64])
def test_every_dtype_is_compared(dtype):
    ones = torch.ones(3, dtype=dtype)
    assert row(ones, ones)["allclose"]
    assert row(ones, torch.zeros(3, dtype=dtype))["mismatched"] == 3


def test_empty_outputs_have_nothing_to_compare():
    result = row(torch.zeros(0, 4), torch.zeros(0, 4))
    assert not result["allclose"]
    assert result["note"] == "nothing compared: no elements"


def test_inputs_are_not_changed_by_a_model_that_writes_into_them():
    x = torch.ones(3)
    table = compare_outputs(Returns(lambda t: t.add_(1)), Returns(lambda t: t.add_(1)), x)
    assert table.index.tolist() == ["output", "written input x"]
    assert table["allclose"].all()
    assert torch.equal(x, torch.ones(3))


def test_nested_outputs_by_path():
    @dataclasses.dataclass
    class Layer:
        keys: torch.Tensor

    class Cache:
        def __init__(self):
            self.layers = [Layer(torch.ones(1))]
            self.owner = self

    output = {"pair": Pair(torch.ones(1), 2.5), "cache": Cache(), "none": None}
    assert list(tensors_by_path(output)) == ["pair.left", "pair.right", "cache.layers.0.keys"]


@pytest.mark.parametrize(
    ("a", "b", "inputs", "words"),
    [
        ("bert", nn.ReLU(), torch.ones(1), "reference: expected a torch.nn.Module, .* got 'bert'"),
        (nn.ReLU(), None, torch.ones(1), "candidate: expected a torch.nn.Module, .* got None"),
        (nn.ReLU(), nn.ReLU(), "text", "inputs: expected a tensor, .* got 'text'"),
    ],
)
def test_wrong_arguments_are_named(a, b, inputs, words):
    with pytest.raises(TypeError, match=words):
        compare_outputs(a, b, inputs)


@pytest.mark.parametrize("tolerance", [-1.0, math.nan])
def test_a_negative_tolerance_is_refused(tolerance):
    with pytest.raises(ValueError, match="atol: expected a number that is not negative"):
        compare_outputs(nn.ReLU(), nn.ReLU(), torch.ones(1), atol=tolerance)


def test_the_worst_element_is_told():
    a = torch.zeros(2, 3, 4)
    b = a.clone()
    b[1, 0, 2], b[0, 1, 1] = 0.5, -0.25
    assert row(a, b)["worst_index"] == (1, 0, 2)
    b[0, 2, 3] = math.nan
    assert row(a, b)["worst_index"] == (0, 2, 3)
    assert row(a, a)["worst_index"] is None
    assert row(torch.tensor(1.0), torch.tensor(2.0))["worst_index"] == ()


def test_directions_are_compared():
    a = torch.randn(20)
    assert row(a, 3 * a)["cosine_similarity"] == pytest.approx(1)
    assert row(a, -a)["cosine_similarity"] == pytest.approx(-1)
    assert row(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))["cosine_similarity"] == 0
    huge = torch.tensor([1e300, 1e300], dtype=torch.float64)
    assert row(huge, huge)["cosine_similarity"] == pytest.approx(1)
    assert row(torch.zeros(3), torch.zeros(3))["cosine_similarity"] == 1
    assert row(torch.zeros(3), torch.ones(3))["cosine_similarity"] == 0


class ReadsGradients(nn.Module):
    """Computes something else where gradients are on."""

    def forward(self, x):
        return x * 2 if torch.is_grad_enabled() else x * 3


@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
@pytest.mark.parametrize("enabled", [True, False])
def test_a_model_and_a_graph_that_requires_gradients_run_alike(enabled):
    model, x = ReadsGradients(), torch.randn(2, 3)
    with torch.set_grad_enabled(enabled):
        traced = symbolic_trace(model, x)
    for first, second in [(model, traced), (traced, model)]:
        assert compare_outputs(first, second, x)["same_bits"].all()
        assert verdict(first, second, x).status.value == "same bits"
