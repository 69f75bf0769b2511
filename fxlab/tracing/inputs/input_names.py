"""Input names of models of transformers, and the shapes in which ``example_inputs`` can make each."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from fxlab.tracing.inputs.input_makers import FRAMES, FRAMES_OF_VIDEO, GRID, SAMPLES, InputMaker

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
