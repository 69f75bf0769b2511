"""How many tokens stand for an image, a video or sound: as many as the model makes features of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fxlab.tracing.arguments import bound_arguments
from fxlab.tracing.caches import caches_bypassed
from fxlab.tracing.fake_inputs import FakeInputs
from fxlab.tracing.fake_state import put_fakes
from fxlab.tracing.input_makers import InputMaker, Places
from fxlab.tracing.module_state import module_state_kept


@dataclass(frozen=True)
class Part:
    """What of a model makes features that take the places of tokens."""

    features: Callable[..., Any]
    names: tuple[str, ...]
    """The inputs that it takes."""
    token: int
    kind: int


_PARTS = {
    "get_image_features": ("pixel_values", ("image_token_id", "image_token_index"), 1),
    "get_video_features": ("pixel_values_videos", ("video_token_id", "video_token_index"), 2),
    "get_audio_features": ("input_features", ("audio_token_id", "audio_token_index"), 3),
}
"""Method of a model -> its main input, the settings that name the token, and the kind of token."""


def parts_with_places(model: nn.Module, names: Collection[str]) -> Iterator[Part]:
    """Yield the parts of a model that make features of some of these inputs, to put among those of text."""
    for method, (main, tokens, kind) in _PARTS.items():
        owner = next((module for module in model.modules() if hasattr(module, method)), None)
        token = next((t for name in tokens if (t := getattr(model.config, name, None)) is not None), None)
        if main not in names or owner is None or token is None:
            continue
        features = getattr(owner, method)
        taken = inspect.signature(features).parameters
        yield Part(features, tuple(name for name in names if name in taken), int(token), kind)


def places_of(maker: InputMaker, part: Part, inputs: Mapping[str, torch.Tensor]) -> Places | None:
    """Return the places in each sequence for what a part makes of inputs; nothing if it refuses them."""
    given = {name: inputs[name] for name in part.names if name in inputs}
    for run in (_on_fakes, _on_data):
        try:
            result = run(maker.model, part, given)
        except Exception:  # a model may refuse inputs in any way
            continue
        features = getattr(result, "pooler_output", result)
        each = features if isinstance(features, list | tuple) else [features]
        count = sum(int(tensor.numel()) // int(tensor.shape[-1]) for tensor in each)
        return Places(part.token, count // maker.batch_size, part.kind)
    return None


def _on_fakes(model: nn.Module, part: Part, given: Mapping[str, torch.Tensor]) -> Any:
    # Data comes along: how many patches an image has may stand in one of the inputs.
    fakes = FakeInputs(bound_arguments(model, dict(given)), dynamic=False, with_data=True)
    with module_state_kept(model), caches_bypassed(model), torch.no_grad():
        put_fakes(model, fakes.mode)
        with fakes.mode:
            return part.features(**{name: fakes.values[name] for name in given})


def _on_data(model: nn.Module, part: Part, given: Mapping[str, torch.Tensor]) -> Any:
    with module_state_kept(model, values=True), torch.no_grad():
        return part.features(**given)
