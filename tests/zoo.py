"""Tiny, randomly initialised models of transformers' own architectures."""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf
from torch import nn
from transformers.models.auto import modeling_auto as auto

_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
_TEXT = {**_SIZES, "vocab_size": 100}
_IMAGE = {**_SIZES, "image_size": 32, "patch_size": 8}


def bert_config(layers: int, **settings: Any) -> hf.BertConfig:
    """Return the configuration of a tiny BERT."""
    return hf.BertConfig(**{**_TEXT, "num_hidden_layers": layers, **settings})


def bert(layers: int, **settings: Any) -> nn.Module:
    """Return a tiny BERT that is not trained."""
    return hf.BertModel(bert_config(layers, **settings)).eval()


TEN: dict[str, Callable[[], nn.Module]] = {
    "bert": lambda: hf.BertModel(hf.BertConfig(**_TEXT)),
    "roberta": lambda: hf.RobertaModel(hf.RobertaConfig(**_TEXT)),
    "distilbert": lambda: hf.DistilBertModel(
        hf.DistilBertConfig(dim=32, n_layers=2, n_heads=2, hidden_dim=48, vocab_size=100)
    ),
    "gpt2": lambda: hf.GPT2Model(hf.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100)),
    "llama": lambda: hf.LlamaModel(hf.LlamaConfig(**_TEXT, num_key_value_heads=1)),
    "t5": lambda: hf.T5Model(
        hf.T5Config(d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, vocab_size=100)
    ),
    "vit": lambda: hf.ViTModel(hf.ViTConfig(**_IMAGE)),
    "resnet": lambda: hf.ResNetModel(
        hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], layer_type="basic")
    ),
    "clip": lambda: hf.CLIPModel(
        hf.CLIPConfig(text_config=dict(_TEXT), vision_config=dict(_IMAGE), projection_dim=16)
    ),
    "whisper": lambda: hf.WhisperModel(
        hf.WhisperConfig(
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            max_source_positions=20,
            vocab_size=100,
            num_mel_bins=8,
            pad_token_id=0,
            decoder_start_token_id=1,
        )
    ),
}
"""The ten architectures that everything is tried on first."""


def tiny(name: str) -> nn.Module:
    """Return one of the ten, in evaluation mode, with the same weights each time."""
    torch.manual_seed(0)
    return TEN[name]().eval()


# Every architecture


