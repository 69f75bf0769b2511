"""Names of the arguments that nodes are given, which a search looks through."""

import torch
from torch import nn
from torch.nn import functional as F

from fxlab.view_model.graph_data.facts import Facts


class Calls(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.layer = nn.Linear(4, 4), nn.TransformerEncoderLayer(4, 2)

    def forward(self, x, mask):
        y = F.scaled_dot_product_attention(x, x, x, mask, scale=2.0) + self.linear(x)
        return torch.softmax(y, -1), self.layer(x, src_mask=mask), x.masked_fill(mask, 0.0)


def test_a_place_has_the_name_in_the_signature_and_what_is_not_given_none():
    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, path):
            return True

    model, facts = Calls(), Facts()
    graph, modules = Tracer().trace(model), dict(model.named_modules())
    for node in graph.nodes:
        facts.number(node, modules)
    names = {facts.texts.values[row[0]]: facts.texts.values[row[-1]] for row in facts.rows.values}
    assert names["scaled_dot_product_attention"] == "query key value attn_mask scale"
    assert (names["linear"], names["layer"]) == ("input", "src src_mask")
    assert names["softmax"] == "self dim"
    assert names["masked_fill"] == "self mask value"
    assert names["x"] == names["output"] == ""
