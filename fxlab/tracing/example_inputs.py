"""Inputs for a model of transformers, made from its configuration and the signature of its ``forward``."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fxlab.tracing.input_trials import first_that_runs

_SEED = 0
_SPECIAL_TOKENS = 10
"""Ids below this are left to padding and other special tokens where the vocabulary is large enough."""


def example_inputs(
    model: nn.Module,
    *,
    batch_size: int = 2,
    sequence_length: int | None = None,
    input_names: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Make inputs that a model of transformers runs on: ``model(**example_inputs(model))``.

    Every second sequence of a batch is padded, so that a mask that gets lost is noticed. The same model gets
    the same inputs each time. Where a name may stand for inputs of several shapes (``input_values``: a
    waveform, or a spectrogram), or a model may need images beside its text, it is tried out which the model
    takes; this is done on tensors without data, which takes no more than a trace.

    Parameters
    ----------
    model
        A model with a ``config``.
    batch_size
        The size of the first dimension, at least 1.
    sequence_length
        The number of tokens; 12 if left out, or as many as the model has positions for. The length of spoken
        input and the size of images are those of the configuration.
    input_names
        The parameters of ``forward`` to make inputs for. If left out: what the model needs, with masks.

    Returns
    -------
    dict of str to Any
        Parameter name -> tensor, on the device of the model; ids and masks are ``int64``, the others have the
        model's dtype.

    Raises
    ------
    TypeError
        If ``model`` is no module.
    ValueError
        If the model has no configuration, or something it needs cannot be guessed; the message names it.

    Examples
    --------
    >>> from transformers import BertConfig, BertModel
    >>> config = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    >>> inputs = example_inputs(BertModel(config), batch_size=3)
    >>> {name: tuple(tensor.shape) for name, tensor in inputs.items()}
    {'input_ids': (3, 12), 'attention_mask': (3, 12), 'token_type_ids': (3, 12)}
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model: expected a torch.nn.Module, got {type(model).__name__}. Load or build the model first."
        )
    for name, number in (("batch_size", batch_size), ("sequence_length", sequence_length)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise ValueError(f"{name}: expected an integer of at least 1, got {number!r}")
    parameters = inspect.signature(model.forward).parameters
    if not hasattr(model, "config"):
        raise ValueError(
            "inputs: they can be made for models of transformers only; "
            f"{type(model).__name__} has no config. "
            f"Give inputs for: {', '.join(parameters) or 'nothing, it takes none'}."
        )
    maker = _Maker(model, batch_size, sequence_length)
    choices = list(maker.default_names()) if input_names is None else [list(input_names)]
    names = choices[0]
    unknown = [name for name in names if name not in parameters]
    if unknown:
        raise ValueError(
            f"input_names: {type(model).__name__}.forward has no parameter {', '.join(unknown)}. "
            f"It has {', '.join(parameters)}."
        )
    not_guessed = [name for name in names if name not in _MAKERS]
    if not_guessed:
        raise ValueError(f"inputs: {', '.join(not_guessed)} cannot be guessed. Give them in inputs.")
    return first_that_runs(model, [inputs for names in choices for inputs in maker.inputs(names)])


@dataclass
class _Maker:
    """Makes single inputs."""

    model: nn.Module
    batch_size: int
    asked_length: int | None

    def __post_init__(self) -> None:
        self.config: Any = self.model.config
        first = next(iter(self.model.parameters()), torch.empty(0))
        self.device = first.device
        floating = (p.dtype for p in self.model.parameters() if p.is_floating_point())
        self.dtype = next(floating, torch.float32)
        self.random = torch.Generator().manual_seed(_SEED)

    def default_names(self) -> Iterator[list[str]]:
        """Yield the names of what the model needs; then others, in case that is not all it needs."""
        parameters = inspect.signature(self.model.forward).parameters
        required = [
            name
            for name, parameter in parameters.items()
            if parameter.default is inspect.Parameter.empty
            and parameter.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        ]
        main = getattr(self.model, "main_input_name", "input_ids")
        wanted = {main, *required}
        modalities = getattr(self.model, "input_modalities", ())
        places_images = any("image_token" in name for name in vars(self.config))
        if not (isinstance(modalities, str) or self.setting("projection_dim") is None or places_images):
            # Two towers, as in CLIP: neither works without the other.
            wanted |= {name for modality in modalities for name in _OF_MODALITY.get(modality, ())}
        if getattr(self.config, "is_encoder_decoder", False):
            wanted.add("decoder_input_ids")
        if "input_ids" in wanted:
            wanted.add("attention_mask")
            wanted |= {"token_type_ids"} if self.setting("type_vocab_size", 0) else set()
        yield [name for name in parameters if name in wanted]
        others = [name for name in _MAYBE_NEEDED if name in parameters and name not in wanted]
        for more in (*({name} for name in others), {*others} if len(others) > 1 else None):
            if more:
                yield [name for name in parameters if name in wanted | more]

    def inputs(self, names: list[str]) -> Iterator[dict[str, torch.Tensor]]:
        """Yield inputs of these names, the most likely shapes first."""
        for chosen in itertools.product(*(_MAKERS[name] for name in names)):
            self.random.manual_seed(_SEED)
            made = (make(self).to(self.device) for make in chosen)
            yield dict(zip(names, made, strict=True))

    def setting(self, name: str, default: Any = None) -> Any:
        """Return a setting of the configuration, or of one of its parts."""
        parts = [part for part in vars(self.config).values() if hasattr(part, "to_dict")]
        first = ("text_config", "vision_config", "audio_config", "decoder", "encoder")
        parts = [getattr(self.config, part, None) for part in first] + parts
        for config in (self.config, *parts):
            value = getattr(config, name, None)
            if value is not None:
                return value
        return default

    def length(self) -> int:
        """Return the number of tokens."""
        if self.asked_length is not None:
            return self.asked_length
        # Some models keep the first positions for padding.
        positions = self.setting("max_position_embeddings") or self.setting("n_positions") or 4096
        return max(1, min(12, int(positions) - 2 if int(positions) > 4 else int(positions)))

    def ids(self) -> torch.Tensor:
        vocabulary = int(self.setting("vocab_size", 2))
        low = _SPECIAL_TOKENS if vocabulary > 2 * _SPECIAL_TOKENS else 0
        ids = torch.randint(low, vocabulary, (self.batch_size, self.length()), generator=self.random)
        padding = self.setting("pad_token_id")
        if isinstance(padding, int) and 0 <= padding < vocabulary:
            ids = ids.masked_fill(self.mask() == 0, padding)
        return ids

    def mask(self) -> torch.Tensor:
        length = self.length()
        padded = max(1, length - max(1, length // 4))
        real = torch.tensor([padded if row % 2 else length for row in range(self.batch_size)])
        return (torch.arange(length) < real[:, None]).long()

    def zeros(self) -> torch.Tensor:
        return torch.zeros(self.batch_size, self.length(), dtype=torch.long)

    def positions(self) -> torch.Tensor:
        return torch.arange(self.length()).repeat(self.batch_size, 1)

    def floats(self, *shape: int) -> torch.Tensor:
        return torch.randn(self.batch_size, *shape, generator=self.random).to(self.dtype)

    def image(self) -> torch.Tensor:
        size = self.setting("image_size", 224)
        height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
        return self.floats(int(self.setting("num_channels", 3)), int(height), int(width))

    def video(self) -> torch.Tensor:
        image = self.image()
        return self.floats(int(self.setting("num_frames", 2)), *image.shape[1:])

    def bins(self) -> int:
        names = ("input_feat_per_channel", "feature_projection_input_dim", "num_mel_bins", "feature_size")
        return int(next(filter(None, map(self.setting, names)), 80))

    def spectrogram(self) -> torch.Tensor:
        bins, positions = self.setting("num_mel_bins"), self.setting("max_source_positions")
        if bins and positions:
            # Whisper and its kin: two convolutions halve the time axis to the number of positions.
            return self.floats(int(bins), 2 * int(positions))
        return self.floats(_FRAMES, self.bins())

    def patches(self) -> torch.Tensor:
        """Return the patches of all images in one row, as vision towers take them that know a grid."""
        patch, channels = int(self.setting("patch_size", 16)), int(self.setting("in_channels", 3))
        frames = int(self.setting("temporal_patch_size", 1))
        count = self.batch_size * _GRID * _GRID
        size = channels * frames * patch * patch
        return torch.randn(count, size, generator=self.random).to(self.dtype)

    def grid(self) -> torch.Tensor:
        """Return the number of patches of each image: in time, down and across."""
        return torch.tensor([[1, _GRID, _GRID]] * self.batch_size)


_Make = Callable[[_Maker], torch.Tensor]
_FRAMES = 100
_GRID = 4

_MAKERS: dict[str, tuple[_Make, ...]] = {
    "input_ids": (_Maker.ids,),
    "decoder_input_ids": (_Maker.ids,),
    "attention_mask": (_Maker.mask,),
    "decoder_attention_mask": (_Maker.mask,),
    "token_type_ids": (_Maker.zeros,),
    "position_ids": (_Maker.positions,),
    "pixel_values": (_Maker.image, _Maker.video),
    "pixel_values_videos": (_Maker.video,),
    "input_features": (
        _Maker.spectrogram,
        lambda maker: maker.floats(_FRAMES, maker.bins()),
        lambda maker: maker.floats(maker.bins(), _FRAMES),
        lambda maker: maker.floats(1, 10 * _FRAMES + 1, maker.bins()),
    ),
    "input_features_mask": (lambda maker: torch.ones(maker.batch_size, _FRAMES, dtype=torch.long),),
    "input_values": (
        lambda maker: maker.floats(8000),
        lambda maker: maker.floats(1, 8000),
        lambda maker: maker.floats(int(maker.setting("max_length", _FRAMES)), maker.bins()),
    ),
    "inputs_embeds": (lambda maker: maker.floats(maker.length(), int(maker.setting("hidden_size", 1))),),
    "labels": (_Maker.ids,),
    "bbox": (lambda maker: maker.zeros()[..., None].repeat(1, 1, 4),),
    "grid_thw": (_Maker.grid,),
    "hidden_states": (_Maker.patches,),
}
"""How each input is made; in several shapes where a name may stand for several."""

_MAYBE_NEEDED = ("pixel_values", "bbox", "input_values")
"""What some models need although ``forward`` gives it a default."""

_OF_MODALITY = {
    "text": ("input_ids",),
    "image": ("pixel_values",),
    "audio": ("input_features", "input_values"),
}
