"""Inputs that are made for a model of transformers."""

import pytest
import torch
import transformers as hf
from agreement import assert_agree

from fxlab import example_inputs, symbolic_trace
from fxlab.tracing.inputs import example_inputs as input_module
from fxlab.tracing.inputs.example_inputs import run_on_fakes

pytestmark = pytest.mark.slow

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
    "video": (lambda: hf.VideoMAEModel(hf.VideoMAEConfig(**FRAMES)), {"pixel_values": (2, 4, 3, 32, 32)}),
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


@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
def test_a_model_is_traced_on_what_is_found_out():
    model = MODELS["images beside text"][0]().eval()
    assert_agree(symbolic_trace(model, check=False), model, example_inputs(model))


@pytest.mark.parametrize("kind", ["images beside text", "a waveform with channels"])
def test_trying_leaves_the_model_and_the_random_numbers_alone(kind):
    model = MODELS[kind][0]().eval()
    before = {name: (id(tensor), tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
    state = torch.random.get_rng_state()
    inputs = example_inputs(model)
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, tensor in model.state_dict(keep_vars=True).items():
        assert id(tensor) == before[name][0]
        assert torch.equal(tensor, before[name][1])
    again = example_inputs(model)
    assert all(torch.equal(tensor, again[name]) for name, tensor in inputs.items())


@pytest.mark.weekly
def test_a_tower_that_knows_a_grid_is_given_patches():
    config = hf.Qwen3VLConfig().vision_config
    config.depth, config.hidden_size, config.num_heads, config.intermediate_size = 1, 32, 2, 48
    config.deepstack_visual_indexes = [0]
    model = hf.AutoModel.from_config(config).eval()
    inputs = example_inputs(model, batch_size=3)
    assert inputs["hidden_states"].shape[0] == int(inputs["grid_thw"].prod(-1).sum())
    with torch.no_grad():
        model(**inputs)


@pytest.mark.parametrize(("part", "shape"), [("Encoder", (2, 1, 8000)), ("Decoder", (2, 8, 100))])
def test_hidden_states_of_sound_are_a_waveform_or_frames(part, shape):
    kind = getattr(hf, f"VibeVoiceAcousticTokenizer{part}Config")
    config = kind(hidden_size=8, num_filters=4, downsampling_ratios=[2, 2], depths=[1, 1, 1])
    inputs = example_inputs(hf.AutoModel.from_config(config).eval())
    assert {name: tuple(tensor.shape) for name, tensor in inputs.items()} == {"hidden_states": shape}


SERIES = {"num_input_channels": 3, "context_length": 16, "patch_length": 4, "patch_stride": 4}
TWO_TOWERS = {"text_config": {**WIDTHS, "vocab_size": 100, "projection_size": 32}}

KINDS = {
    **MODELS,
    "a time series of one channel": (
        lambda: hf.TimeSeriesTransformerModel(
            hf.TimeSeriesTransformerConfig(prediction_length=4, lags_sequence=[1, 3], d_model=16)
        ),
        {"past_values": (2, 7), "past_time_features": (2, 7, 0), "past_observed_mask": (2, 7)},
    ),
    "a time series of several channels": (
        lambda: hf.PatchTSTModel(
            hf.PatchTSTConfig(**SERIES, d_model=16, num_attention_heads=2, num_hidden_layers=1, ffn_dim=16)
        ),
        {"past_values": (2, 16, 3)},
    ),
    "states and actions": (
        lambda: hf.DecisionTransformerModel(
            hf.DecisionTransformerConfig(hidden_size=32, n_layer=1, n_head=2, state_dim=5, act_dim=3)
        ),
        {
            "states": (2, 12, 5),
            "actions": (2, 12, 3),
            "rewards": (2, 12, 1),
            "returns_to_go": (2, 12, 1),
            "timesteps": (2, 12),
        },
    ),
    "hidden states of any kind": (
        lambda: hf.PerceiverModel(
            hf.PerceiverConfig(
                num_latents=4,
                d_latents=16,
                d_model=24,
                num_self_attends_per_block=1,
                num_self_attention_heads=2,
                num_cross_attention_heads=2,
            )
        ),
        {"inputs": (2, 12, 24)},
    ),
    "patches beside padding": (
        lambda: hf.Siglip2Model(
            hf.Siglip2Config(**TWO_TOWERS, vision_config={**WIDTHS, "patch_size": 4, "num_patches": 16})
        ),
        {
            "input_ids": (2, 12),
            "pixel_values": (2, 16, 48),
            "pixel_attention_mask": (2, 16),
            "spatial_shapes": (2, 2),
            "attention_mask": (2, 12),
        },
    ),
    "patches of several frames in one row": (
        lambda: hf.AutoModel.from_config(
            hf.Lfm3VlVisionConfig(**WIDTHS, patch_size=4, temporal_patch_size=2, out_hidden_size=32)
        ),
        {"pixel_values": (32, 96), "grid_thw": (2, 3)},
    ),
    "what was seen, and where": (
        lambda: hf.LxmertModel(
            hf.LxmertConfig(
                **{name: size for name, size in WIDTHS.items() if name != "num_hidden_layers"},
                l_layers=1,
                x_layers=1,
                r_layers=1,
                vocab_size=100,
                visual_feat_dim=20,
            )
        ),
        {
            "input_ids": (2, 12),
            "visual_feats": (2, 4, 20),
            "visual_pos": (2, 4, 4),
            "attention_mask": (2, 12),
            "token_type_ids": (2, 12),
        },
    ),
    "queries to an image": (
        lambda: hf.Blip2QFormerModel(hf.Blip2QFormerConfig(**WIDTHS, encoder_hidden_size=24)),
        {"query_embeds": (2, 4, 32), "encoder_hidden_states": (2, 4, 24)},
    ),
    "images of a prompt": (
        lambda: hf.IdeficsModel(
            hf.IdeficsConfig(
                **WIDTHS,
                vocab_size=100,
                vision_config={**WIDTHS, "embed_dim": 32, "image_size": 32, "patch_size": 16},
                use_resampler=False,
            )
        ),
        {
            "input_ids": (2, 12),
            "attention_mask": (2, 12),
            "pixel_values": (2, 1, 3, 32, 32),
            "image_attention_mask": (2, 12, 1),
        },
    ),
    "an image and a worked example": (
        lambda: hf.SegGptModel(
            hf.SegGptConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                image_size=(64, 32),
                pretrain_image_size=32,
                merge_index=0,
                intermediate_hidden_state_indices=[1],
            )
        ),
        {
            "pixel_values": (2, 3, 32, 32),
            "prompt_pixel_values": (2, 3, 32, 32),
            "prompt_masks": (2, 3, 32, 32),
        },
    ),
    "several codes at each time": (
        lambda: hf.DiaModel(
            hf.DiaConfig(
                delay_pattern=[0, 1, 2],
                encoder_config={**WIDTHS, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100},
                decoder_config={
                    **WIDTHS,
                    "num_key_value_heads": 2,
                    "head_dim": 16,
                    "cross_hidden_size": 32,
                    "cross_num_attention_heads": 2,
                    "cross_num_key_value_heads": 2,
                    "cross_head_dim": 16,
                    "vocab_size": 100,
                    "num_channels": 3,
                },
            )
        ),
        {"input_ids": (2, 12), "attention_mask": (2, 12), "decoder_input_ids": (2, 12, 3)},
    ),
    "hidden states of speech": (
        lambda: hf.SpeechT5Model(
            hf.SpeechT5Config(
                hidden_size=32,
                encoder_layers=1,
                encoder_attention_heads=2,
                encoder_ffn_dim=32,
                decoder_layers=1,
                decoder_attention_heads=2,
                decoder_ffn_dim=32,
            )
        ),
        {"input_values": (2, 12, 32), "decoder_input_values": (2, 12, 32)},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_of_every_kind_have_the_shapes_that_the_configuration_asks_for(kind):
    make, shapes = KINDS[kind]
    model = make().eval()
    inputs = example_inputs(model)
    assert {name: tuple(tensor.shape) for name, tensor in inputs.items()} == shapes
    with torch.no_grad():
        model(**inputs)


def test_what_an_encoder_reads_ends_once_before_the_padding():
    config = hf.BartConfig(d_model=16, encoder_layers=1, decoder_layers=1, vocab_size=30, encoder_ffn_dim=16)
    config.encoder_attention_heads = config.decoder_attention_heads = 2
    model = hf.BartForSequenceClassification(config).eval()
    inputs = example_inputs(model)
    ends = inputs["input_ids"] == config.eos_token_id
    assert ends.sum(1).tolist() == [1, 1]
    assert ends.int().argmax(1).tolist() == [sum(row) - 1 for row in inputs["attention_mask"].tolist()]
    with torch.no_grad():
        model(**inputs)


def test_what_cannot_be_guessed_is_named():
    class Session(hf.BertModel):
        def forward(self, inference_session, input_ids=None):
            return inference_session

    model = Session(hf.BertConfig(**WIDTHS, vocab_size=100))
    with pytest.raises(ValueError, match="inference_session cannot be guessed"):
        example_inputs(model)


def test_a_model_that_takes_none_of_them_says_so_itself():
    class Picky(hf.ViltModel):
        def forward(self, input_ids=None, pixel_values=None):
            raise ValueError("a scroll of papyrus is needed")

    model = Picky(hf.ViltConfig(**WIDTHS, vocab_size=100)).eval()
    with pytest.raises(ValueError, match="papyrus"):
        model(**example_inputs(model))


@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
def test_a_classifier_of_sequences_that_knows_no_padding_gets_one_sequence():
    small = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50}
    alone = hf.GPT2ForSequenceClassification(hf.GPT2Config(**small)).eval()
    inputs = example_inputs(alone)
    assert inputs["input_ids"].shape[0] == 1
    assert_agree(symbolic_trace(alone, inputs, check=False), alone, example_inputs(alone, sequence_length=7))
    assert example_inputs(alone, batch_size=3)["input_ids"].shape[0] == 3
    padded = hf.GPT2ForSequenceClassification(hf.GPT2Config(**small, pad_token_id=0)).eval()
    assert example_inputs(padded)["input_ids"].shape[0] == 2
    assert example_inputs(hf.GPT2Model(hf.GPT2Config(**small)))["input_ids"].shape[0] == 2


TEXT = {**WIDTHS, "vocab_size": 100, "num_key_value_heads": 2}
VISION = {**WIDTHS, "image_size": 32, "patch_size": 8}
GRIDS = {
    "depth": 1,
    "embed_dim": 32,
    "hidden_size": 32,
    "num_heads": 2,
    "patch_size": 8,
    "spatial_merge_size": 2,
}

BESIDE_TEXT = {
    "an image of a fixed size": (
        lambda: hf.LlavaModel(
            hf.LlavaConfig(
                text_config={"model_type": "llama", **TEXT},
                vision_config={"model_type": "clip_vision_model", **VISION, "projection_dim": 32},
                image_token_index=5,
            )
        ),
        ["pixel_values"],
        16,
    ),
    "patches on a grid": (
        lambda: hf.Qwen2VLModel(
            hf.Qwen2VLConfig(
                text_config={**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]}},
                vision_config=GRIDS,
                image_token_id=5,
                video_token_id=6,
                vision_start_token_id=7,
                vision_end_token_id=8,
            )
        ),
        ["pixel_values", "image_grid_thw", "mm_token_type_ids"],
        4,
    ),
    "patches in a row": (
        lambda: hf.FuyuModel(
            hf.FuyuConfig(
                patch_size=8,
                image_token_id=5,
                text_config={"model_type": "persimmon", **TEXT},
                **WIDTHS,
                vocab_size=100,
            )
        ),
        ["pixel_values"],
        16,
    ),
}


