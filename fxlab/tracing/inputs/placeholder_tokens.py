"""Count placeholder tokens for images, video and audio: one for each feature that the model makes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from fxlab.tracing.inputs.input_makers import InputMaker, Places
from fxlab.tracing.inputs.input_trials import run_on_data, run_on_fakes


@dataclass(frozen=True)
class FeatureMaker:
    """The part of a model that makes features in the places of tokens."""

    method: Callable[..., Any] | None
    """Makes them; ``None`` if that is a part of ``forward``."""
    names: tuple[str, ...]
    """The inputs that it takes, of those that are made."""
    unnamed: tuple[str, ...]
    """Tensors that it would take as well, and that no inputs are made for."""
    tokens: tuple[int, ...]
    """The ids that may stand for a feature, the most likely first."""
    kind: int


_IMAGE, _VIDEO, _AUDIO = (
    tuple(f"{kind}_token_{end}" for end in ("id", "index")) for kind in ("image", "video", "audio")
)
_FEATURE_MAKERS = {
    "get_image_features": (("pixel_values",), _IMAGE, 1),
    # Some models have the tokens of an image for each frame.
    "get_video_features": (("pixel_values_videos", "pixel_values"), _VIDEO + _IMAGE, 2),
    "get_audio_features": (("input_features", "input_values"), _AUDIO, 3),
}
"""Method of a model -> its possible main inputs, settings that name the token, and the kind of token."""


def feature_makers(model: nn.Module, names: Collection[str]) -> Iterator[FeatureMaker]:
    """Yield the methods of a model that make features of some of these inputs, to put among those of text."""
    parameters = inspect.signature(model.forward).parameters
    used: set[str] = set()
    for method, (mains, settings, kind) in _FEATURE_MAKERS.items():
        tokens = [getattr(model.config, name, None) for name in settings]
        known = tuple(dict.fromkeys(token for token in tokens if isinstance(token, int) and token >= 0))
        # The innermost: modules around it pass their arguments on without naming them.
        owners = [module for module in model.modules() if hasattr(module, method)]
        call = getattr(owners[-1], method) if owners else None
        taken = parameters if call is None else inspect.signature(call).parameters
        main = next((name for name in mains if name in names and name in taken and name not in used), None)
        if main is None or not known:
            continue
        used.add(main)
        tensors = (name for name, parameter in taken.items() if "Tensor" in str(parameter.annotation))
        unnamed = () if call is None else tuple(n for n in tensors if n in parameters and n not in names)
        given = () if call is None else tuple(name for name in names if name in taken)
        yield FeatureMaker(call, given, unnamed, known, kind)


def places_of(
    maker: InputMaker, of: FeatureMaker, inputs: Mapping[str, torch.Tensor]
) -> tuple[list[Places], str]:
    """Return the places in each sequence for the features of inputs, for each token that may stand there.

    There are none if the model refuses those inputs; the second value is then its error.
    """
    probed = [Places(token, count, of.kind) for count in (_PROBED, 0) for token in of.tokens]
    if of.method is None:
        return probed, ""
    given = {name: inputs[name] for name in of.names if name in inputs}
    # The same images come beside each way to make the rest.
    asked = of.method, *((name, *_told_by(tensor)) for name, tensor in given.items())
    if asked not in maker.counted:
        maker.counted[asked] = _counted(maker.model, of.method, given)
    found, refusal = maker.counted[asked]
    if refusal:
        return [], refusal
    if found is None:
        return probed, ""
    return [Places(token, found // maker.batch_size, of.kind) for token in of.tokens], ""


def _told_by(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return the values that the number of features may depend on: sizes, and whole numbers."""
    values = None if tensor.is_floating_point() or tensor.is_meta else tuple(tensor.flatten().tolist())
    return tensor.dtype, tuple(tensor.shape), values


def _counted(
    model: nn.Module, method: Callable[..., Any], given: Mapping[str, torch.Tensor]
) -> tuple[int | None, str]:
    """Return the number of features that a method makes of inputs, or its error."""

    def count(**given: torch.Tensor) -> int | None:
        return _count_of_features(method(**given))

    refusal = ""
    try:
        inspect.signature(method).bind(**given)
        # Data comes along: how many patches an image has may stand in one of the inputs.
        for run in (partial(run_on_fakes, with_data=True), run_on_data):
            try:
                return run(model, count, dict(given)), ""
            except Exception as error:  # a model may refuse inputs in any way
                refusal = next(filter(None, str(error).splitlines()), type(error).__name__)
    except TypeError as error:  # it takes more
        refusal = str(error)
    return None, refusal


def places_needed(refusal: str, places: int) -> int | None:
    """Return how many places a model says that it needs where it refuses the number that there are."""
    numbers = [int(number) for number in re.findall(r"\d+", refusal)]
    if "token" not in refusal or len(numbers) != 2 or places not in numbers:
        return None
    return sum(numbers) - places or None


def _count_of_features(result: Any) -> int | None:
    """Return how many features there are; nothing if the result does not have them where most have."""
    features = getattr(result, "pooler_output", result)
    features = getattr(result, "last_hidden_state", result) if features is None else features
    mask = getattr(result, "attention_mask", None)
    if isinstance(features, torch.Tensor) and mask is not None and mask.shape == features.shape[:-1]:
        return int(mask.sum())  # the others are padding
    each = features if isinstance(features, list | tuple) else [features]
    if not all(isinstance(tensor, torch.Tensor) for tensor in each):
        return None
    return sum(int(tensor.numel()) // int(tensor.shape[-1]) for tensor in each)


_PROBED = 2
"""Tokens side by side: some models put all features of an image in place of a single one."""
