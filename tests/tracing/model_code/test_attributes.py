"""A trace leaves a model's buffers as they were, whatever the model does with them."""

import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab import TraceError, symbolic_trace


class Remembers(nn.Module):
    """Puts its last result where a buffer was, whatever its shape."""

    def __init__(self, write, shape):
        super().__init__()
        self.write = write
        self.linear = nn.Linear(4, 4)
        self.register_buffer("last", torch.arange(shape[0]).float()[:, None].expand(shape).clone())

    def forward(self, x):
        y = self.linear(x)
        self.write(self, y.detach().clone())
        return 2 * y


def set_attribute(model, value):
    model.last = value


def resize(model, value):
    model.last.resize_(value.shape).copy_(value)


def set_memory(model, value):
    model.last.set_(value)


def set_data(model, value):
    model.last.data = value


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1, 2, 3])
@pytest.mark.parametrize("write", [set_attribute, resize, set_data])
@pytest.mark.filterwarnings("ignore::fxlab.tracing.report.TraceWarning")
def test_buffers_of_another_shape_are_put_back(write, rows):
    model = Remembers(write, (rows, 4)).eval()
    buffer, before, view = model.last, model.last.clone(), model.last[:1]
    traced = symbolic_trace(model, torch.randn(2, 4))
    assert model.last is buffer
    assert torch.equal(buffer, before)
    assert rows == 0 or view.data_ptr() == buffer.data_ptr()
    assert traced.meta["trace"].rung.startswith("dynamic shapes")
    x = torch.randn(2, 4)
    with torch.no_grad():
        assert torch.equal(traced(x), 2 * model.linear(x))


def test_a_buffer_that_is_given_other_memory_unseen_is_put_back_and_the_trace_refused():
    model = Remembers(set_memory, (3, 4)).eval()
    before, place = model.last.clone(), model.last.data_ptr()
    with pytest.raises(TraceError, match="set_"):
        symbolic_trace(model, torch.randn(2, 4))
    assert torch.equal(model.last, before)
    assert model.last.data_ptr() == place


@pytest.mark.filterwarnings("ignore::fxlab.tracing.report.TraceWarning")
def test_a_graph_that_writes_a_buffer_of_one_shape_refuses_others_in_words():
    model = Remembers(resize, (2, 4)).eval()
    traced = symbolic_trace(model, torch.randn(2, 4))
    assert_agree(traced, model, (torch.randn(2, 4),))
    with pytest.raises(AssertionError, match=r"traced for x.shape\[0\] = 2 only"):
        traced(torch.randn(5, 4))
