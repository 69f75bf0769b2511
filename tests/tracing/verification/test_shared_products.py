"""Products of a model's run that the run of its graph takes: those of equal calls, and no others."""

import pytest
import torch
from torch import nn

from fxlab.tracing.verification import shared_products
from fxlab.tracing.verification.shared_products import SharedProducts

torch.manual_seed(0)
WEIGHT, INPUT = nn.Parameter(torch.randn(3, 4)), torch.randn(2, 4)


def written_out_of_sight(x):
    WEIGHT.data.mul_(2)
    found = x @ WEIGHT.t()
    WEIGHT.data.div_(2)
    return found


def written_and_read_by_torch(x):
    with torch.no_grad():
        WEIGHT.mul_(2)
        found = x @ WEIGHT.t()
        WEIGHT.div_(2)
    return found


def with_settings(x):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    found = x @ WEIGHT.t()
    torch.set_float32_matmul_precision(before)
    return found


OTHERS = {
    "other numbers": lambda x: (x + 1) @ WEIGHT.t(),
    "one other bit": lambda x: torch.where(x == x[0, 0], x.nextafter(x + 1), x) @ WEIGHT.t(),
    "another sum": lambda x: torch.addmm(x[:, 1:], x, WEIGHT.t()),
    "a weight that is written": written_and_read_by_torch,
    "a weight that is written past its version": written_out_of_sight,
    "other rows of a weight": lambda x: x @ WEIGHT.flip(0).t(),
    "another setting": with_settings,
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_call_that_differs_from_all_before_is_computed(other):
    expected = other(INPUT)
    with torch.no_grad(), SharedProducts([WEIGHT]) as products:
        INPUT @ WEIGHT.t()
        torch.addmm(INPUT[:, :3], INPUT, WEIGHT.t())
        for product in products._products.values():
            product.fill_(torch.nan)
        found = other(INPUT)
    assert torch.equal(found, expected)


def test_an_equal_call_is_taken_and_a_write_into_its_result_is_of_that_alone(monkeypatch):
    expected = INPUT @ WEIGHT.t()
    with SharedProducts([WEIGHT]) as products:
        (INPUT.clone() @ WEIGHT.t()).detach().zero_()
        taken = INPUT @ WEIGHT.t()
    assert torch.equal(taken, expected)
    assert taken.requires_grad
    assert len(products._products) == 1
    taken.sum().backward()
    assert torch.equal(WEIGHT.grad, INPUT.sum(0).expand(3, 4))
    WEIGHT.grad = None
    monkeypatch.setattr(shared_products, "_LEAST_BYTES", 0)
    with SharedProducts([WEIGHT]) as products:
        INPUT @ WEIGHT.t()
    assert not products._products
