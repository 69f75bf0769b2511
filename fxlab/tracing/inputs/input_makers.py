"""Makers of single example inputs of a model of transformers: by their names, from its configuration."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

_SEED = 0
_TOKEN = r"_token_(id|index)$"
"""Ends the name of a setting that is a token."""
_SPECIAL_TOKENS = 10
"""Ids below this are left to padding and other special tokens where the vocabulary is large enough."""
FRAMES = 100
"""The time steps of a spectrogram, where the configuration leaves them open."""
SAMPLES = 8000
"""The samples of a waveform."""
GRID = 4
"""The patches of an image, down and across."""
FRAMES_OF_VIDEO = 2
"""The frames of a video, for models that take their number with it."""


@dataclass(frozen=True)
class Places:
    """The tokens at the front of each sequence that stand for an image, a video or sound."""

    token: int
    """The id that each of them has."""
    count: int
    kind: int
    """Their number in ``mm_token_type_ids``."""


@dataclass
class InputMaker:
    """Makes single inputs of a model; the same ones each time after :meth:`restart`."""

    model: nn.Module
    batch_size: int
    asked_length: int | None

    def __post_init__(self) -> None:
        self.config: Any = self.model.config
        first = next(iter(self.model.parameters()), torch.empty(0, device="cpu"))
        self.device = torch.device("cpu") if first.is_meta else first.device
        floating = (p.dtype for p in self.model.parameters() if p.is_floating_point())
        self.dtype = next(floating, torch.float32)
        self.random = torch.Generator()
        self.in_front: list[Places] = []
        # A method and its inputs -> the number of features it made of them, and its error.
        self.counted: dict[Hashable, tuple[int | None, str]] = {}
        self.restart()

    def restart(self) -> None:
        """Begin again with the first of the random numbers."""
        self.random.manual_seed(_SEED)

    def parts(self) -> list[Any]:
        """Return the configuration and its parts, those first that say most about the inputs."""
        first = ("text_config", "vision_config", "audio_config", "decoder", "encoder")
        named = [getattr(self.config, part, None) for part in first]
        return [self.config, *named, *_parts_of(self.config)]

    def setting(self, *names: str, default: Any = None) -> Any:
        """Return the first of several settings that the configuration, or a part of it, has a value for."""
        parts = self.parts()
        values = (getattr(part, name, None) for name in names for part in parts)
        return next((value for value in values if value is not None), default)

    def number(self, *names: str, default: int) -> int:
        """Return a setting that is a whole number; of a list, the first."""
        value = self.setting(*names, default=default)
        return int(value[0] if isinstance(value, list | tuple) and value else value or default)

    def floats(self, *shape: int) -> torch.Tensor:
        """Return random numbers, a row for each of the batch."""
        return self.flat(self.batch_size, *shape)

    def flat(self, *shape: int) -> torch.Tensor:
        """Return random numbers, whose first dimension is not the batch."""
        return torch.randn(*shape, generator=self.random).to(self.dtype)

    # Text

    def length(self) -> int:
        """Return the number of tokens, with those that stand for images and the like."""
        return self.text_length() + sum(places.count for places in self.in_front)

    def text_length(self) -> int:
        """Return the number of tokens of text."""
        if self.asked_length is not None:
            return self.asked_length
        positions = self.number("max_position_embeddings", "n_positions", default=-1)
        if positions < 0:  # without a limit
            return 12
        # Some models keep the first positions for padding.
        return max(1, min(12, positions - 2 if positions > 4 else positions))

    def ids(self) -> torch.Tensor:
        """Return the ids of tokens; padding where the mask is 0."""
        if self.setting("num_codebooks") and self.setting("codebook_vocab_size"):
            # The audio codes of each time beside its token.
            codes = min(self.number("codebook_vocab_size", default=2), self.number("vocab_size", default=2))
            return self.words(codes, self.length(), int(self.setting("num_codebooks")) + 1)
        vocabulary = int(self.setting("vocab_size", default=2))
        ids = self.words(vocabulary)
        end, padding = self.setting("eos_token_id"), self.setting("pad_token_id")
        if getattr(self.config, "is_encoder_decoder", False) and _is_id(end, vocabulary):
            # Some heads read the hidden state where a sequence ends, of which there must be one.
            ids = ids.masked_fill(ids == end, (end + 1) % vocabulary)
            ids = ids.scatter(1, self.mask().sum(1, keepdim=True) - 1, end)
        if _is_id(padding, vocabulary):
            ids = ids.masked_fill(self.mask() == 0, padding)
        front = [torch.full((self.batch_size, places.count), places.token) for places in self.in_front]
        return torch.cat([*front, ids[:, self.length() - self.text_length() :]], 1)

    def words(self, vocabulary: int, *shape: int) -> torch.Tensor:
        """Return ids of any vocabulary, none of them special where it is large enough."""
        low = _SPECIAL_TOKENS if vocabulary > 2 * _SPECIAL_TOKENS else 0
        shape = shape or (self.length(),)
        words = torch.randint(low, vocabulary, (self.batch_size, *shape), generator=self.random)
        special = self.special_tokens()
        ordinary = next((token for token in range(low, vocabulary) if token not in special), low)
        return words.masked_fill(torch.isin(words, torch.tensor(sorted(special))), ordinary)

    def special_tokens(self) -> set[int]:
        """Return the ids of tokens that the configuration has a name for: images are put in their places."""
        settings = (setting for part in self.parts() if part is not None for setting in vars(part).items())
        return {
            token for name, token in settings if re.search(_TOKEN, name) and type(token) is int and token >= 0
        }

    def decoder_ids(self) -> torch.Tensor:
        """Return ids for the decoder."""
        decoder: Any = getattr(self.config, "decoder_config", None)
        channels = getattr(decoder, "num_channels", None)
        # Several audio codes at each time.
        return self.ids() if channels is None else self.words(decoder.vocab_size, self.length(), channels)

    def question(self) -> torch.Tensor:
        """Return ids for the transformer that asks an image."""
        part = getattr(self.config, "qformer_config", self.config)
        return self.words(int(getattr(part, "vocab_size", 2)))

    def ids_and_images(self) -> torch.Tensor:
        """Return ids with the places for an image in front."""
        ids, image = self.ids(), self.setting("image_token_id", "image_token_index", "video_token_id")
        count = self.number("num_query_tokens", "image_seq_length", "mm_tokens_per_image", default=1)
        if self.setting("image_token_id", "image_token_index") is None:
            count *= self.number("num_frames", default=2)
        places = torch.full((self.batch_size, count), int(image or 0))
        return torch.cat([places, ids[:, count:]], 1)

    def mask(self) -> torch.Tensor:
        """Return a mask that leaves out the end of every second sequence."""
        length = self.length()
        padded = max(1, length - max(1, self.text_length() // 4))
        real = torch.tensor([padded if row % 2 else length for row in range(self.batch_size)])
        return (torch.arange(length) < real[:, None]).long()

    def ones(self, *shape: int) -> torch.Tensor:
        """Return ones, as many as there are tokens or in another shape."""
        return torch.ones(self.batch_size, *shape, dtype=torch.long)

    def zeros(self, *shape: int) -> torch.Tensor:
        """Return zeros, a row for each of the batch."""
        return torch.zeros(self.batch_size, *shape, dtype=torch.long)

    def kinds(self) -> torch.Tensor:
        """Return the kind that each token stands for: zero is text."""
        text = torch.zeros(self.text_length(), dtype=torch.long)
        kinds = torch.cat([*(torch.full((p.count,), p.kind) for p in self.in_front), text])
        return kinds.repeat(self.batch_size, 1)

    def positions(self) -> torch.Tensor:
        """Return where each token stands."""
        return torch.arange(self.length()).repeat(self.batch_size, 1)

    def width(self) -> int:
        """Return the size of the hidden states."""
        return self.number("hidden_size", "d_model", default=1)

    # Images

    def image(self, part: str | None = None) -> torch.Tensor:
        """Return images of the size that the configuration, or a part of it, names."""
        size = getattr(getattr(self.config, part or "", None), "image_size", None)
        size = size or self.setting("image_size", "max_img_size", "input_size", "resolution", default=224)
        height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
        return self.floats(self.channels(), int(height), int(width))

    def images_in_tiles(self) -> torch.Tensor:
        """Return one image for each prompt of a batch, which has one tile and room for more."""
        return torch.stack([self.image() for _ in range(self.number("max_num_tiles", default=1))], 1)[:, None]

    def first_tile(self, *shape: int) -> torch.Tensor:
        """Return a mask of the first of the tiles of each image."""
        tiles = torch.arange(self.number("max_num_tiles", default=1)) == 0
        return tiles.long().repeat(self.batch_size, *shape, 1)

    def image_places(self) -> torch.Tensor:
        """Return a mask of the tokens that stand for an image."""
        count = min(self.number("latent_query_num", "num_query_tokens", default=1), self.length())
        return (torch.arange(self.length()) < count).repeat(self.batch_size, 1)

    def upper_half(self) -> torch.Tensor:
        """Return one of two images that are put on top of each other to make one of the right size."""
        image = self.image()
        return image[..., : image.shape[-2] // 2, :]

    def video(self) -> torch.Tensor:
        """Return several frames for each of the batch."""
        image = self.image()
        return self.floats(self.number("num_frames", default=2), *image.shape[1:])

    def channels(self) -> int:
        """Return the number of colours."""
        return self.number("num_channels", "in_channels", "in_chans", default=3)

    def patch(self) -> int:
        """Return the height and width of a patch."""
        return self.number("patch_size", default=16)

    def patches(self, frames: int) -> torch.Tensor:
        """Return the patches of all images in one row, as vision towers take them that know a grid."""
        count = self.batch_size * GRID * GRID
        return self.flat(count, self.channels() * frames * self.patch() ** 2)

    def side(self) -> int:
        """Return the patches of an image, down and across, where several may be pooled."""
        return _rounded(GRID, self.number("pooling_kernel_size", default=1))

    def patches_beside_padding(self, frames: int = 1) -> torch.Tensor:
        """Return the patches of each image, or frame of a video, in a row of its own."""
        return self.flat(self.batch_size * frames, self.side() ** 2, self.channels() * self.patch() ** 2)

    def strip(self) -> torch.Tensor:
        """Return the patches of all images side by side, as one image that is one patch high."""
        return self.flat(1, self.channels(), self.patch(), self.batch_size * GRID * GRID * self.patch())

    def merged_patches(self) -> torch.Tensor:
        """Return squares of several patches each, with the channels last."""
        size = self.patch() * self.number("spatial_merge_size", default=1)
        return self.flat(self.batch_size * GRID * GRID, size, size, self.channels())

    def grid(self) -> torch.Tensor:
        """Return the number of patches of each image: in time, down and across."""
        return torch.tensor([[1, GRID, GRID]] * self.batch_size)

    def places(self) -> torch.Tensor:
        """Return where in its image each patch is: across and down."""
        rows = [[across, down] for down in range(self.side()) for across in range(self.side())]
        return torch.tensor([rows] * self.batch_size)

    # Sound

    def bins(self) -> int:
        """Return the frequencies of a spectrogram."""
        names = ("input_feat_per_channel", "feature_projection_input_dim", "num_mel_bins", "n_mels")
        return self.number(*names, "input_feat_size", "feature_size", default=80)

    def frames(self) -> int:
        """Return the time steps of a spectrogram."""
        positions = self.setting("max_source_positions")
        # Whisper and its kin: two convolutions halve the time axis to the number of positions.
        return 2 * int(positions) if positions and self.setting("num_mel_bins") else FRAMES

    def stacked_frames(self, count: int) -> torch.Tensor:
        """Return a spectrogram that has several steps in one."""
        return self.floats(FRAMES, self.bins() * count)

    def even_frames(self) -> torch.Tensor:
        """Return a spectrogram whose length may be halved several times."""
        return self.floats(_rounded(FRAMES, 32), self.bins())

    def even_waveform(self) -> torch.Tensor | None:
        """Return a waveform that can be cut into patches."""
        patches = self.setting("patch_sizes")
        return None if patches is None else self.floats(_rounded(SAMPLES, math.prod(patches)))

    def latents(self, name: str) -> torch.Tensor:
        """Return the latents that a decoder of sound starts from."""
        return self.floats(self.number(name, default=self.width()), self.length())

    # Time series

    def past_length(self) -> int:
        """Return how many steps of the past a forecast starts from."""
        lags = self.setting("lags_sequence", default=[0])
        return int(self.number("context_length", default=FRAMES) + max([0, *lags]))

    def series(self, steps: int) -> torch.Tensor:
        """Return a time series, of several channels where the model takes several."""
        channels = self.setting("num_input_channels", "input_size")
        one_only = channels is None or (self.setting("num_input_channels") is None and channels == 1)
        return self.floats(steps) if one_only else self.floats(steps, int(channels))

    def action_embeddings(self) -> torch.Tensor:
        """Return the embeddings of the next actions of a robot."""
        part = getattr(self.config, "dit_config", self.config)
        return self.floats(self.number("chunk_size", default=GRID), int(getattr(part, "hidden_size", 1)))

    def future_length(self) -> int:
        """Return how many steps are forecast."""
        return self.number("prediction_length", default=1)

    def time_features(self, steps: int) -> torch.Tensor:
        """Return the features of the time of each step."""
        return self.floats(steps, int(self.setting("num_time_features", default=0)))


def _parts_of(config: Any) -> list[Any]:
    parts = [part for part in vars(config).values() if hasattr(part, "to_dict")]
    return parts + [inner for part in parts for inner in _parts_of(part)]


def _is_id(token: Any, vocabulary: int) -> bool:
    return isinstance(token, int) and 0 <= token < vocabulary


def _rounded(number: int, step: int) -> int:
    """Return a number made larger until it is a multiple."""
    return -(-number // step) * step


Make = Callable[[InputMaker], torch.Tensor | None]
"""Makes an input; nothing if the configuration says that it is of another shape."""

_SPECTROGRAMS: tuple[Make, ...] = (
    # Of the one length that a model has positions for.
    lambda maker: None if maker.frames() == FRAMES else maker.floats(maker.bins(), maker.frames()),
    lambda maker: maker.floats(FRAMES, maker.bins()),
    lambda maker: maker.floats(maker.bins(), FRAMES),
    InputMaker.even_frames,
    lambda maker: maker.floats(1, 10 * FRAMES + 1, maker.bins()),
    lambda maker: maker.stacked_frames(maker.number("num_stacked_frames", default=2)),
    lambda maker: maker.stacked_frames(4),
    lambda maker: maker.floats(FRAMES, 128),
    # Eight steps for each token.
    lambda maker: maker.floats(maker.bins(), 8 * maker.length()),
)
_EMBEDDINGS: tuple[Make, ...] = (lambda maker: maker.floats(maker.length(), maker.width()),)
_PATCHES: tuple[Make, ...] = (
    lambda maker: maker.patches(maker.number("temporal_patch_size", "patch_temporal", default=1)),
    lambda maker: maker.patches(2),
    lambda maker: maker.flat(maker.batch_size * GRID * GRID, maker.channels(), maker.patch(), maker.patch()),
    InputMaker.merged_patches,
)

MAKERS: dict[str, tuple[Make, ...]] = {
    # Text
    "input_ids": (InputMaker.ids,),
    "decoder_input_ids": (InputMaker.decoder_ids,),
    "attention_mask": (InputMaker.mask,),
    "decoder_attention_mask": (InputMaker.mask,),
    "token_type_ids": (InputMaker.kinds,),
    "mm_token_type_ids": (InputMaker.kinds,),
    "moe_mm_token_type_ids": (InputMaker.kinds,),
    "position_ids": (InputMaker.positions,),
    "inputs_embeds": _EMBEDDINGS,
    "labels": (InputMaker.ids,),
    "bbox": (lambda maker: maker.zeros(maker.length(), 4),),
    "task_inputs": (
        lambda maker: maker.words(
            maker.number("text_encoder_vocab_size", default=2), maker.number("task_seq_len", default=12)
        ),
    ),
    # Images
    "pixel_values": (
        InputMaker.image,
        InputMaker.video,
        lambda maker: maker.image()[:, None],  # one for each prompt
        lambda maker: torch.stack([maker.image() for _ in range(3)], 1),  # a small one, and parts of it
        InputMaker.patches_beside_padding,
    ),
    "high_res_pixel_values": (lambda maker: maker.image("high_res_vision_config"),),
    "pixel_values_videos": (InputMaker.video,),
    "image_sizes": (lambda maker: maker.ones().new_tensor([maker.image().shape[-2:]] * maker.batch_size),),
    "images_per_sample": (lambda maker: 2 * maker.ones(1)[:, 0],),
    # The sizes of images in tiles: one each.
    "aspect_ratio_ids": (lambda maker: maker.ones(1),),
    "aspect_ratio_mask": (lambda maker: maker.first_tile(1),),
    "cross_attention_mask": (lambda maker: maker.first_tile(maker.length(), 1),),
    "prompt_pixel_values": (InputMaker.upper_half,),
    "prompt_masks": (InputMaker.upper_half,),
    "hidden_states": (
        *_PATCHES[:2],
        # Those of sound, time last; a waveform.
        lambda maker: maker.floats(maker.width(), FRAMES),
        lambda maker: maker.floats(1, SAMPLES),
    ),
    "grid_thw": (InputMaker.grid,),
    "image_grid_thw": (InputMaker.grid,),
    "video_grid_thw": (InputMaker.grid,),
    "merge_sizes": (lambda maker: maker.ones(),),
    "image_merge_sizes": (lambda maker: maker.ones(),),
    "video_merge_sizes": (lambda maker: maker.ones(),),
    "pixel_position_ids": (InputMaker.places,),
    "image_position_ids": (InputMaker.places,),
    "video_position_ids": (lambda maker: maker.places().repeat(FRAMES_OF_VIDEO, 1, 1),),
    "num_frames_per_video": (lambda maker: FRAMES_OF_VIDEO * maker.ones(),),
    "pixel_attention_mask": (
        lambda maker: maker.ones(maker.side() ** 2),
        # One image for each prompt.
        lambda maker: maker.ones(1).bool(),
        lambda maker: maker.ones(1, *maker.image().shape[-2:]).bool(),
    ),
    "image_attention_mask": (lambda maker: maker.ones(maker.length(), 1),),
    "spatial_shapes": (lambda maker: maker.grid()[:, 1:],),
    "target_sizes": (lambda maker: maker.grid()[:, 1:],),
    "target_sizes_videos": (lambda maker: maker.grid()[:, 1:],),
    "visual_feats": (
        lambda maker: maker.floats(GRID, maker.number("visual_feat_dim", "visual_embedding_dim", default=1)),
    ),
    "visual_pos": (lambda maker: maker.floats(GRID, 4),),
    # Queries to images
    "query_embeds": (
        lambda maker: maker.floats(maker.number("num_query_tokens", default=GRID), maker.width()),
    ),
    "encoder_hidden_states": (
        lambda maker: maker.floats(GRID, maker.number("encoder_hidden_size", default=maker.width())),
    ),
    "qformer_input_ids": (InputMaker.question,),
    "qformer_attention_mask": (InputMaker.mask,),
    "image_embeds_position_mask": (InputMaker.image_places,),
    # Sound
    "input_features": _SPECTROGRAMS,
    "input_features_mask": (
        lambda maker: maker.ones(maker.frames()),
        lambda maker: maker.ones(maker.even_frames().shape[1]),
    ),
    "feature_attention_mask": (lambda maker: maker.ones(maker.frames()),),
    "audio_mel": _SPECTROGRAMS,
    "audio_mel_mask": (lambda maker: maker.zeros(FRAMES).bool(),),
    "input_values": (
        lambda maker: maker.floats(SAMPLES),
        lambda maker: maker.floats(1, SAMPLES),
        lambda maker: maker.floats(maker.number("max_length", default=FRAMES), maker.bins()),
        InputMaker.even_waveform,
        *_EMBEDDINGS,
    ),
    "decoder_input_values": (lambda maker: maker.floats(FRAMES, maker.bins()), *_EMBEDDINGS),
    "latents": (lambda maker: maker.latents("hidden_size"), lambda maker: maker.latents("latent_dim")),
    # Time series and decisions
    "past_values": (lambda maker: maker.series(maker.past_length()),),
    "past_observed_mask": (lambda maker: torch.ones_like(maker.series(maker.past_length())),),
    "past_time_features": (lambda maker: maker.time_features(maker.past_length()),),
    "past_values_padding": (lambda maker: maker.zeros(maker.past_length()),),
    "freq": (lambda maker: maker.zeros(1),),
    "future_values": (lambda maker: maker.series(maker.future_length()),),
    "future_time_features": (lambda maker: maker.time_features(maker.future_length()),),
    "states": (lambda maker: maker.floats(maker.length(), maker.number("state_dim", default=1)),),
    "actions": (lambda maker: maker.floats(maker.length(), maker.number("act_dim", default=1)),),
    "rewards": (lambda maker: maker.floats(maker.length(), 1),),
    "returns_to_go": (lambda maker: maker.floats(maker.length(), 1),),
    "timesteps": (InputMaker.positions,),
    "action_embeds": (InputMaker.action_embeddings,),
    # Of any kind
    "inputs": (*_EMBEDDINGS, InputMaker.image, InputMaker.ids),
}
"""How each input is made; in several shapes where a name may stand for several, the most likely first."""

_BESIDE: dict[str, tuple[tuple[str, tuple[Make, ...]], ...]] = {
    "pixel_values_videos": (
        ("video_grid_thw", _PATCHES),
        ("target_sizes_videos", (InputMaker.strip,)),
        ("video_position_ids", (lambda maker: maker.patches_beside_padding(FRAMES_OF_VIDEO),)),
    ),
    "image_grid_thw": (("images_per_sample", (lambda maker: maker.grid().repeat_interleave(2, 0),)),),
    "pixel_values": (
        ("grid_thw", _PATCHES),
        ("image_grid_thw", _PATCHES),
        ("spatial_shapes", (InputMaker.patches_beside_padding,)),
        ("pixel_position_ids", (InputMaker.patches_beside_padding,)),
        ("image_position_ids", (InputMaker.patches_beside_padding,)),
        ("target_sizes", (InputMaker.strip,)),
        ("aspect_ratio_ids", (InputMaker.images_in_tiles,)),
        ("prompt_pixel_values", (InputMaker.upper_half,)),
    ),
    "input_ids": (("pixel_values", (InputMaker.ids, InputMaker.ids_and_images)),),
}
"""Name of an input -> names beside which it is made in another way."""


def alternatives(name: str, names: Collection[str]) -> tuple[Make, ...]:
    """Return how an input can be made that is one of several."""
    for other, makes in _BESIDE.get(name, ()):
        if other in names:
            return makes
    return MAKERS[name]
