"""Models of transformers as they are used: with images, video or sound beside the text, and padded masks."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import transformers
from torch import nn

from fxlab.models.running.running import run
from fxlab.tracing.inputs.example_inputs import example_inputs
from fxlab.tracing.inputs.input_makers import MAKERS

OTHER_SIZES: dict[str, dict[str, int]] = {
    "another batch size": {"batch_size": 3},
    "another length": {"sequence_length": 9},
    "a length of another remainder": {"sequence_length": 13},
    "a length without a remainder": {"sequence_length": 16},
    "a long text": {"sequence_length": 30},
}
"""A batch has an image for each text, so another batch size is another number of images as well."""
_INSTEAD_OF_OTHERS = frozenset(
    {
        *("inputs_embeds", "labels", "position_ids", "inputs", "encoder_hidden_states", "query_embeds"),
        *("task_inputs", "decoder_input_values", "future_values", "future_time_features"),
    }
)
"""Inputs that stand in the place of others, or that training alone takes."""
_BESIDE = {
    "pixel_values": "image|pixel|token_type|spatial|target_sizes|aspect",
    "pixel_values_videos": "video|token_type",
    "input_features": "feature|token_type",
    "input_values": "value|token_type",
}
"""Main input of a modality -> words in the names of what may belong to it."""


def whole_types(model_types: list[str]) -> list[str]:
    """Return the architectures that are no part of another one, as a vision tower is."""
    configs = {name: transformers.CONFIG_MAPPING[name] for name in model_types}
    parts = {
        getattr(part, "model_type", None)
        for name, config in configs.items()
        for part in getattr(config, "sub_configs", {}).values()
        if getattr(part, "model_type", None) != name
    }
    return [name for name in model_types if name not in parts]


def whole_input_names(model: nn.Module) -> list[str]:
    """Return the names of as many kinds of input as a model takes together."""
    for names in _choices(model):
        try:
            run(model, example_inputs(model, input_names=names))
        except Exception:  # a model may refuse inputs in any way
            continue
        return names
    return list(example_inputs(model))


def _choices(model: nn.Module) -> Iterator[list[str]]:
    """Yield names of inputs, the most first."""
    parameters = inspect.signature(model.forward).parameters
    needed = example_inputs(model).keys()
    known = [name for name in parameters if name in needed or name in MAKERS]
    every = [name for name in known if name in needed or name not in _INSTEAD_OF_OTHERS]
    yield every
    for main, words in _BESIDE.items():
        if main in every:
            beside = [n for n in every if n in needed or any(word in n for word in words.split("|"))]
            yield [name for name in beside if main == "pixel_values_videos" or "video" not in name]
            yield [name for name in every if name in needed or name == main]
