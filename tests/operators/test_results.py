import operator

import pytest
import torch
import torch.nn.functional as F
from operator_calls import call

from fxlab.operators import (
    casts,
    computes,
    filled_with,
    moves_elements,
    operator_for,
    rounds,
    takes_steps,
    told_dtype,
)

pytestmark = pytest.mark.slow

aten = torch.ops.aten
X = torch.ones(2, 2)


def test_every_operator_of_one_number_whose_result_takes_few_values_takes_steps():
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo.core import UnaryUfuncInfo

    x, seen = torch.linspace(-3.1, 3.2, 401, dtype=torch.float64), 0
    for info in op_db:
        known = operator_for(info.op) if isinstance(info, UnaryUfuncInfo) else None
        if known is None or torch.float64 not in info.dtypes:
            continue
        try:
            result = info.op(x)
        except TypeError:  # some need a weight or a threshold
            continue
        if not isinstance(result, torch.Tensor) or not result.is_floating_point():
            continue
        finite = result[result.isfinite()]
        # The angle of a complex number takes any value.
        is_stepping = 1 < len(finite.unique()) < 20 and known.name != "angle"
        assert takes_steps(known, (x,), {}) == is_stepping, info.name
        seen += is_stepping
    assert seen >= 5


def test_second_names_of_operators_are_those_that_torch_knows():
    from torch.testing._internal.common_methods_invocations import op_db

    pairs = [
        (operator_for(alias.op), operator_for(info.op), alias.name)
        for info in op_db
        for alias in info.aliases
        if hasattr(info.op, "__name__") and hasattr(alias.op, "__name__")
    ]
    wrong = {name for alias, first, name in pairs if alias and first and alias.computes != first.computes}
    assert wrong == {"maximum", "minimum"}  # what `max` of two tensors is, but not `max` of one
    assert len(pairs) > 50


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (operator.truediv, "div"),
        (operator.imul, "mul"),
        (torch.multiply, "mul"),
        (torch.Tensor.__mul__, "mul"),
        (aten.mul.Tensor, "mul"),
        (aten.mul_.Tensor, "mul"),
        ("__rmul__", "mul"),
        ("__and__", "bitwise_and"),
        ("__iand__", "bitwise_and"),
        (operator.floordiv, "floor_divide"),
        (torch.swapaxes, "transpose"),
        (torch.special.expit, "sigmoid"),
        (round, "round"),
        (torch.concat, "cat"),
        (operator.concat, "tuple"),
        ("__index__", "sym_int"),
        (lambda x: x, ""),
    ],
)
def test_all_spellings_have_one_name(target, name):
    assert computes(call(target, X, X)[0]) == name


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "is_rounded"),
    [
        (torch.floor, (X,), {}, True),
        ("round_", (X,), {}, True),
        (operator.mod, (X, 2), {}, True),
        (torch.remainder, (X, 2), {}, True),
        ("frac", (X,), {}, True),
        (aten.fmod.Scalar, (X, 2), {}, True),
        (torch.div, (X, 2), {"rounding_mode": "floor"}, True),
        (aten.div.Tensor_mode, (X, X), {"rounding_mode": "trunc"}, True),
        (torch.div, (X, 2), {"rounding_mode": None}, False),
        ("view", (X, torch.int32), {}, True),
        ("view", (X, 4), {}, False),
        (int, (X,), {}, True),
        (torch.sin, (X,), {}, False),
    ],
)
def test_what_rounds(target, args, kwargs, is_rounded):
    assert rounds(call(target, *args, **kwargs)[0]) is is_rounded


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "dtype"),
    [
        ("long", (X,), {}, torch.int64),
        ("int", (X,), {}, torch.int32),
        ("to", (X, torch.float16), {}, torch.float16),
        ("to", (X, "cpu"), {}, None),
        ("sum", (X,), {"dtype": torch.float64}, torch.float64),
        (aten._to_copy.default, (X,), {"dtype": torch.bfloat16}, torch.bfloat16),
        (aten.to.dtype, (X, torch.int8), {}, torch.int8),
        (F.softmax, (X, -1), {"dtype": torch.float64}, torch.float64),
        (aten.eq.Scalar, (X, 1), {}, torch.bool),
        ("eq_", (X, 1), {}, None),
        (int, (X,), {}, None),
        (torch.argmax, (X,), {}, torch.int64),
        (torch.add, (X, X), {}, None),
        (lambda x: x, (X,), {}, None),
    ],
)
def test_dtypes_that_calls_tell(target, args, kwargs, dtype):
    assert told_dtype(call(target, *args, **kwargs)[0]) == dtype


@pytest.mark.parametrize(
    ("target", "args", "number"),
    [
        (torch.zeros, (3,), 0.0),
        (aten.zeros_like.default, (X,), 0.0),
        ("new_ones", (X, (2,)), 1.0),
        (torch.full, ((2,), 3.5), 3.5),
        ("new_full", (X, (2,), -2.0), -2.0),
        (aten.full_like.default, (X, 4.0), 4.0),
        (torch.empty, (3,), None),
    ],
)
def test_numbers_that_new_tensors_are_filled_with(target, args, number):
    assert filled_with(call(target, *args)[0]) == number


def test_a_view_of_the_bits_as_another_dtype_moves_no_elements():
    assert moves_elements(call("view", X, 4)[0])
    assert moves_elements(call(aten.view.default, X, [4])[0])
    assert not moves_elements(call("view", X, torch.int32)[0])
    assert not moves_elements(call(aten.view.dtype, X, torch.int32)[0])


@pytest.mark.parametrize("target", ["to", "float", "cpu", "type_as", aten._to_copy.default, aten.to.dtype])
def test_casts(target):
    assert casts(call(target, X)[0])
    assert not moves_elements(call(target, X)[0])
