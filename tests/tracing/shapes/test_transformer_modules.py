"""Torch's own transformer modules, which decide on masks, are traced for inputs of any size."""

import pytest
import torch
from agreement import assert_agree
from torch import nn

from fxlab import symbolic_trace
from fxlab.tracing.report import DATA, DYNAMIC

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors", "ignore:enable_nested_tensor"
)


def causal(length):
    return nn.Transformer.generate_square_subsequent_mask(length)


class Translates(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)

    def forward(self, src, tgt):
        return self.transformer(src, tgt, tgt_mask=causal(tgt.shape[1])).relu()


class Encodes(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, **settings)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x, lengths):
        padding = torch.arange(x.shape[1]) >= lengths[:, None]
        return self.encoder(x, src_key_padding_mask=padding).relu()


class Decodes(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)

    def forward(self, x, memory):
        return self.decoder(tgt=x, memory=memory, tgt_mask=causal(x.shape[1]))


@pytest.mark.often(1)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("model", [Translates(), Decodes()], ids=["Transformer", "TransformerDecoder"])
def test_a_generated_causal_mask(model, training):
    model.train(training)
    traced = symbolic_trace(model, (torch.randn(2, 5, 16), torch.randn(2, 4, 16)))
    assert traced.meta["trace"].rung == DYNAMIC
    assert_agree(traced, model, (torch.randn(3, 7, 16), torch.randn(3, 6, 16)))


@pytest.mark.often(1)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("settings", [{}, {"activation": nn.GELU(), "norm_first": True}])
def test_a_padding_mask(settings, training):
    model = Encodes(**settings).train(training)
    traced = symbolic_trace(model, (torch.randn(2, 5, 16), torch.tensor([5, 3])))
    assert traced.meta["trace"].rung == DYNAMIC
    assert_agree(traced, model, (torch.randn(3, 7, 16), torch.tensor([7, 2, 4])))


def test_a_decision_on_what_a_transformer_gives():
    class Decides(Translates):
        def forward(self, src, tgt):
            y = super().forward(src, tgt)
            return y + 1 if y.sum() > 0 else y - 1

    model = Decides().eval()
    with pytest.warns(UserWarning, match="graph is specialised"):
        traced = symbolic_trace(model, (torch.randn(2, 5, 16), torch.randn(2, 4, 16)))
    assert traced.meta["trace"].rung == DATA
    assert_agree(traced, model, (torch.randn(3, 5, 16), torch.randn(3, 4, 16)))


def test_a_layer_of_ones_own_is_run():
    class Halves(nn.TransformerEncoderLayer):
        def forward(self, src, *args, **kwargs):
            return super().forward(src, *args, **kwargs)[:, ::2]

    layer = Halves(16, 2, 32, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(16, 3))
    traced = symbolic_trace(model.train(), torch.randn(2, 6, 16), check=False)
    assert_agree(traced, model, (torch.randn(3, 8, 16),))


def test_a_layer_on_the_meta_device_is_traced_too():
    with torch.device("meta"):
        layer, x = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), torch.ones(2, 3, 16)
    traced = symbolic_trace(nn.Sequential(layer, nn.ReLU()).eval(), x)
    assert traced(x).shape == x.shape
