"""Attention kernels without float64 are computed in steps: as torch computes attention in float64."""

import math
import operator

import pytest
import torch
from torch.nn import functional as F

from fxlab.models.running.attention import in_steps, is_attention_kernel, states_of_generators
from fxlab.validation.verdicts.float64_run import Float64Mode

aten = torch.ops.aten
FLASH, EFFICIENT = aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_efficient_attention
CUDNN = aten._scaled_dot_product_cudnn_attention


def tensors(heads=4, rows=5):
    torch.manual_seed(0)
    query = torch.randn(2, 4, rows, 8, dtype=torch.float64)
    return (query, *(torch.randn(2, heads, 7, 8, dtype=torch.float64) for _ in range(2)))


def expected(query, key, value, bias=None, causal=False, scale=None):
    """Return the output and the gradients of attention as torch computes it."""
    inputs = [each.clone().requires_grad_() for each in (query, key, value)]
    bias = None if bias is None else bias.clone().requires_grad_()
    out = F.scaled_dot_product_attention(
        *inputs, attn_mask=bias, is_causal=causal, scale=scale, enable_gqa=True
    )
    grad = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    return out.detach(), grad, torch.autograd.grad(out, [*inputs, *([] if bias is None else [bias])], grad)


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_output_and_gradients_of_flash(heads, causal, scale):
    given = tensors(heads)
    out, grad, gradients = expected(*given, causal=causal, scale=scale)
    found = in_steps(FLASH.default, given, {"is_causal": causal, "scale": scale})
    assert len(found) == len(FLASH.default._schema.returns)
    torch.testing.assert_close(found[0], out)
    assert found[4:6] == (5, 7)
    back = aten._scaled_dot_product_flash_attention_backward.default
    zero = torch.zeros((), dtype=torch.int64)
    others = (found[0], found[1], zero, zero, 5, 7, 0.0, causal, zero, zero)
    torch.testing.assert_close(in_steps(back, (grad, *given, *others), {"scale": scale}), gradients)


@pytest.mark.parametrize("shape", [(2, 4, 5, 7), (5, 7), (2, 1, 1, 7)])
def test_output_and_gradients_with_a_bias(shape):
    given, bias = tensors(), torch.randn(shape, dtype=torch.float64)
    bias[..., -2:] = -math.inf
    out, grad, gradients = expected(*given, bias)
    found = in_steps(EFFICIENT.default, (*given, bias, True), {})
    torch.testing.assert_close(found[0], out)
    assert found[1].shape == (2, 4, 32)
    scores = given[0] @ given[1].mT / math.sqrt(8) + bias
    torch.testing.assert_close(found[1][..., :5], scores.logsumexp(-1))
    assert found[1][..., 5:].isposinf().all()
    zero = torch.zeros((), dtype=torch.int64)
    back = aten._scaled_dot_product_efficient_attention_backward.default
    arguments = (grad, *given, bias, found[0], found[1], zero, zero, 0.0, [True] * 4)
    torch.testing.assert_close(in_steps(back, arguments, {}), gradients)


def test_rows_that_read_no_key_are_zero():
    given = tensors()
    bias = torch.full((5, 7), -math.inf, dtype=torch.float64)
    assert not in_steps(CUDNN.default, (*given, bias, False), {})[0].any()


def test_the_float64_run_takes_them_and_dropout_inside_is_not_computed():
    given = tensors()
    with Float64Mode():
        found = EFFICIENT.default(*(each.float() for each in given), None, False)
    assert found[0].dtype == torch.float64
    torch.testing.assert_close(found[0], F.scaled_dot_product_attention(*given), rtol=1e-6, atol=1e-6)
    assert found[1].shape == (2, 4, 0)
    assert not is_attention_kernel(EFFICIENT.default, (*given, None, False, 0.1), {})
    assert not is_attention_kernel(aten.mm.default, (), {})


def test_states_of_generators_are_not_compared():
    graph = torch.fx.Graph()
    query = graph.placeholder("query")
    kernel = graph.call_function(EFFICIENT.default, (query, query, query, None, True))
    parts = [graph.call_function(operator.getitem, (kernel, place)) for place in range(4)]
    graph.output((parts[0], [*parts[1:], 3]))
    assert states_of_generators(torch.fx.GraphModule(torch.nn.Module(), graph)) == {"1.1", "1.2"}


@pytest.mark.parametrize("kernel", [EFFICIENT, FLASH, CUDNN])
def test_shapes_and_strides_are_those_of_the_kernel(kernel):
    query, key, value = (torch.randn(2, rows, 4, 8).transpose(1, 2) for rows in (5, 7, 7))
    more = () if kernel is FLASH else (None, True)
    on_meta = kernel.default(*(each.to("meta") for each in (query, key, value)), *more)
    for made, like in zip(in_steps(kernel.default, (query, key, value, *more), {}), on_meta, strict=True):
        if isinstance(like, torch.Tensor):
            assert (made.shape, made.stride()) == (like.shape, like.stride())
        else:
            assert made == like
