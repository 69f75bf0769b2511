"""An error that the model catches is a decision, and so is a call that is made for nothing but its error."""

from contextlib import contextmanager

import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab import TraceError, symbolic_trace
from fxlab.tracing.recording import recorder

pytestmark = pytest.mark.filterwarnings("ignore:The traced graph is specialised")
GIVEN = torch.tensor([[0.3, -1.0, 1.0, -1.0], [-0.2, 2.0, 3.0, 1.0]])
SINGULAR = torch.linalg.LinAlgError


class Trying(nn.Module):
    """Computes something else after an error."""

    def __init__(self, call, error):
        super().__init__()
        self.norm = nn.LayerNorm((2, 4))
        self.call, self.error = call, error

    def forward(self, x):
        try:
            return self.call(self, x) + x
        except self.error:
            return x * 3


ERRORS_OF_SIZES = {
    "an index": (lambda _, x: x[2], IndexError),
    "a method": (lambda _, x: x.view(3, -1)[:1], RuntimeError),
    "a function": (lambda _, x: torch.cat([x, x.view(3, 4)]), Exception),
    "an operator": (lambda _, x: x * torch.ones(3, 4), RuntimeError),
    "a requirement": (lambda _, x: torch._assert(x.shape[0] > 2, ""), AssertionError),
}


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(("call", "error"), ERRORS_OF_SIZES.values(), ids=ERRORS_OF_SIZES)
def test_a_graph_goes_on_after_an_error_only_where_there_is_one(call, error, check):
    model = Trying(call, error)
    traced = symbolic_trace(model, GIVEN, check=check)
    assert_agree(traced, model, torch.randn(2, 4))
    with pytest.raises(AssertionError, match=f"raising {'Index' if error is IndexError else ''}.* only"):
        traced(torch.randn(3, 4))


@pytest.mark.parametrize("dynamic", [True, False])
def test_an_error_that_data_decides_on_is_held(dynamic):
    model = Trying(lambda _, x: torch.linalg.inv(x.T @ x).sum(), SINGULAR)
    given = torch.zeros(5, 4)
    traced = symbolic_trace(model, given, dynamic=dynamic)
    assert torch.equal(traced(given), model(given))
    with pytest.raises(AssertionError, match=r"linalg_inv raising .* only"):
        traced(torch.randn(5, 4))


@pytest.mark.parametrize("read", [float, bool, torch.Tensor.item, lambda x: x.detach().numpy().item()])
def test_what_fails_only_while_a_model_is_traced_ends_the_run_though_the_model_catches_it(read):
    model = Trying(lambda _, x: x * (7 if read(x.sum()) else 3), Exception)
    traced = symbolic_trace(model, GIVEN, check=False)
    assert torch.equal(traced(GIVEN), model(GIVEN))


def test_after_an_error_of_a_leaf_module_a_model_is_refused():
    model = Trying(lambda self, x: self.norm(x), RuntimeError)
    with pytest.raises(TraceError, match="may go on after norm has raised"):
        symbolic_trace(model, torch.randn(3, 4))


CALLS_FOR_THEIR_ERRORS = {
    "a view": (lambda x: x.view(2, 4), GIVEN.repeat(2, 1)),
    "an even number": (lambda x: x.view(-1, 2, 4), torch.randn(3, 4)),
    "a sum": (lambda x: x + torch.ones(2, 4), torch.randn(3, 4)),
    "a product": (lambda x: (x.T @ torch.ones(2, 3)).sum(), torch.randn(3, 4)),
    "a decomposition": (lambda x: torch.linalg.cholesky(torch.eye(4) - 9 * x[1, 1]), GIVEN),
    "an inverse": (lambda x: (x.T @ x + torch.eye(4) * x[0, 0]).inverse(), torch.zeros(2, 4)),
}


@pytest.mark.each_value
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(("call", "other"), CALLS_FOR_THEIR_ERRORS.values(), ids=CALLS_FOR_THEIR_ERRORS)
def test_a_call_whose_result_is_not_used_still_raises(call, other, check):
    class Requiring(nn.Module):
        def forward(self, x):
            call(x)
            return x * 2

    model, given = Requiring(), GIVEN * torch.tensor([1.0, -1.0, 1.0, 1.0])
    traced = symbolic_trace(model, given, check=check)
    assert torch.equal(traced(given), model(given))
    for computes in (model, traced):
        with pytest.raises((RuntimeError, AssertionError)):
            computes(other)


def test_a_run_that_does_not_begin_leaves_the_dispatcher_as_it_was(monkeypatch):
    error = ValueError("no files")

    @contextmanager
    def failing(model):
        raise error
        yield

    monkeypatch.setattr(recorder, "sizes_in_builtins", failing)
    part = torch.randn(3, 4, 6)[:, 0]
    symbolic_trace(nn.Dropout().eval(), part)
    assert error.__traceback__  # which holds what the run was made of
    assert nn.functional.dropout(part, training=False).stride() == part.stride()
