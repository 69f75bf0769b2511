"""What is known of operators, against what they do in the samples that torch tests them with."""

import pytest
import torch
from operator_calls import Run, call, torchs_own_calls
from torch.utils import _pytree as pytree

from fxlab.operators import (
    draws_random_numbers,
    may_alias,
    moves_elements,
    operator_of,
    takes_any_strides,
    told_dtype,
    why_not_pure,
    written_arguments,
)
from fxlab.values.tensors import storage_of

pytestmark = [pytest.mark.slow, pytest.mark.weekly]


@pytest.fixture(scope="module")
def runs():
    """Some 1,500 calls of 500 operators."""
    found = []
    for function, args, kwargs in torchs_own_calls():
        node, given = call(function, *args, **kwargs)
        tensors = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
        versions, generator = [t._version for t in tensors], torch.get_rng_state()
        try:
            result = function(*args, **kwargs)
        except Exception:  # what needs a library that this torch was built without
            continue
        written = {given[id(t)] for t, v in zip(tensors, versions, strict=True) if t._version != v}
        drew = not torch.equal(generator, torch.get_rng_state())
        found.append(Run(function, node, args, kwargs, result, written, drew))
    assert len(found) > 1_000
    return found


def storages(values):
    leaves = [v for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor) and not v.is_nested]
    return {storage_of(v) for v in leaves if v.layout is torch.strided and v.numel()}


@pytest.mark.filterwarnings("ignore")
def test_nothing_that_torchs_own_samples_do_is_missed(runs):
    """Memory shared, arguments written and random numbers drawn."""
    wrong, pure = [], 0
    for run in runs:
        node = run.node
        is_shared = storages(run.result) & storages((run.args, run.kwargs))
        if is_shared and not (may_alias(node) or written_arguments(node)):
            wrong.append(f"{run.name} returns memory of its arguments")
        if not run.written <= set(written_arguments(node)):
            wrong.append(f"{run.name} writes its arguments")
        if run.drew and not draws_random_numbers(node):
            wrong.append(f"{run.name} draws random numbers")
        pure += not why_not_pure(node)
        if not why_not_pure(node) and (run.written or run.drew):
            wrong.append(f"{run.name} is not pure")
    assert not wrong
    assert pure > 0.8 * len(runs)


def elements(tensors):
    """Return the elements of tensors, as texts so that a nan is one of them."""
    return {str(complex(v)) for t in tensors for v in t.detach().resolve_conj().flatten().tolist()}


def strided(values):
    leaves = pytree.tree_leaves(values)
    return [
        v for v in leaves if isinstance(v, torch.Tensor) and v.layout is torch.strided and not v.is_nested
    ]


def test_what_moves_elements_returns_none_but_those_of_its_first_argument(runs):
    moving = [run for run in runs if moves_elements(run.node)]
    wrong = [
        run.name
        for run in moving
        if not elements(strided(run.result)) <= elements(strided(run.args[0])) | {str(0j)}
    ]
    assert not wrong
    assert len({run.name for run in moving}) > 50


def test_a_dtype_that_is_told_is_that_of_the_result(runs):
    told = [run for run in runs if told_dtype(run.node) is not None and isinstance(run.result, torch.Tensor)]
    assert not [run.name for run in told if told_dtype(run.node) != run.result.dtype]
    assert len({run.name for run in told}) > 20


def test_every_pointwise_operator_that_returns_truth_values_of_numbers_is_known_for_it(runs):
    missed = {
        run.name
        for run in runs
        if operator_of(run.node).is_pointwise
        and all(isinstance(t, torch.Tensor) and t.dtype == torch.bool for t in pytree.tree_leaves(run.result))
        and any(t.is_floating_point() for t in strided(run.args))
        and told_dtype(run.node) != torch.bool
    }
    assert not missed


def with_other_strides(value):
    if not isinstance(value, torch.Tensor) or not value.dim() or value.layout is not torch.strided:
        return value
    wide = torch.cat([value.detach(), value.detach()], -1)
    return wide[..., : value.shape[-1]]


@pytest.mark.filterwarnings("ignore")
def test_what_takes_any_strides_returns_the_same_whatever_they_are(runs):
    taking = [run for run in runs if may_alias(run.node) and takes_any_strides(operator_of(run.node))]
    for run in taking:
        if run.drew or run.written:
            continue
        again = run.function(with_other_strides(run.args[0]), *run.args[1:], **run.kwargs)
        for expected, found in zip(strided(run.result), strided(again), strict=True):
            assert torch.equal(expected, found), run.name
    assert len({run.name for run in taking}) > 30


def test_a_number_that_an_operator_takes_may_be_in_a_tensor(runs):
    taking = set()
    for run in runs:
        operator = operator_of(run.node)
        places = [p for p, value in enumerate(run.args) if type(value) is int and operator.takes_number(p)]
        if run.drew or run.written or not places or "empty" in run.name:
            continue
        args = [torch.tensor(value) if p in places else value for p, value in enumerate(run.args)]
        try:
            found = run.function(*args, **run.kwargs)
        except TypeError:  # a function in Python that wants a number as it is
            continue
        for expected, other in zip(strided(run.result), strided(found), strict=True):
            assert torch.equal(expected.nan_to_num(), other.nan_to_num()), run.name
        taking.add(run.name)
    assert len(taking) > 40


def test_where_an_operator_takes_a_tensor_it_takes_no_number_alone(runs):
    wrong = {
        run.name
        for run in runs
        for place, value in enumerate(run.args)
        if isinstance(value, torch.Tensor) and operator_of(run.node).takes_number(place)
    }
    assert not wrong


def test_operators_that_take_indices_are_given_whole_numbers_or_a_mask_in_torchs_samples(runs):
    taking = [run for run in runs if operator_of(run.node).takes_indices]
    assert {run.name for run in taking} >= {"index_select", "gather", "take", "take_along_dim", "scatter_add"}
    for run in taking:
        dtypes = {
            tensor.dtype
            for tensor in pytree.tree_leaves((run.args[1:], run.kwargs))
            if isinstance(tensor, torch.Tensor)
        }
        assert dtypes & {torch.int64, torch.int32, torch.bool} or not dtypes, run.name