_WIDTHS = {
    "hidden_size|d_model|n_embd|embed_dim|emb_dim|dim|hidden_dim|embedding_size|decoder_hidden_size|encoder_hidden"
    "|encoder_hidden_size|out_hidden_size|output_hidden_size|width|model_dim|d_embed|decoder_hidden_dim"
    "|text_hidden_size|adapter_(in|out)_dim|projection_hidden_size": 64,
    "intermediate_size|ffn_dim|d_ff|encoder_ffn_dim|decoder_ffn_dim|n_inner|dim_feedforward|ffn_hidden_size"
    "|decoder_intermediate_size|shared_intermediate_size|encoder_intermediate_size": 96,
    "moe_intermediate_size|shared_expert_intermediate_size|expert_ffn_hidden_size": 32,
    "head_dim|d_kv|attention_head_size|qk_nope_head_dim|v_head_dim|kv_channels|linear_key_head_dim"
    "|linear_value_head_dim|linear_head_dim|index_head_dim|global_head_dim|swa_head_dim|dim_head|d_head"
    "|attention_head_dim|cross_head_dim|rotary_dim": 16,
    "qk_rope_head_dim": 16,
    "qk_head_dim": 32,
    "q_lora_rank|kv_lora_rank": 16,
    "projection_dim|projector_hidden_size": 32,
    "projection_size": 64,
    "max_2d_position_embeddings": 128,
    "base_channels": 32,
    "output_channels": 64,
    "num_pos_feats": 32,
    "coordinate_size": 8,
    "shape_size": 16,
}
_HEADS = {
    "num_attention_heads|n_head|num_image_attention_heads|n_heads|num_heads|encoder_attention_heads"
    "|decoder_attention_heads|decoder_num_attention_heads|encoder_num_attention_heads"
    "|num_decoder_attention_heads|attention_heads|linear_num_value_heads|linear_num_heads|index_n_heads"
    "|cross_num_attention_heads|swa_num_attention_heads": 4,
    "num_key_value_heads|linear_num_key_heads|num_kv_heads|cross_num_key_value_heads"
    "|swa_num_key_value_heads": 2,
}
_EQUAL_HEADS = {"|".join(_HEADS): 4}
_EXPERTS = {
    "num_local_experts|num_experts|n_routed_experts|moe_num_experts|num_routed_experts": 4,
    "num_experts_per_tok|num_experts_per_token|moe_topk|moe_top_k|top_k_experts|moe_k": 2,
    "n_group|topk_group|num_expert_group|n_shared_experts|moe_num_shared_experts": 1,
    "first_k_dense_replace|moe_layer_start_index": 1,
    "index_topk": 4,
    "num_kv_shared_layers": 0,
}
_LAYERS = (
    r"num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|num_encoder_layers|depth|layers"
    r"|num_decoder_layers|num_blocks|num_hidden_blocks|decoder_num_hidden_layers|encoder_num_hidden_layers"
    r"|num_encoder_blocks_per_stage|speech_encoder_layers|t2u_encoder_layers|t2u_decoder_layers"
    r"|conf_num_hidden_layers|num_layers_per_stack|num_self_attends_per_block"
)
_VOCABULARY = {
    "vocab_size|vocab_size_per_layer_input|(text|src|tgt|decoder|entity|t2u|char)_vocab_size"
    "|encoder_hash_byte_group_vocab|ngram_vocab_size_base": 160
}
_LENGTHS = {
    "image_size|input_size|img_size": 64,
    "patch_size": 16,
    "image_embedding_size": 4,
    "num_queries|two_stage_num_proposals|num_detection_tokens": 10,
    "num_query_tokens|latent_query_num|resampler_n_latents": 4,
    "num_frames|frames_per_clip": 4,
    "max_source_positions": 100,
    "context_length": 128,
    "chunk_size|mamba_chunk_size|ssm_state_size|mamba_d_state|state_size": 16,
}
"""Lengths other than those of text."""
_NARROWED = (
    r"(\w+_)?(hidden|intermediate|embedding|head|ffn|inner|latent|model)_(size|dim)s?"
    r"|(\w+_)?(dims?|channels?|dimension)|\w+_(rank|units|width|filters)|dim_\w+|width|dff"
    r"|d_(model|ff|kv|inner|latents|embed)|\w*d_head|n_(embd|inner)|mamba_headdim|lru_width"
    r"|upsample_groups|embed_dim_per_stage|backbone_channel_list"
)
"""Names of what is divided where the widths of a model hang together in a way that no table says."""
_NOT_NARROWED = r"num_channels|pos_emb_width|image_embedding_size|mask_input_channels"
_OF_LAYERS = r"(\w+_)?(layer_ids|(layers?|attn|block)_ind(ic|ex)es|layer_idxs|full_attn_idxs|visual_indexes)"
"""Names of lists of the numbers of layers."""
_IF_NONE = {
    "context_length": 8,
    "vocab_size": 160,
    "prediction_length": 8,
    "num_experts_per_tok": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "image_token_id": 4,
    "video_token_id": 5,
    "audio_token_id": 6,
}
"""What is left to the user."""
_LARGEST = 300_000_000


@dataclass(frozen=True)
class _Rung:
    """How far the settings of an architecture are brought down."""

    largest: tuple[dict[str, int], ...]
    """Names of settings -> the largest that they may be."""
    layers: int
    divisor: int = 1
    """What every width is divided by, so that those that hang together go on doing so."""


_ALL = (_WIDTHS, _HEADS, _EXPERTS, _VOCABULARY, _LENGTHS)
_ALL_EQUAL_HEADS = (_WIDTHS, _EQUAL_HEADS, _EXPERTS, _VOCABULARY, _LENGTHS)
_RUNGS = (
    _Rung(_ALL, 2, divisor=16),
    _Rung(_ALL, 2),
    _Rung(_ALL_EQUAL_HEADS, 2, divisor=16),
    _Rung(_ALL_EQUAL_HEADS, 2),
    _Rung((_EXPERTS, _VOCABULARY, _LENGTHS), 2, divisor=16),
    _Rung((_EXPERTS, _VOCABULARY, _LENGTHS), 2, divisor=8),
    _Rung((_WIDTHS, _HEADS, _EXPERTS, _VOCABULARY), 2),
    _Rung((_EXPERTS, _VOCABULARY), 2, divisor=8),
    _Rung(_ALL_EQUAL_HEADS, 8),
    _Rung((_VOCABULARY, _LENGTHS), 2),
    _Rung((_VOCABULARY,), 2),
)
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}

