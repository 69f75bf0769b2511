import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.autocast_test_lists import AutocastCPUTestLists, AutocastTestLists

from fxlab.operators import is_lowered_by_autocast, operator_for

CPU, GPU = AutocastCPUTestLists(torch.device("cpu")), AutocastTestLists(torch.device("cpu"))


def operators_in(*lists):
    names = {entry[0] for group in lists for entry in group}
    homes = (torch, F, torch._C._nn)
    functions = [getattr(home, name) for name in names for home in homes if hasattr(home, name)]
    return {found.name: found for found in map(operator_for, functions) if found is not None}


LOWERED_ON_CPU = operators_in(CPU.torch_16, CPU.nn_16)
LOWERED_ON_GPU = operators_in(GPU.torch_fp16, GPU.nn_fp16)
PROMOTED = GPU.torch_need_autocast_promote
WIDENED = operators_in(CPU.torch_fp32, CPU.nn_fp32, GPU.torch_fp32, GPU.nn_fp32, PROMOTED)


def test_operators_are_lowered_that_torchs_own_tests_call_so_on_both_devices():
    both = LOWERED_ON_CPU.keys() & LOWERED_ON_GPU.keys()
    assert not [name for name in both if not is_lowered_by_autocast(LOWERED_ON_CPU[name])]
    assert len(both) > 8


def test_no_operator_is_lowered_that_torchs_own_tests_call_otherwise():
    assert not [name for name, found in WIDENED.items() if is_lowered_by_autocast(found)]
    assert len(WIDENED) > 30


@pytest.mark.parametrize(
    ("function", "is_lowered"),
    [
        (F.linear, True),
        (torch.ops.aten.linear.default, True),
        (torch.ops.aten.conv2d.default, True),
        (torch.ops.aten.bmm.default, True),
        (F.scaled_dot_product_attention, True),
        (torch.ops.aten.convolution.default, False),  # CPUs have it computed as it is
        (torch.add, False),
        (F.layer_norm, False),
    ],
)
def test_both_dialects_are_asked_alike(function, is_lowered):
    assert is_lowered_by_autocast(operator_for(function)) is is_lowered


def test_asking_leaves_autocast_as_it_was():
    with torch.autocast("cpu", torch.bfloat16):
        assert is_lowered_by_autocast(operator_for(torch.mv)) is False
        assert torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cuda")
