"""Inputs that are made for a model of transformers."""

import pytest
import torch
import transformers as hf
from agreement import assert_agree
from torch import nn

from fxlab.tracing import example_inputs, symbolic_trace

WIDTHS = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
FRAMES = {**WIDTHS, "image_size": 32, "patch_size": 16, "num_frames": 4}

MODELS = {
    "images beside text": (
        lambda: hf.ViltModel(hf.ViltConfig(**WIDTHS, vocab_size=100, image_size=32, patch_size=16)),
        {
            "input_ids": (2, 12),
            "attention_mask": (2, 12),
            "token_type_ids": (2, 12),
            "pixel_values": (2, 3, 32, 32),
        },
    ),
    "two towers": (
        lambda: hf.SiglipModel(
            hf.SiglipConfig(
                text_config={**WIDTHS, "vocab_size": 100, "projection_size": 32},
                vision_config={**WIDTHS, "image_size": 32, "patch_size": 16},
            )
        ),
        {"input_ids": (2, 12), "pixel_values": (2, 3, 32, 32), "attention_mask": (2, 12)},
    ),
    "video": (
        lambda: hf.VideoMAEModel(hf.VideoMAEConfig(**FRAMES)),
        {"pixel_values": (2, 4, 3, 32, 32)},
    ),
    "a spectrogram of fixed length": (
        lambda: hf.ASTModel(hf.ASTConfig(**WIDTHS, max_length=64, num_mel_bins=32)),
        {"input_values": (2, 64, 32)},
    ),
    "frames of speech": (
        lambda: hf.Wav2Vec2BertModel(
            hf.Wav2Vec2BertConfig(**WIDTHS, feature_projection_input_dim=24, output_hidden_size=32)
        ),
        {"input_features": (2, 100, 24)},
    ),
    "a waveform": (
        lambda: hf.HubertModel(
            hf.HubertConfig(
                **WIDTHS,
                conv_dim=(16, 16),
                conv_stride=(5, 4),
                conv_kernel=(10, 8),
                num_conv_pos_embeddings=8,
            )
        ),
        {"input_values": (2, 8000)},
    ),
    "a waveform with channels": (
        lambda: hf.DacModel(
            hf.DacConfig(encoder_hidden_size=4, decoder_hidden_size=64, hidden_size=16, n_codebooks=2)
        ),
        {"input_values": (2, 1, 8000)},
    ),
}


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, dict[str, tuple[int, ...]]]:
    torch.manual_seed(0)
    make, shapes = MODELS[request.param]
    return make().eval(), shapes


@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
def test_what_a_model_needs_is_found_out(case):
    model, shapes = case
    inputs = example_inputs(model)
    assert {name: tuple(tensor.shape) for name, tensor in inputs.items()} == shapes
    assert_agree(symbolic_trace(model), model, inputs)


def test_trying_leaves_the_model_and_the_random_numbers_alone(case):
    model, _ = case
    before = {name: (id(tensor), tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
    state = torch.random.get_rng_state()
    inputs = example_inputs(model)
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, tensor in model.state_dict(keep_vars=True).items():
        assert id(tensor) == before[name][0]
        assert torch.equal(tensor, before[name][1])
    again = example_inputs(model)
    assert all(torch.equal(tensor, again[name]) for name, tensor in inputs.items())


def test_a_tower_that_knows_a_grid_is_given_patches():
    config = hf.Qwen3VLConfig().vision_config
    config.depth, config.hidden_size, config.num_heads, config.intermediate_size = 1, 32, 2, 48
    config.deepstack_visual_indexes = [0]
    model = hf.AutoModel.from_config(config).eval()
    inputs = example_inputs(model, batch_size=3)
    assert inputs["hidden_states"].shape[0] == int(inputs["grid_thw"].prod(-1).sum())
    with torch.no_grad():
        model(**inputs)


def test_a_model_that_takes_none_of_them_says_so_itself():
    class Picky(hf.ViltModel):
        def forward(self, input_ids=None, pixel_values=None):
            raise ValueError("a scroll of papyrus is needed")

    model = Picky(hf.ViltConfig(**WIDTHS, vocab_size=100)).eval()
    with pytest.raises(ValueError, match="papyrus"):
        model(**example_inputs(model))
