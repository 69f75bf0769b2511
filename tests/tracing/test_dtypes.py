import pytest
import torch
from agreement import assert_agree
from function_module import Function
from torch import nn

from fxlab import symbolic_trace

READS = {
    "dtype": lambda self, x: (x.float() * 2).to(x.dtype),
    "dtype of what was computed": lambda self, x: torch.zeros(3, dtype=(x + 1).dtype) + 1,
    "is_floating_point": lambda self, x: x.float() if (x * 2).is_floating_point() else x,
    "itemsize": lambda self, x: x * x.itemsize,
    "size of the storage": lambda self, x: x * (1 + (x.untyped_storage().nbytes() > 48)),
    "type": lambda self, x: x * 2 if x.type() == "torch.FloatTensor" else x,
    "result_type": lambda self, x: torch.ones(3, dtype=torch.result_type(x, 1)) * 2,
}
OTHERS = {
    "nothing": lambda self, x: x * 2 + torch.zeros_like(x),
    "that of a parameter": lambda self, x: x.to(self.weight.dtype) * self.weight,
    "a cast by type": lambda self, x: x.type(torch.float32) * 2,
    "by another tensor": lambda self, x: (x.float() * 2).type_as(x),
}


@pytest.mark.parametrize("name", READS)
def test_where_python_reads_a_dtype_another_is_refused(name):
    model = Function(READS[name])
    traced = symbolic_trace(model, (torch.randn(4, 3),))
    assert_agree(traced, model, (torch.randn(2, 3),))
    with pytest.raises(AssertionError, match=r"traced for x of dtype torch\.float32 only"):
        traced(torch.randn(4, 3, dtype=torch.float64))
    assert [f.what for f in traced.meta["trace"].findings if f.kind == "fixed dtype"] == ["x"]


class Masked(nn.Module):
    """A model that takes masks of two kinds, as many do."""

    def forward(self, x, mask):
        return x.masked_fill(mask.logical_not(), 0) if mask.dtype == torch.bool else x + mask


@pytest.mark.parametrize(("recorded", "other"), [(torch.bool, torch.int64), (torch.int64, torch.float32)])
def test_the_dtype_of_a_mask_that_python_reads_is_held(recorded, other):
    model, x = Masked(), torch.randn(2, 3, generator=torch.manual_seed(0))
    mask = torch.tensor([1, 0, 1])
    traced = symbolic_trace(model, (x, mask.to(recorded)))
    assert_agree(traced, model, (x, mask.to(recorded)))
    assert_agree(traced, model, (x.double(), mask.to(recorded)))
    with pytest.raises(AssertionError, match=rf"traced for mask of dtype {recorded} only"):
        traced(x, mask.to(other))
