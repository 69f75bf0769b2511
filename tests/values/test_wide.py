"""Float64 on devices that have none: on the CPU."""

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fxlab.models.running import running
from fxlab.validation.verdicts.float64_run import Float64Interpreter
from fxlab.values.tensors import has_float64, to_float64, wide_device, wide_dtype

APPLE, CPU = torch.device("mps"), torch.device("cpu")


def test_a_device_that_makes_no_float64_has_its_wide_numbers_on_the_cpu():
    assert has_float64(CPU)
    assert has_float64(torch.device("meta"))
    assert not has_float64(APPLE)  # also where there is none
    assert (wide_device(CPU), wide_device(APPLE)) == (CPU, CPU)


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [(torch.bfloat16, torch.float64), (torch.complex64, torch.complex128), (torch.int8, torch.int8)],
)
def test_a_tensor_is_widened_where_there_is_float64(dtype, wide):
    assert wide_dtype(dtype) == wide
    with FakeTensorMode():
        found = to_float64(torch.empty(2, 3, dtype=dtype, device=APPLE))
    assert (found.device, found.dtype, found.shape) == (CPU, wide, (2, 3))


def test_a_copy_is_one_where_nothing_has_to_be_widened():
    x = torch.ones(2, dtype=torch.float64)
    assert to_float64(x) is x
    assert to_float64(x, copy=True).data_ptr() != x.data_ptr()


class Places(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.layer = nn.Linear(3, 3, device="meta")
        self.layer.weight = nn.Parameter(torch.empty(3, 3, device=device))
        self.layer.bias = nn.Parameter(torch.empty(3, device=device))
        self.register_buffer("scale", torch.ones(3, device=device))
        self.register_buffer("order", torch.zeros(3, dtype=torch.long, device=device))

    def forward(self, x):
        x = self.layer(x)[:, self.order] * self.scale + torch.arange(3, device=self.scale.device)
        return x.to(self.scale.device, torch.float32) + torch.zeros(3, device="mps"), x > 0


def test_a_graph_on_such_a_device_runs_in_float64_on_the_cpu(monkeypatch):
    """Without one, the shapes, dtypes and devices of its tensors are worked out by fake ones."""
    monkeypatch.setattr(running, "torch_generators_now", tuple)  # whose states would be fake ones too
    with FakeTensorMode(allow_non_fake_inputs=True):
        graph = fx.symbolic_trace(Places(APPLE))
        x = to_float64(torch.empty(2, 3, device=APPLE))
        output, mask = Float64Interpreter(graph).run(x)
    assert (output.device, mask.device) == (CPU, CPU)
    assert (output.dtype, mask.dtype) == (torch.float64, torch.bool)