@pytest.fixture(
    params=[pytest.param(n, marks=pytest.mark.weekly if "grid" in n else ()) for n in BESIDE_TEXT]
)
def text_with_images(request):
    make, names, places = BESIDE_TEXT[request.param]
    torch.manual_seed(0)
    return make().eval(), ["input_ids", "attention_mask", *names], places


@pytest.mark.weekly
def test_an_image_has_as_many_places_in_the_text_as_the_model_makes_features_of_it(text_with_images):
    model, names, places = text_with_images
    inputs = example_inputs(model, input_names=names)
    assert list(inputs) == names
    assert inputs["input_ids"].shape == inputs["attention_mask"].shape == (2, places + 12)
    assert (inputs["input_ids"] == 5).sum(1).tolist() == [places, places]
    assert inputs["attention_mask"].sum(1).tolist() == [places + 12, places + 9]
    if "mm_token_type_ids" in inputs:
        assert torch.equal(inputs["mm_token_type_ids"] == 1, inputs["input_ids"] == 5)
    with torch.no_grad():
        model(**inputs)
    longer = example_inputs(model, input_names=names, sequence_length=20, batch_size=3)
    assert longer["input_ids"].shape == (3, places + 20)


@pytest.mark.filterwarnings("ignore::fxlab.tracing.TraceWarning")
@pytest.mark.parametrize(
    "text_with_images",
    [pytest.param(n, marks=() if "fixed" in n else pytest.mark.weekly) for n in BESIDE_TEXT],
    indirect=True,
)
def test_text_with_images_is_traced_for_texts_of_any_length_and_number(text_with_images):
    model, names, _ = text_with_images
    traced = symbolic_trace(model, example_inputs(model, input_names=names))
    for length in (9, 20):
        inputs = example_inputs(model, input_names=names, sequence_length=length)
        assert_agree(traced, model, inputs)
    assert_agree(traced, model, example_inputs(model, input_names=names, batch_size=3))