_SWIN = {"embed_dim": 16, "hidden_size": 128, "window_size": 2, "num_heads": [2, 2, 2, 2]}

_IMAGE_WORDS = {"<image>": 4, **{f"IMGIMG{chr(65 + n // 10)}{chr(65 + n % 10)}Z": n + 64 for n in range(64)}}
_TILES = {"image_grid_pinpoints": [[64, 128], [128, 64]]}

_EXCEPTIONS: dict[str, dict[str, Any]] = {
    "align_vision_model": {"width_coefficient": 0.1, "depth_coefficient": 0.1},
    "aria": {"projector_patch_to_query_dict": {16: 4}, "max_value_projector_patch_to_query_dict": 4},
    "bamba": {"attn_layer_indices": [1]},
    "blip-2": {"image_token_id": 4},
    "blt": {
        "num_hidden_layers": 2,
        "cross_attn_k": 1,
        "encoder_config.cross_attn_k": 1,
        "decoder_config.cross_attn_k": 1,
        "encoder_config.hidden_size_global": 64,
        "decoder_config.hidden_size_global": 64,
    },
    "chameleon": {"vocabulary_map": _IMAGE_WORDS, "vq_config.num_embeddings": 64, "vq_config.resolution": 64},
    "clap_audio_model": {"patch_embeds_hidden_size": 8, "num_attention_heads": [2, 2, 2, 2]},
    "clvp_encoder": {"num_attention_heads": 2},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {**_ROPE, "mrope_section": [4, 2, 2]}}},
    "dac": {"encoder_hidden_size": 8, "decoder_hidden_size": 64, "hidden_size": 128},
    "dbrx": {"attn_config.rope_theta": 10000.0, "attn_config.clip_qkv": 8.0},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"]},
    "depth_pro": {
        "image_size": 256,
        "patch_size": 64,
        "merge_padding_value": 0,
        "intermediate_hook_ids": [1, 0],
    },
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32},
    "emu3": {
        "vocabulary_map": {
            "<image>": 4,
            "<|extra_200|>": 5,
            **{f"<|visual token {n:06}|>": n + 64 for n in range(64)},
        },
        "vq_config.codebook_size": 64,
        "vq_config.hidden_size": 128,
    },
    "ernie4_5_vl_moe_text": {"rope_parameters": {**_ROPE, "mrope_section": [3, 3, 2]}},
    "efficientnet": {"width_coefficient": 0.05, "depth_coefficient": 0.1, "hidden_dim": 64},
    "esm": {"pad_token_id": 1, "mask_token_id": 2},
    "funnel": {"architectures": ["FunnelModel"]},
    "granite4_vision": {**_TILES, "deepstack_layer_map": [[-1, 0]], "downsample_rate": "1/2"},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "hrm_text": {"num_hidden_layers": 16},
    "instructblip": {"image_token_id": 4},
    "instructblipvideo": {"video_token_id": 4},
    "glm_image": {"vq_config.latent_channels": 64, "vq_config.num_embeddings": 64},
    "janus": {"vision_config.projection_dim": 64},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "lightglue": {
        "image_size": 64,
        "descriptor_dim": 64,
        "intermediate_size": 128,
        "keypoint_detector_config.descriptor_decoder_dim": 64,
        "keypoint_detector_config.keypoint_decoder_dim": 65,
    },
    "llama4": {"vision_config.intermediate_size": 256, "vision_config.vision_output_dim": 256},
    "lw_detr": {"projector_scale_factors": [1.0], "num_feature_levels": 1},
    "minimax_m3_vl": {"merged_hidden_size": 256},
    "mllama": {"vision_config.vision_output_dim": 128},
    "moonshine_streaming": {"num_key_value_heads": 4},
    "neucodec": {"num_key_value_heads": 4},
    **dict.fromkeys(("llava_next", "llava_next_video", "llava_onevision"), _TILES),
    "qwen2_5_omni_thinker": {"vision_start_token_id": 3},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 3},
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 4,
    },
    "florence2": {"vision_config.projection_dim": 64},
    "gemma3": {"mm_tokens_per_image": 4},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "step3p5": {"sliding_window": 4},
    **dict.fromkeys(("donut-swin", "maskformer-swin", "swin", "swinv2"), _SWIN),
    "t5gemma2_text": {"dropout_rate": 0.0},
    "uvdoc_backbone": {"out_indices": [1, 2, 3, 4, 5, 6]},
    "xcodec": {"codebook_dim": 192},
    "xmod": {"default_language": "en_XX"},
    # The second of the layers that share their weights is what is tied to the first.
    "zamba": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2},
}
"""Type of a model or of a part of one -> settings that no rule finds."""

