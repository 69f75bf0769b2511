import operator

import pytest
import torch
import torch.nn.functional as F
from operator_calls import call
from torch.fx import Graph, Node

from fxlab.operators import (
    may_alias,
    operator_of,
    reads_layout,
    returns_number,
    why_not_pure,
    written_arguments,
)

pytestmark = pytest.mark.slow


X = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "written"),
    [
        ("add_", (X, 1), {}, 1),
        ("__setitem__", (X, 0, 1.0), {}, 1),
        ("__idiv__", (X, 2.0), {}, 1),
        ("append", (X, 1), {}, 1),
        (operator.iadd, (X, 1), {}, 1),
        (operator.setitem, (X, 0, 1.0), {}, 1),
        (F.leaky_relu, (X, 0.1), {}, 0),
        (F.leaky_relu, (X, 0.1, True), {}, 1),
        (F.relu, (X,), {"inplace": True}, 1),
        (F.batch_norm, (X, X + 1, X + 2), {"training": True}, 2),
        (F.batch_norm, (X, X + 1, X + 2), {}, 0),
        (F.embedding, (X.long(), X), {"max_norm": 1.0}, 1),
        (torch.add, (X, 1), {"out": X + 1}, 1),
        (torch.ops.aten.add_.Tensor, (X, X + 1), {}, 1),
        (torch.ops.aten.native_batch_norm.default, (X, None, None, X + 1, X + 2, True, 0.1, 1e-5), {}, 2),
        (torch.ops.aten.native_batch_norm.default, (X, None, None, X + 1, X + 2, False, 0.1, 1e-5), {}, 0),
        (lambda x: x, (X,), {}, 1),
        (torch.nn.init.zeros_, (X,), {}, 1),
    ],
)
def test_what_a_call_writes(target, args, kwargs, written):
    node, _ = call(target, *args, **kwargs)
    assert len(written_arguments(node)) == written
    assert not written or why_not_pure(node)


@pytest.mark.parametrize(
    ("target", "args", "aliases"),
    [
        (torch.add, (X, 1), False),
        (operator.truediv, (X, 2), False),
        (F.linear, (X, X + 1), False),
        (torch.ops.aten.addmm.default, (X, X, X), False),
        (torch.ops.aten.t.default, (X,), True),
        (torch.ops.aten._unsafe_view.default, (X, (4,)), True),
        ("transpose", (X, 0, 1), True),
        ("float", (X,), True),
        ("type_as", (X, X + 1), True),
        ("size", (X,), False),
        (getattr, (X, "shape"), False),
        (getattr, (X, "T"), True),
        (max, (X, 1), True),
        (torch.max, (X,), False),
        (operator.concat, ([X], [X]), True),
        (torch.sparse_coo_tensor, (X, X), True),
        (F.dropout, (X, 0.5, False), True),
        (torch.distributed.gather if torch.distributed.is_available() else print, (X,), True),
    ],
)
def test_what_shares_memory_with_its_arguments(target, args, aliases):
    assert may_alias(call(target, *args)[0]) is aliases


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "code"),
    [
        (F.scaled_dot_product_attention, (X, X, X), {}, None),
        (F.scaled_dot_product_attention, (X, X, X, None, 0.1), {}, "random"),
        (F.dropout, (X,), {"training": False}, None),
        (F.dropout, (X,), {}, "random"),
        (torch.ops.aten.bernoulli.default, (X,), {}, "random"),
        (torch.empty, (3,), {}, "uninitialised-memory"),
        (torch.ops.aten._assert_async.default, (X,), {}, "side-effects"),
        ("backward", (X,), {}, "may-have-side-effects"),
        ("stft", (X, 2), {}, None),
        (torch.fft.rfft, (X,), {}, None),
        (torch.linalg.norm, (X,), {}, None),
        (torch.special.expit, (X,), {}, None),
        (getattr, (X, "shape"), {}, None),
        (getattr, (X, "grad"), {}, "may-have-side-effects"),
        (torch.save, (X, "file"), {}, "may-have-side-effects"),
    ],
)
def test_why_a_call_is_not_pure(target, args, kwargs, code):
    found = why_not_pure(call(target, *args, **kwargs)[0])
    assert code == (found and found.code)


def test_numbers_and_layouts():
    assert returns_number(call("size", X)[0])
    assert returns_number(call(getattr, X, "shape")[0])
    assert not returns_number(call("sum", X)[0])
    assert reads_layout(call("stride", X)[0])
    assert not reads_layout(call("size", X)[0])


def test_a_node_that_calls_nothing_has_no_operator():
    graph = Graph()
    x = graph.placeholder("x")
    assert isinstance(x, Node)
    assert operator_of(x) is None
