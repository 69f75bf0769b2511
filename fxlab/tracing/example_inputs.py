"""Inputs for a model of transformers, made from its configuration and the signature of its ``forward``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

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
    the same inputs each time.

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
    names = maker.default_names() if input_names is None else list(input_names)
    unknown = [name for name in names if name not in parameters]
    if unknown:
        raise ValueError(
            f"input_names: {type(model).__name__}.forward has no parameter {', '.join(unknown)}. "
            f"It has {', '.join(parameters)}."
        )
    not_guessed = [name for name in names if name not in _MAKERS]
    if not_guessed:
        raise ValueError(f"inputs: {', '.join(not_guessed)} cannot be guessed. Give them in inputs.")
    return {name: _MAKERS[name](maker).to(maker.device) for name in names}


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

    def default_names(self) -> list[str]:
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
        if not isinstance(modalities, str) and self.setting("projection_dim") is not None:
            # Two towers, as in CLIP: neither works without the other.
            wanted |= {name for modality in modalities for name in _OF_MODALITY.get(modality, ())}
        if getattr(self.config, "is_encoder_decoder", False):
            wanted.add("decoder_input_ids")
        if "input_ids" in wanted:
            wanted.add("attention_mask")
            wanted |= {"token_type_ids"} if self.setting("type_vocab_size", 0) else set()
        return [name for name in parameters if name in wanted]

    def setting(self, name: str, default: Any = None) -> Any:
        """Return a setting of the configuration, or of one of its parts."""
        parts = ("text_config", "vision_config", "audio_config", "decoder", "encoder")
        for config in (self.config, *(getattr(self.config, part, None) for part in parts)):
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

    def spectrogram(self) -> torch.Tensor:
        bins, positions = self.setting("num_mel_bins"), self.setting("max_source_positions")
        if bins and positions:
            # Whisper and its kin: two convolutions halve the time axis to the number of positions.
            return self.floats(int(bins), 2 * int(positions))
        return self.floats(100, int(self.setting("input_feat_per_channel", bins or 80)))

    def waveform(self) -> torch.Tensor:
        return self.floats(8000)


_MAKERS: dict[str, Callable[[_Maker], torch.Tensor]] = {
    "input_ids": _Maker.ids,
    "decoder_input_ids": _Maker.ids,
    "attention_mask": _Maker.mask,
    "decoder_attention_mask": _Maker.mask,
    "token_type_ids": _Maker.zeros,
    "position_ids": _Maker.positions,
    "pixel_values": _Maker.image,
    "input_features": _Maker.spectrogram,
    "input_values": _Maker.waveform,
    "inputs_embeds": lambda maker: maker.floats(maker.length(), int(maker.setting("hidden_size", 1))),
    "labels": _Maker.ids,
}

_OF_MODALITY = {
    "text": ("input_ids",),
    "image": ("pixel_values",),
    "audio": ("input_features", "input_values"),
}
