"""How many tokens stand for an image, a video or sound: as many as the model makes features of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fxlab.tracing.input_makers import InputMaker, Places
from fxlab.tracing.input_trials import run_on_fakes
from fxlab.tracing.module_state import module_state_kept


@dataclass(frozen=True)
class FeatureMaker:
    """What of a model makes features that take the places of tokens."""

    call: Callable[..., Any]
    names: tuple[str, ...]
    """The inputs that it takes."""
    token: int
    kind: int


_FEATURE_MAKERS = {
    "get_image_features": ("pixel_values", ("image_token_id", "image_token_index"), 1),
    "get_video_features": ("pixel_values_videos", ("video_token_id", "video_token_index"), 2),
    "get_audio_features": ("input_features", ("audio_token_id", "audio_token_index"), 3),
}
"""Method of a model -> its main input, the settings that name the token, and the kind of token."""


def feature_makers(model: nn.Module, names: Collection[str]) -> Iterator[FeatureMaker]:
    """Yield what of a model makes features of some of these inputs, to put among those of text."""
    for method, (main, tokens, kind) in _FEATURE_MAKERS.items():
        # The innermost: those around it hand on what they are given without naming it.
        owners = [module for module in model.modules() if hasattr(module, method)]
        token = next((t for name in tokens if (t := getattr(model.config, name, None)) is not None), None)
        if main not in names or not owners or token is None:
            continue
        call = getattr(owners[-1], method)
        taken = inspect.signature(call).parameters
        yield FeatureMaker(call, tuple(name for name in names if name in taken), int(token), kind)


def places_of(maker: InputMaker, of: FeatureMaker, inputs: Mapping[str, torch.Tensor]) -> Places | None:
    """Return the places in each sequence for what is made of inputs; nothing if those are refused."""
    given = {name: inputs[name] for name in of.names if name in inputs}
    for run in (_on_fakes, _on_data):
        try:
            result = run(maker.model, of, given)
        except Exception:  # a model may refuse inputs in any way
            continue
        features = getattr(result, "pooler_output", result)
        each = features if isinstance(features, list | tuple) else [features]
        count = sum(int(tensor.numel()) // int(tensor.shape[-1]) for tensor in each)
        return Places(of.token, count // maker.batch_size, of.kind)
    return None


def _on_fakes(model: nn.Module, of: FeatureMaker, given: dict[str, torch.Tensor]) -> Any:
    # Data comes along: how many patches an image has may stand in one of the inputs.
    return run_on_fakes(model, of.call, given, with_data=True)


def _on_data(model: nn.Module, of: FeatureMaker, given: dict[str, torch.Tensor]) -> Any:
    with module_state_kept(model, values=True), torch.no_grad():
        return of.call(**given)
