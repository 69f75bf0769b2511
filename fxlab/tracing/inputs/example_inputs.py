"""Inputs for a model of transformers, made from its configuration and the signature of its ``forward``.

Where several may be meant they are tried, on tensors without data.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NoReturn

import torch
from torch import nn

from fxlab.base.checks import names_in
from fxlab.base.interrupts import RestoringStack
from fxlab.base.torch_logs import torch_logs_silent
from fxlab.models.running.accelerators import device_errors_raised
from fxlab.models.state.model_state import state_kept
from fxlab.tracing import torch_private
from fxlab.tracing.bound_inputs import bound_arguments
from fxlab.tracing.inputs.input_makers import MAKERS, InputMaker, Make, Places, alternatives
from fxlab.tracing.model_code.caches import caches_bypassed
from fxlab.tracing.model_code.given_model import check_is_module, has_data
from fxlab.tracing.model_code.surroundings import run_alone
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.fake_state import fake_twin, put_back_after

_UNKNOWN = (
    torch_private.DataDependentOutputException,
    torch_private.DynamicOutputShapeException,
    torch_private.GuardOnDataDependentSymNode,
    torch_private.UnsupportedOperatorException,
)
"""Errors that only say that data would be needed to go on."""
_UNKNOWN_WORDS = ("expected to contain only concrete integers", "its data is not allocated yet")
"""The same, where torch has no class for it."""


def first_that_runs(model: nn.Module, candidates: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the first inputs that a model takes, as far as shapes can tell; the very first if it takes none.

    ``candidates``: keyword arguments, the most likely ones first. Nothing is run if there is but one.
    """
    rest = iter(candidates)
    first = next(rest)
    second = next(rest, None)
    if second is None or takes(model, first):
        return first
    return next((inputs for inputs in chain([second], rest) if takes(model, inputs)), first)


def takes(model: nn.Module, inputs: dict[str, Any]) -> bool:
    """Tell whether a model runs on inputs of these names, shapes and dtypes."""
    try:
        run_on_fakes(model, model, inputs)
    except _UNKNOWN:
        return True
    except Exception as error:  # a model may refuse inputs in any way
        return any(words in str(error) for words in _UNKNOWN_WORDS)
    return True


def why_refused(model: nn.Module, inputs: dict[str, Any]) -> str:
    """Return the error of a model that refuses inputs, or ``""``; a model without data tells nothing."""
    if not has_data(model):
        return ""
    try:
        run_on_data(model, model, inputs)
    except Exception as error:  # a model may refuse inputs in any way
        return str(error) or type(error).__name__
    return ""


def run_on_data(model: nn.Module, call: Callable[..., Any], inputs: dict[str, Any]) -> Any:
    """Call a model, or a method of it or of a part of it, on inputs of the model."""
    with run_alone(model) as around:
        kept = put_back_after(around), state_kept(model, others=around.tensors)
        with RestoringStack(*kept, device_errors_raised(), torch.no_grad()):
            return copy_context().run(call, **inputs)


