"""Custom operators whose fake results or schemas are not what they do are named with the operator."""

import pytest
import torch
from torch import nn

import fxlab


def operator(name, function, fake, mutates_args=()):
    made = torch.library.custom_op(f"fxlab_lies::{name}", function, mutates_args=mutates_args)
    made.register_fake(fake)
    return made


def half(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16()


def twisted(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t() * 1.0


def longer(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x])


def writes(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def honest(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def adds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    return x * 2


def same(*tensors):
    return torch.empty_like(tensors[0])


OPERATORS = {
    "half": (operator("half", half, same), "returns bfloat16; its fake says float32"),
    "twisted": (operator("twisted", twisted, same), "returns the strides (1, 2); its fake says (4, 1)"),
    "longer": (operator("longer", longer, same), "returns the shape (4, 4); its fake says (2, 4)"),
    "writes": (operator("writes", writes, same), "which its schema does not declare (mutates_args)"),
    "honest": (operator("honest", honest, same), ""),
}


class Calls(nn.Module):
    def __init__(self, called):
        super().__init__()
        self.called = called

    def forward(self, x):
        return self.called(x.relu() + 1).sum()


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_that_lies_is_named(name):
    called, words = OPERATORS[name]
    session = fxlab.compiler.compile_session(Calls(called), torch.randn(2, 4))
    table = session.custom_operators()
    if not words:
        assert table.empty
        assert session.remarks == ()
        return
    assert table["operator"].tolist() == [f"fxlab_lies::{name}"]
    assert words in table["mistake"].item()
    assert table["place"].item().startswith(f"{__file__}:")
    (remark,) = session.remarks
    assert f"fxlab_lies::{name}" in remark
    assert f"fxlab_lies::{name}" in session.verdict().reason


def test_a_declared_write_is_no_mistake():
    called = operator("adds", adds, same, mutates_args=("x",))
    session = fxlab.compiler.compile_session(
        lambda x, y: called(x.relu(), y), (torch.randn(2), torch.randn(2))
    )
    assert session.custom_operators().empty
