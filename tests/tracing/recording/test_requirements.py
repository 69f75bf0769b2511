"""What the model requires of its inputs, and what torch tells it about sizes, holds for the graph too."""

import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab import symbolic_trace

REFUSALS = (AssertionError, RuntimeError, ValueError, IndexError)


def of(function):
    class Module(nn.Module):
        def forward(self, *args):
            return function(*args)

    return Module()


SIZE_REQUIREMENTS = {
    "assert": lambda x: torch._assert(x.shape[0] == 3, "three rows"),
    "assert, more": lambda x: torch._assert(x.shape[0] > 2, "more rows"),
    "assert, named": lambda x: torch._assert(condition=x.shape[0] > 2, message="more rows"),
    "assert, known": lambda x: torch._assert(bool(x.shape[0] > 2), "more rows"),
    "check": lambda x: torch._check(x.shape[0] > 2, lambda: "more rows"),
    "check, value": lambda x: torch._check_value(x.shape[0] == 3),
    "check, index": lambda x: torch._check_index(x.shape[0] > 2),
    "scalar": lambda x: torch.ops.aten._assert_scalar(x.shape[0] > 2, "more rows"),
    "range": lambda x: torch.sym_constrain_range(x.shape[0], min=3, max=4),
}


@pytest.mark.each_value
@pytest.mark.parametrize("require", SIZE_REQUIREMENTS.values(), ids=SIZE_REQUIREMENTS)
@pytest.mark.parametrize("check", [True, False])
def test_a_requirement_on_sizes_stays(require, check):
    def forward(x):
        require(x)
        return x + 1

    model = of(forward)
    traced = symbolic_trace(model, torch.randn(3, 4), check=check)
    assert_agree(traced, model, torch.randn(3, 5))
    with pytest.raises(REFUSALS):
        model(torch.randn(1, 4))
    with pytest.raises(REFUSALS):
        traced(torch.randn(1, 4))


@torch.library.custom_op("fxlab_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> None:
    """Raise for other numbers; torch knows of no fake kernel."""
    if not bool((x > 0).all()):
        raise ValueError("expected positive numbers")


DATA_REQUIREMENTS = {
    "assert": lambda x: torch._assert((x > 0).all(), "positive"),
    "asynchronous": lambda x: torch._assert_async((x > 0).all()),
    "check": lambda x: torch._check(x.sum().item() > 0),
    "check, tensor": lambda x: torch._check_tensor_all(x > 0),
    "of one's own": positive,
    "of one's own, beside numpy": lambda x: (positive(x), torch.zeros(1).numpy().sum()),
}


@pytest.mark.filterwarnings("ignore:The traced graph is specialised")
@pytest.mark.parametrize("require", DATA_REQUIREMENTS.values(), ids=DATA_REQUIREMENTS)
def test_a_requirement_on_data_stays(require):
    def forward(x):
        require(x)
        return x + 1

    model = of(forward)
    traced = symbolic_trace(model, torch.rand(3, 4) + 0.1)
    assert_agree(traced, model, torch.rand(3, 4) + 0.1)
    with pytest.raises(REFUSALS):
        traced(-torch.rand(3, 4) - 0.1)


@pytest.mark.parametrize(
    "require",
    [
        lambda x: torch._assert((x > 0).all(), "positive"),
        lambda x: torch._assert(message="positive", condition=x.sum() > 0),
    ],
)
def test_a_requirement_of_a_tensor_that_torch_asserts_fixes_no_size(require, recwarn):
    model = of(lambda x: (require(x), x + 1)[1])
    traced = symbolic_trace(model, torch.rand(3, 4) + 0.1)
    assert not recwarn.list
    assert_agree(traced, model, torch.rand(5, 2) + 0.1)
    with pytest.raises(AssertionError, match="positive"):
        traced(-torch.ones(5, 2))


TOLD = {
    "whether shapes are the same": lambda x, y: x * 2 if x.is_same_size(y) else x - 1,
    "the shape that two make": lambda x, y: x.sum() * torch.broadcast_shapes(x.shape, y.shape)[0],
    "how many dimensions are left": lambda x, y: x * y.squeeze(0).dim(),
}


@pytest.mark.each_value
@pytest.mark.parametrize("tell", TOLD.values(), ids=TOLD)
@pytest.mark.parametrize("rows", [(3, 1), (1, 3), (1, 1), (5, 5)])
def test_what_torch_tells_of_sizes_is_held(tell, rows):
    model = of(tell)
    traced = symbolic_trace(model, (torch.randn(3, 4), torch.randn(3, 4)), check=False)
    inputs = tuple(torch.randn(size, 4) for size in rows)
    try:
        assert_agree(traced, model, inputs)
    except AssertionError as error:
        assert "traced for" in str(error)  # noqa: PT017
        assert 1 in rows
