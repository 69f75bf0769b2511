"""What a model chooses to compute attention with is a part of its graph."""

import copy

import torch
from agreement import assert_agree
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from fxlab import symbolic_trace
from fxlab.tracing.recording.autocast_regions import WithAttentionBackends, attention_backends


class Exact(nn.Module):
    def __init__(self, backends):
        super().__init__()
        self.backends = backends

    def forward(self, x):
        before = scaled_dot_product_attention(x, x, x)
        with sdpa_kernel(self.backends):
            return before, scaled_dot_product_attention(x, x, x)


def test_attention_is_computed_with_what_the_model_chooses():
    model, x = Exact(SDPBackend.MATH), torch.randn(2, 2, 100, 16)
    traced = symbolic_trace(model, (x,), check=False)
    before, chosen, *_ = (node for node in traced.graph.nodes if node.op == "call_function")
    assert before.target is scaled_dot_product_attention
    assert chosen.target == WithAttentionBackends(scaled_dot_product_attention, (SDPBackend.MATH,))
    around = attention_backends()
    for module in (traced, copy.deepcopy(traced)):
        assert_agree(module, model, (torch.randn(3, 2, 77, 16),))
    assert attention_backends() == around
