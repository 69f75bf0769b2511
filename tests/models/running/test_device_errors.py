"""An operator that would end the process on an accelerator raises the error of the CPU."""

import pytest
import torch

from fxlab.models.running.accelerators import device_errors_raised, raise_error_of
from fxlab.models.running.running import torch_generators_now

aten = torch.ops.aten
X, WEIGHT = torch.randn(3, 4), torch.randn(5, 2)
IN, OUT = torch.tensor([[0, 1]]), torch.tensor([[0, 7]])


@pytest.mark.parametrize(
    ("func", "args", "error"),
    [
        (aten.embedding.default, lambda i: (WEIGHT, i), IndexError),
        (aten.index.Tensor, lambda i: (X, [None, i]), IndexError),
        (aten.index_put_.default, lambda i: (X.clone(), [i], torch.ones(())), IndexError),
        (aten.index_put_.default, lambda i: (X.double(), [i], torch.ones(()).double()), IndexError),
        (aten.index_select.default, lambda i: (X, 1, i[0]), RuntimeError),
        (aten.gather.default, lambda i: (X, 1, i), RuntimeError),
        (aten.scatter_add_.default, lambda i: (X.clone(), 1, i, torch.ones(1, 2)), RuntimeError),
        (aten.bernoulli.default, lambda i: (i.float(),), RuntimeError),
        (aten.multinomial.default, lambda i: (3.0 - i, 1), RuntimeError),
        (aten._assert_async.default, lambda i: (i.max() < 5,), RuntimeError),
    ],
    ids=[
        "embedding",
        "index",
        "index_put",
        "index_put of another dtype",
        "index_select",
        "gather",
        "scatter_add",
        "bernoulli",
        "multinomial",
        "assert",
    ],
)
def test_values_that_the_cpu_refuses_are_refused(func, args, error):
    state = torch_generators_now()
    raise_error_of(func, args(IN), {})
    with pytest.raises(error):
        raise_error_of(func, args(OUT), {})
    assert torch_generators_now() == state


def test_an_operator_that_the_cpu_does_not_have_says_nothing_of_values():
    lib = torch.library.Library("device_errors", "DEF")
    lib.define("elsewhere(Tensor x, Tensor i) -> Tensor")
    raise_error_of(torch.ops.device_errors.elsewhere.default, (X, OUT), {})


def test_what_is_written_stays_as_it_was():
    x = torch.zeros(3)
    raise_error_of(aten.index_fill_.int_Scalar, (x, 0, torch.tensor([1]), 5.0), {})
    assert not x.any()


def test_without_an_accelerator_nothing_is_tried():
    with device_errors_raised() as mode:
        assert mode is None or torch.accelerator.is_available()