VIDEO_ON_A_GRID = ["pixel_values_videos", "video_grid_thw", "mm_token_type_ids"]


@pytest.mark.weekly
def test_frames_of_a_video_may_have_the_tokens_of_an_image():
    config = hf.Glm4vConfig(
        text_config={**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]}},
        vision_config={**GRIDS, "out_hidden_size": 32, "intermediate_size": 48, "image_size": 32},
        image_token_id=5,
        video_token_id=6,
    )
    model = hf.Glm4vModel(config).eval()
    inputs = example_inputs(model, input_names=["input_ids", *VIDEO_ON_A_GRID])
    assert (inputs["input_ids"] == 5).sum(1).tolist() == [4, 4]
    assert not bool((inputs["input_ids"] == 6).any())
    with torch.no_grad():
        model(**inputs)


AUDIO = {"d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 48}


def test_how_many_places_sound_has_is_read_off_what_a_model_says():
    config = hf.Qwen2AudioConfig(
        text_config={"model_type": "qwen2", **TEXT},
        audio_config={**AUDIO, "num_mel_bins": 8, "max_source_positions": 50},
        audio_token_index=5,
    )
    model = hf.Qwen2AudioModel(config).eval()
    names = ["input_ids", "attention_mask", "input_features", "feature_attention_mask"]
    inputs = example_inputs(model, input_names=names)
    assert (inputs["input_ids"] == 5).sum(1).tolist() == [25, 25]
    with torch.no_grad():
        assert model(**inputs).last_hidden_state.shape == (2, 37, 32)


PATCHES = {**WIDTHS, "num_key_value_heads": 2, "head_dim": 16, "patch_size": 8, "pooling_kernel_size": 3}
TOWERS = {
    "patches and where they are": (
        lambda: hf.Gemma4Model(gemma4()),
        ["pixel_values", "image_position_ids"],
        {"pixel_values": (2, 36, 192), "image_position_ids": (2, 36, 2)},
    ),
    "frames and where their patches are": (
        lambda: hf.Gemma4Model(gemma4()),
        ["pixel_values_videos", "video_position_ids", "num_frames_per_video"],
        {"pixel_values_videos": (4, 36, 192), "video_position_ids": (4, 36, 2), "num_frames_per_video": (2,)},
    ),
    "tiles of one image": (
        lambda: hf.MllamaModel(
            hf.MllamaConfig(
                text_config={**TEXT, "cross_attention_layers": [0], "pad_token_id": 1},
                vision_config={
                    **VISION,
                    "attention_heads": 2,
                    "num_global_layers": 1,
                    "intermediate_layers_indices": [0],
                    "vision_output_dim": 64,
                },
                image_token_index=5,
            )
        ),
        ["pixel_values", "aspect_ratio_ids", "aspect_ratio_mask", "cross_attention_mask"],
        {
            "pixel_values": (2, 1, 4, 3, 32, 32),
            "aspect_ratio_ids": (2, 1),
            "aspect_ratio_mask": (2, 1, 4),
            "cross_attention_mask": (2, 14, 1, 4),
        },
    ),
}


def gemma4():
    text = {**TEXT, "head_dim": 16, "global_head_dim": 16, "hidden_size_per_layer_input": 0}
    text |= {"num_kv_shared_layers": 0, "layer_types": ["full_attention"], "vocab_size_per_layer_input": 100}
    return hf.Gemma4Config(text_config=text, vision_config=PATCHES, image_token_id=5, video_token_id=6)


@pytest.mark.parametrize("kind", TOWERS)
def test_what_tells_the_parts_of_images_is_made_with_them(kind):
    make, names, shapes = TOWERS[kind]
    torch.manual_seed(0)
    model = make().eval()
    inputs = example_inputs(model, input_names=["input_ids", "attention_mask", *names])
    assert {name: tuple(inputs[name].shape) for name in names} == shapes
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():  # some keep images out at first
                parameter.fill_(0.1)
        one, other = model(**inputs), model(**inputs | {names[0]: inputs[names[0]] + 1})
    assert not torch.equal(one.last_hidden_state, other.last_hidden_state)


def test_what_images_need_beside_them_is_asked_for():
    make, *_ = BESIDE_TEXT["patches on a grid"]
    with pytest.raises(ValueError, match="name image_grid_thw in input_names"):
        example_inputs(make().eval(), input_names=["input_ids", "pixel_values"])


def test_text_alone_where_images_would_need_more_than_anybody_has_named():
    make, *_ = BESIDE_TEXT["patches on a grid"]
    assert list(example_inputs(make().eval())) == ["input_ids", "attention_mask"]


def test_features_of_the_same_images_are_made_once(monkeypatch):
    runs = []

    def run(model, call, inputs, **options):
        runs.append({name: tuple(tensor.shape) for name, tensor in inputs.items()})
        return run_on_fakes(model, call, inputs, **options)

    monkeypatch.setattr(input_module, "run_on_fakes", run)
    make, *_ = BESIDE_TEXT["patches on a grid"]
    names = ["input_ids", "pixel_values", "pixel_values_videos", "video_grid_thw"]
    with pytest.raises(ValueError, match="name image_grid_thw in input_names"):
        example_inputs(make().eval(), input_names=names)
    assert 0 < len(runs) == len({str(inputs) for inputs in runs})
