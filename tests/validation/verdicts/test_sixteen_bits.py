"""Elementwise calls on numbers of sixteen bits are judged on all there are."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fxlab import Session
from fxlab.validation.verdicts.sixteen_bits import DTYPES

DIVIDE = "change-true-div-to-mul-by-inverse"


class Between(nn.Module):
    """Calls a function between two linear layers."""

    def __init__(self, function):
        super().__init__()
        self.first, self.second, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x):
        return self.second(self.function(self.first(x)))


def session_of(function, dtype, scale=1.0):
    torch.manual_seed(0)
    return Session(Between(function).to(dtype).eval(), scale * torch.randn(16, 8).to(dtype))


def differing(before, after, dtype):
    """Count the finite numbers for which two functions differ, one by one from the definition."""
    bits = torch.arange(2**16).to(torch.int32).sub(2**15).to(torch.int16)
    x = bits.view(dtype)[bits.view(dtype).isfinite()]
    one, other = before(x), after(x)
    return int(((one.view(torch.int16) != other.view(torch.int16)) & ~(one.isnan() & other.isnan())).sum())


@given(st.integers(2, 120), st.sampled_from(DTYPES))
def test_a_division_is_proved_for_all_numbers_or_those_that_differ_are_counted(divisor, dtype):
    session = session_of(lambda x: x / divisor, dtype).apply(DIVIDE)
    expected = differing(lambda x: x / divisor, lambda x: x * (1 / divisor), dtype)
    verdict = session.verdict()
    assert verdict.agrees
    (note,) = verdict.notes
    name = str(dtype).removeprefix("torch.")
    if expected:
        assert note.startswith(f"truediv: of all finite numbers of {name} {expected} give other bits (")
    else:
        assert note == f"proved for all finite numbers of {name}: 1 call (truediv), which is all that changed"
    (reason,) = session.explain(DIVIDE)["reason"]
    count = f"{expected} give" if expected else "none gives"
    assert reason.endswith(f"a division by {divisor}; of all finite numbers of {name} {count} other bits")
    assert "finite" not in session.revert().explain(DIVIDE)["reason"].item()


def test_a_chain_of_calls_is_one_function():
    session = session_of(lambda x: x * torch.sigmoid(x), torch.bfloat16).apply("fuse-activation")
    count = differing(lambda x: x * torch.sigmoid(x), functional.silu, torch.bfloat16)
    assert f"mul: of all finite numbers of bfloat16 {count} give other bits" in session.verdict().reason


def wrong_from(low):
    """Return a pass that leaves a doubling out for the numbers of one exponent."""

    def leave_out(graph_module):
        graph = graph_module.graph
        (node,) = [node for node in graph.nodes if node.name.startswith("mul")]
        (value, _) = node.args
        (reader,) = node.users
        with graph.inserting_before(reader):
            size = graph.call_function(torch.abs, (value,))
            above = graph.call_function(torch.ge, (size, low))
            below = graph.call_function(torch.lt, (size, 2 * low))
            both = graph.call_function(torch.logical_and, (above, below))
            reader.replace_input_with(node, graph.call_function(torch.where, (both, value, node)))

    return leave_out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [-9, -6, -4])
def test_a_mistake_in_one_exponent_alone_is_found(dtype, exponent):
    session = session_of(lambda x: x * 2.0, dtype)
    session.apply(wrong_from(2.0**exponent))
    verdict = session.verdict()
    assert verdict.different
    assert "give other bits" in verdict.reason or "relative error" in verdict.reason


def test_numbers_that_never_come_accuse_nobody():
    def without_relu(graph_module):
        for node in graph_module.graph.nodes:
            if node.target is torch.relu:
                node.replace_all_uses_with(node.args[0])
                graph_module.graph.erase_node(node)
                return

    session = session_of(lambda x: torch.relu(torch.softmax(x, -1)) * 0.3, torch.bfloat16)
    assert session.apply(without_relu).verdict().agrees


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.dropout(x, 0.5, True) / 8,
        lambda x: (x + x.sum(-1, keepdim=True)) / 8,
        lambda x: x.mul_(2.0) / 8,
    ],
    ids=["drawn", "of two", "written"],
)
def test_what_holds_for_one_call_is_not_said_of_others(function):
    session = session_of(function, torch.bfloat16).apply(DIVIDE)
    notes = " ".join(session.verdict().notes)
    assert notes.count("1 call (truediv)") == 1
    session.apply("fuse-bias-in-linear")
    assert "all that changed" not in " ".join(session.verdict().notes)


def test_other_dtypes_have_too_many_numbers():
    assert not session_of(lambda x: x / 3, torch.float32).apply(DIVIDE).verdict().notes