_TASKS: dict[str, tuple[Any, Mapping[str, Any]]] = {
    "base": (hf.AutoModel, auto.MODEL_MAPPING_NAMES),
    "causal-lm": (hf.AutoModelForCausalLM, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    "seq2seq-lm": (hf.AutoModelForSeq2SeqLM, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
    "masked-lm": (hf.AutoModelForMaskedLM, auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES),
    "sequence-classification": (
        hf.AutoModelForSequenceClassification,
        auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    ),
    "token-classification": (
        hf.AutoModelForTokenClassification,
        auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    ),
    "question-answering": (hf.AutoModelForQuestionAnswering, auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES),
    "image-classification": (
        hf.AutoModelForImageClassification,
        auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    ),
    "object-detection": (hf.AutoModelForObjectDetection, auto.MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES),
    "semantic-segmentation": (
        hf.AutoModelForSemanticSegmentation,
        auto.MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES,
    ),
    "ctc": (hf.AutoModelForCTC, auto.MODEL_FOR_CTC_MAPPING_NAMES),
    "audio-classification": (
        hf.AutoModelForAudioClassification,
        auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES,
    ),
    "speech-seq2seq": (hf.AutoModelForSpeechSeq2Seq, auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES),
    "image-text-to-text": (hf.AutoModelForImageTextToText, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES),
}
"""Name of a task -> the class that makes its models, and the architectures that have one."""

SHRINKS = range(len(_RUNGS))
"""What ``shrink`` may be, the smallest first."""


def tasks() -> list[str]:
    """Return the names of what a model can be made for; ``base`` is a model without a head."""
    return list(_TASKS)


def model_types(task: str = "base") -> list[str]:
    """Return the name of every architecture that transformers can make a model for a task of."""
    return sorted(_TASKS[task][1])


def tiny_of_type(model_type: str, *, task: str = "base", shrink: int = 0) -> nn.Module:
    """Return a small model of an architecture, in evaluation mode, with the same weights each time.

    Parameters
    ----------
    model_type
        One of :func:`model_types`.
    task
        One of :func:`tasks`: which head the model has.
    shrink
        One of :data:`SHRINKS`: 0 for the smallest, more for architectures whose settings hang together.
    """
    torch.manual_seed(0)
    auto_class, _ = _TASKS[task]
    config = tiny_config(model_type, shrink=shrink)
    with torch.device("meta"):
        size = sum(p.numel() for p in auto_class.from_config(copy.deepcopy(config)).parameters())
    if size > _LARGEST:
        raise ValueError(f"the smallest {model_type} that its settings allow has {size:,} parameters")
    return auto_class.from_config(config).eval()


def tiny_config(model_type: str, *, shrink: int = 0) -> Any:
    """Return a small configuration of an architecture."""
    return _shrunk(hf.CONFIG_MAPPING[model_type](), _RUNGS[shrink])


def _shrunk(config: Any, rung: _Rung) -> Any:
    given = {name: value for name, value in vars(config).items() if not name.startswith("_")}
    depths = {value for name, value in given.items() if _is_number(value) and re.fullmatch(_LAYERS, name)}
    # Configurations of stages have lists with an item for each stage, and all of the stages stay.
    depths -= {len(given.get("depths") or [])}
    kinds = {
        name: list(dict.fromkeys(value))
        for name, value in given.items()
        if isinstance(value, list | tuple) and len(value) in depths and all(isinstance(v, str) for v in value)
    }
    stages = (
        len(_get(config, "out_indices") or []) if len(given.get("stage_names") or []) - 1 in depths else 0
    )
    layers = max(rung.layers, stages, *map(len, kinds.values())) if kinds else max(rung.layers, stages)
    for name, value in given.items():
        if isinstance(value, hf.PretrainedConfig):
            _set(config, name, _shrunk(value, rung))
        elif name in kinds:
            # One layer of each kind.
            _set(config, name, [*kinds[name], *value][:layers])
        else:
            _set(config, name, _smaller(name, value, rung, layers, depths))
    if stages:
        _set(config, "stage_names", ["stem", *(f"stage{number + 1}" for number in range(layers))])
        _set(config, "out_indices", list(range(layers - stages + 1, layers + 1)))
    _fill_heads(config, given)
    _fit_rotary(config)
    _fit_tokens(config, given)
    for name, value in _EXCEPTIONS.get(config.model_type, {}).items():
        *parts, last = name.split(".")
        _set(functools.reduce(getattr, parts, config), last, copy.deepcopy(value))
    return config


def _smaller(name: str, value: Any, rung: _Rung, layers: int, depths: set[int]) -> Any:
    """Return a setting, brought down."""
    if value is None:
        return _IF_NONE.get(name)
    if isinstance(value, list | tuple):
        return _smaller_list(name, value, rung, layers, depths)
    if not _is_number(value):
        return value
    if re.fullmatch(_LAYERS, name):
        return min(value, layers) if value in depths else value
    for table in rung.largest:
        for names, largest in table.items():
            if re.fullmatch(names, name):
                return min(value, largest)
    return _narrowed(value, rung) if _is_width(name) else value


def _smaller_list(name: str, value: Any, rung: _Rung, layers: int, depths: set[int]) -> Any:
    kind = type(value)
    if name == "depths":
        return kind(1 for _ in value)
    if name in ("num_heads", "num_attention_heads") and _WIDTHS in rung.largest:
        return kind(2 for _ in value)
    if len(value) in depths:
        return kind(value[:layers])
    if re.fullmatch(_OF_LAYERS, name) and all(map(_is_number, value)) and value:
        return kind(index for index in value if index < layers) or kind([layers - 1])
    return _narrowed(value, rung) if _is_width(name) else value


def _is_width(name: str) -> bool:
    return re.fullmatch(_NARROWED, name) is not None and re.fullmatch(_NOT_NARROWED, name) is None


def _narrowed(value: Any, rung: _Rung) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_narrowed(item, rung) for item in value)
    return max(2, value // rung.divisor) if _is_number(value) and value >= 16 else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _get(config: Any, name: str, default: Any = None) -> Any:
    # Configurations raise errors of their own for what differs from layer to layer.
    try:
        return getattr(config, name, default)
    except Exception:
        return default


def _fill_heads(config: Any, given: dict[str, Any]) -> None:
    """Set what follows from the number of heads where it was left out."""
    heads, width = _get(config, "num_attention_heads"), _get(config, "hidden_size")
    if isinstance(heads, int) and isinstance(width, int):
        for name, value in {"num_key_value_heads": heads, "head_dim": width // heads}.items():
            if name in given and given[name] is None:
                _set(config, name, value)


def _fit_rotary(config: Any) -> None:
    """Let the sections of a rotary embedding for images add up to half of what is rotated."""
    rope = _get(config, "rope_parameters")
    heads, width = _get(config, "num_attention_heads"), _get(config, "hidden_size")
    size = _get(config, "head_dim") or (width // heads if heads and width and _is_number(heads) else None)
    if not (isinstance(rope, dict) and rope and _is_number(size)) or any(map(_is_dict, rope.values())):
        return
    half = int(size * (rope.get("partial_rotary_factor") or 1)) // 2
    given = rope.get("mrope_section") or [24, 20, 20]
    sections = [half * section // sum(given) for section in given]
    # Height and width have sections of the same size; time, that of another, takes the rest.
    time = next((place for place, section in enumerate(given) if given.count(section) == 1), 0)
    sections[time] += half - sum(sections)
    _set(config, "rope_parameters", {**rope, "mrope_section": sections})


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _fit_tokens(config: Any, given: dict[str, Any]) -> None:
    """Put the ids of special tokens into the vocabulary."""
    vocabulary = _get(config, "vocab_size") or _get(_get(config, "text_config"), "vocab_size")
    for name, value in given.items():
        is_token = re.search(r"_token_(id|index)$|_id$", name) is not None
        if is_token and isinstance(value, int) and isinstance(vocabulary, int) and value >= vocabulary:
            _set(config, name, _token(name))


def _token(name: str) -> int:
    """Return an id below those of ordinary words, another for each kind of special token."""
    return 1 + sum(map(ord, name)) % 9


def _set(config: Any, name: str, value: Any) -> None:
    with contextlib.suppress(AttributeError, NotImplementedError, TypeError, ValueError):
        setattr(config, name, value)
