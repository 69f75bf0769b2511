"""Choose between possible inputs by trying them on fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import copy_context
from itertools import chain
from typing import Any

import torch
from torch import nn

from fxlab.base.interrupts import RestoringStack
from fxlab.models.running.device_errors import device_errors_raised
from fxlab.models.state.model_state import state_kept
from fxlab.tracing.bound_inputs import bound_arguments
from fxlab.tracing.messages import torch_logs_silent
from fxlab.tracing.model_code.caches import caches_bypassed
from fxlab.tracing.model_code.given_model import has_data
from fxlab.tracing.model_code.surroundings import run_alone
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.fake_state import fake_twin, put_back_after
from fxlab.tracing.torch_private import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    UnsupportedOperatorException,
)

_UNKNOWN = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    UnsupportedOperatorException,
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
