"""Dynamo's capture is compared with the model's own run."""

import pytest
import torch
from torch import nn

import fxlab


class ComputesOtherwise(nn.Module):
    """Another function where Dynamo captures it: a stand-in for its mistakes."""

    def __init__(self, captured, own):
        super().__init__()
        self.captured, self.own = captured, own
        self.layer = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        x = self.layer(x)
        return self.captured(self, x) if torch.compiler.is_compiling() else self.own(self, x)


def counted(by):
    def count(model, x):
        model.calls += by
        return x

    return count


def test_a_capture_that_is_another_function_is_a_remark_and_the_verdict():
    model = ComputesOtherwise(lambda _, x: x.sin(), lambda _, x: x.cos())
    session = fxlab.compiler.compile_session(model, torch.ones(2, 3))
    assert session.verdict().different
    assert session.verdict("capture").different
    assert "Dynamo's capture is not what the model computes" in session.remarks[0]


def test_a_capture_that_writes_otherwise_is_seen():
    model = ComputesOtherwise(counted(1), counted(2))
    assert fxlab.compiler.compile_session(model, torch.ones(2, 3)).verdict().different
    assert float(model.calls) == 0


def test_a_capture_without_gradients_is_seen_in_training():
    model = ComputesOtherwise(lambda _, x: x.detach() * 2, lambda _, x: x * 2)
    assert fxlab.compiler.compile_session(model, torch.ones(2, 3), training=True).verdict().different


def test_a_right_capture_is_the_same_bits_also_with_random_numbers():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout())
    session = fxlab.compiler.compile_session(model, torch.ones(2, 3), training=True)
    assert session.verdict("capture").same_bits
    assert session.verdict().agrees
    assert not session.remarks


@pytest.mark.weekly
def test_functions_of_torch_func_that_are_kept_leave_later_compiles_alone():
    class Plain(nn.Module):
        def forward(self, x):
            return x.relu() if KEPT else x

    KEPT.append(
        fxlab.compiler.compile_session(torch.func.vmap(torch.func.grad(lambda x: x.sin())), (torch.ones(3),))
    )
    try:
        assert fxlab.compiler.compile_session(Plain(), torch.ones(3)).verdict().agrees
    finally:
        KEPT.clear()


KEPT = []


def test_random_numbers_that_inductor_draws_in_its_own_way_are_no_difference():
    def drawn(x):
        return torch.nn.functional.gumbel_softmax(x) + torch.randint_like(x, 5)

    session = fxlab.compiler.compile_session(drawn, (torch.zeros(2, 5),))
    assert session.verdict().status == "nothing compared"
    assert "fallback_random" in session.verdict().reason
    as_torch = fxlab.compiler.compile_session(drawn, (torch.zeros(2, 5),), options={"fallback_random": True})
    assert as_torch.verdict().agrees