def run_on_fakes(
    model: nn.Module, call: Callable[..., Any], inputs: dict[str, Any], *, with_data: bool = False
) -> Any:
    """Call a model, or a method of it or of a part of it, on fake tensors in place of inputs of the model."""
    fakes = FakeInputs(bound_arguments(model, inputs), dynamic=False, with_data=with_data)
    with run_alone(model) as around:
        kept = put_back_after(around, fakes.mode), caches_bypassed(model, around), torch.no_grad()
        with RestoringStack(*kept, torch_logs_silent(), fakes.mode):
            twin = fake_twin(model, fakes.mode)
            call = twin.of(call)
            return copy_context().run(call, **{name: fakes.values[name] for name in inputs})


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
    whole = {n: t.flatten().tolist() for n, t in given.items() if not t.is_floating_point() and not t.is_meta}
    # The number of features may depend on sizes, and on whole numbers.
    asked = of.method, *((n, t.dtype, tuple(t.shape), tuple(whole.get(n, ()))) for n, t in given.items())
    if asked not in maker.counted:
        maker.counted[asked] = _counted(maker.model, of.method, given)
    found, refusal = maker.counted[asked]
    if refusal:
        return [], refusal
    if found is None:
        return probed, ""
    return [Places(token, found // maker.batch_size, of.kind) for token in of.tokens], ""


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


_MOST = 1 << 30
"""The largest batch or sequence that is tried to be made."""


def example_inputs(
    model: nn.Module,
    *,
    batch_size: int | None = None,
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
        The size of the first dimension, at least 1. If left out 2, or 1 for a model that classifies sequences
        and has no padding token, as it takes no more.
    sequence_length
        The number of tokens of text; 12 if left out, or as many as the model has positions for. Those that
        stand for images, videos or sound come on top. The length of spoken input and the size of images are
        those of the configuration.
    input_names
        The parameters of ``forward`` to make inputs for. If left out: those that the model needs, with masks.

    Returns
    -------
    dict of str to Any
        Parameter name -> tensor, on the device of the model (on the CPU if that is the meta device); ids and
        masks are ``int64``, the others have the model's dtype.

    Raises
    ------
    TypeError
        If ``model`` is not a module.
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
    names = None if input_names is None else list(names_in(input_names, "input_names"))
    return first_that_runs(model, candidate_inputs(model, batch_size, sequence_length, names))


def candidate_inputs(
    model: nn.Module,
    batch_size: int | None = None,
    sequence_length: int | None = None,
    input_names: Sequence[str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the inputs that a model of transformers may take, the most likely ones first.

    Raises as :func:`example_inputs` does, before anything is made.
    """
    check_is_module(model)
    for name, number in (("batch_size", batch_size), ("sequence_length", sequence_length)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise ValueError(f"{name}: expected an integer of at least 1, got {number!r}")
        if number is not None and number > _MOST:
            raise ValueError(f"{name}: {number!r} is more than memory can hold; expected at most {_MOST}.")
    parameters = inspect.signature(model.forward).parameters
    if not hasattr(model, "config"):
        raise ValueError(
            "inputs: they can be made for models of transformers only; "
            f"{type(model).__name__} has no config. "
            f"Give inputs for: {', '.join(parameters) or 'nothing, it takes none'}."
        )
    maker = InputMaker(model, batch_size or _usual_batch_size(model), sequence_length)
    choices = list(_likely_names(maker)) if input_names is None else [[*input_names]]
    names = choices[0]
    unknown = [name for name in names if name not in parameters]
    if unknown:
        raise ValueError(
            f"input_names: {type(model).__name__}.forward has no parameter {', '.join(unknown)}. "
            f"It has {', '.join(parameters)}."
        )
    not_guessed = [name for name in names if name not in MAKERS]
    if not_guessed:
        raise ValueError(f"inputs: {', '.join(not_guessed)} cannot be guessed. Give them in inputs.")
    is_named = input_names is not None
    return (inputs for names in choices for inputs in _inputs_of(maker, names, is_named))


def _usual_batch_size(model: nn.Module) -> int:
    """Return 2, or 1 for a model that looks for the last token of a sequence and has no padding token."""
    classifies = any(cls.__name__.endswith("ForSequenceClassification") for cls in type(model).__mro__)
    text = getattr(model.config, "get_text_config", lambda: model.config)()
    return 1 if classifies and getattr(text, "pad_token_id", None) is None else 2


def _likely_names(maker: InputMaker) -> Iterator[list[str]]:
    """Yield the names that the model needs; then others, in case that is not all it needs."""
    parameters = inspect.signature(maker.model.forward).parameters
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    ]
    main = getattr(maker.model, "main_input_name", "input_ids")
    wanted = {*([main] if isinstance(main, str) else main), *required}
    modalities = getattr(maker.model, "input_modalities", ())
    places_images = any("image_token" in name for name in vars(maker.config))
    if not (isinstance(modalities, str) or maker.setting("projection_dim") is None or places_images):
        # Two towers, as in CLIP: neither works without the other.
        wanted |= {name for modality in modalities for name in _OF_MODALITY.get(modality, ())}
    if getattr(maker.config, "is_encoder_decoder", False):
        wanted.add("decoder_input_ids")
    wanted &= {*parameters}
    if "input_ids" in wanted:
        wanted.add("attention_mask")
        wanted |= {"token_type_ids"} if maker.setting("type_vocab_size", default=0) else set()
    yield [name for name in parameters if name in wanted]
    groups = [{*group} for group in _MAYBE_NEEDED if parameters.keys() >= {*group} and not wanted >= {*group}]
    for more in (*groups, set().union(*groups) if len(groups) > 1 else None):
        if more:
            yield [name for name in parameters if name in wanted | more]


def _inputs_of(maker: InputMaker, names: list[str], is_named: bool) -> Iterator[dict[str, torch.Tensor]]:
    """Yield inputs of these names, the most likely shapes first.

    Raises ValueError if somebody has named them, and the model makes no features without more.
    """
    every_way = itertools.product(*(alternatives(name, names) for name in names))
    of_features = list(feature_makers(maker.model, names)) if "input_ids" in names else []
    refused: list[dict[str, torch.Tensor]] = []
    lacking: tuple[FeatureMaker, str] | None = None
    for chosen in itertools.islice(every_way, _MOST_TRIALS):
        makers = dict(zip(names, chosen, strict=True))
        maker.restart()
        given: dict[str, torch.Tensor] = {}
        found: list[list[Places]] = []
        for of in of_features:
            _make(maker, {name: makers[name] for name in of.names}, given)
            places, why = places_of(maker, of, given)
            found.append(places)
            if lacking is None and why and of.unnamed:
                lacking = of, why
        for inputs, refusal in _with_text(maker, makers, given, found):
            if len(inputs) != len(names):
                break
            inputs = {name: inputs[name] for name in names}
            if refusal or not all(found):
                refused.append(inputs)
                continue
            yield inputs
            if of_features and has_data(maker.model):
                return  # it has run on these
    if is_named and refused and lacking is not None:
        _ask_for_more(maker.model, *lacking)
    yield from refused  # the model shall name the fault itself


def _with_text(
    maker: InputMaker,
    makers: Mapping[str, Make],
    given: Mapping[str, torch.Tensor],
    found: Sequence[Sequence[Places]],
) -> Iterator[tuple[dict[str, torch.Tensor], str]]:
    """Yield inputs whose text has places for images and the like, and the model's objections to them."""

    def inputs_for(places: Sequence[Places]) -> tuple[dict[str, torch.Tensor], str]:
        maker.in_front = [*places]
        inputs = dict(given)
        _make(maker, {name: make for name, make in makers.items() if name not in given}, inputs)
        return inputs, why_refused(maker.model, inputs) if places else ""

    for places in itertools.product(*found) if all(found) else [()]:
        inputs, refusal = inputs_for(places)
        count = sum(each.count for each in places) * maker.batch_size
        if len(places) == 1 and (needed := places_needed(refusal, count)) is not None:
            inputs, refusal = inputs_for([replace(places[0], count=needed // maker.batch_size)])
        yield inputs, refusal


def _ask_for_more(model: nn.Module, of: FeatureMaker, refusal: str) -> NoReturn:
    makeable = [name for name in of.unnamed if name in MAKERS]
    others = [name for name in of.unnamed if name not in MAKERS]
    ways = [f"name {', '.join(makeable)} in input_names"] if makeable else []
    ways += [f"give {', '.join(others)} in inputs, which cannot be guessed"] if others else []
    raise ValueError(
        f"inputs: {type(model).__name__} makes no features of {', '.join(of.names)} alone; it says: "
        f"{refusal[:300]}. It takes more: {' or '.join(ways)}."
    )


def _make(maker: InputMaker, makers: Mapping[str, Make], inputs: dict[str, torch.Tensor]) -> None:
    with torch.device("cpu"):
        made = {name: make(maker) for name, make in makers.items()}
    inputs |= {name: tensor.to(maker.device) for name, tensor in made.items() if tensor is not None}


_MOST_TRIALS = 40
"""How many shapes are tried for the same names: each takes as long as a run."""

_MAYBE_NEEDED = (
    ("pixel_values",),
    ("bbox",),
    ("input_values",),
    ("input_features",),
    ("input_ids",),
    ("input_features_mask",),
    ("decoder_input_values",),
    ("target_sizes",),
    ("visual_feats", "visual_pos"),
    ("encoder_hidden_states",),
    ("input_ids", "image_embeds_position_mask"),
    ("pixel_values", "image_attention_mask"),
    ("pixel_values", "pixel_attention_mask"),
    ("pixel_values", "pixel_attention_mask", "spatial_shapes"),
    ("future_values", "future_time_features"),
    ("actions", "rewards", "returns_to_go", "timesteps"),
)
"""Inputs that some models need although ``forward`` gives them a default."""

_OF_MODALITY = {
    "text": ("input_ids",),
    "image": ("pixel_values",),
    "audio": ("input_features", "input_values"),
}
