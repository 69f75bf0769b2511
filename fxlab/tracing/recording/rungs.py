"""Ways to record a model: on fake tensors, with symbolic sizes or fixed ones, or on the inputs themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import torch
from torch import nn

from fxlab.base.interrupts import RestoringStack, when_entered
from fxlab.models.running.running import generators_kept, seed_generators
from fxlab.models.state.model_state import state_kept
from fxlab.tracing.bound_inputs import Argument, mapped_tensors
from fxlab.tracing.findings import Found
from fxlab.tracing.leaf_modules import LeafModules
from fxlab.tracing.model_code.caches import caches_bypassed
from fxlab.tracing.model_code.created_tensors import TensorsMade
from fxlab.tracing.model_code.python_builtins import sizes_in_builtins
from fxlab.tracing.model_code.surroundings import Surroundings
from fxlab.tracing.model_code.threads import OneThread
from fxlab.tracing.obstacles import Obstacle
from fxlab.tracing.recording.handlers.memory import StoragesComparedError
from fxlab.tracing.recording.handlers.modules import hooks_of
from fxlab.tracing.recording.real_tensors import RealTensors
from fxlab.tracing.recording.recorder import record
from fxlab.tracing.recording.run import RecordingState, StateWrittenError, TraceStrategy
from fxlab.tracing.report import DATA, DYNAMIC, FIXED, REAL, WHOLE, TraceError
from fxlab.tracing.shapes.condition_text import size_texts_marked
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.fake_mode import fakes_hidden
from fxlab.tracing.shapes.fake_state import fake_twin
from fxlab.tracing.shapes.leftovers import put_back_after, require_gone, still_there
from fxlab.tracing.shapes.size_cache import arithmetic_remembered
from fxlab.tracing.torch_private import enable_python_dispatcher

LADDER = (
    TraceStrategy(DYNAMIC),
    TraceStrategy(DATA, with_data=True),
    TraceStrategy(WHOLE, with_data=True, parts={}),
    TraceStrategy(REAL, dynamic=False, is_real=True),
)
"""From the way that gives the most general graph down to the one that records the most models."""
FIXED_LADDER = (TraceStrategy(FIXED, dynamic=False), LADDER[-1])
"""The ways to record a model for the sizes of its inputs alone."""


def record_on(
    rung: TraceStrategy,
    model: nn.Module,
    around: Surroundings,
    arguments: tuple[Argument, ...],
    leaves: LeafModules,
) -> RecordingState:
    """Record a model; the model and the Python around it are left as they were.

    ``around``: that Python. ``leaves``: which modules are one node each.
    """
    recorded = _on_real_tensors if rung.is_real else _on_fake_tensors
    while True:
        try:
            return recorded(rung, model, around, arguments, leaves)
        except StoragesComparedError:
            # The model compares storages, so the answer has to be true; it costs more questions about sizes.
            rung = replace(rung, own_storages=True)
        except StateWrittenError as error:
            rung = replace(rung, data_state=rung.data_state | error.names)
        except TraceError as error:
            if (
                error.code != Obstacle.HIDDEN_TENSOR.code
                or rung.opens_hooked
                or not any(map(hooks_of, model.modules()))
            ):
                raise
            rung = replace(rung, opens_hooked=True)


def _on_fake_tensors(
    rung: TraceStrategy,
    model: nn.Module,
    around: Surroundings,
    arguments: tuple[Argument, ...],
    leaves: LeafModules,
) -> RecordingState:
    fakes = FakeInputs(
        arguments,
        dynamic=rung.dynamic,
        with_data=rung.with_data,
        stand_ins=rung.stand_ins,
        keeps_ones=rung.keeps_ones,
        own_storages=rung.own_storages,
        follows_heights=rung.follows_heights,
    )
    one_thread = fakes.mode.one_thread = OneThread()
    made = TensorsMade()

    kept = caches_bypassed(model, around, made), sizes_in_builtins(model)
    sizes = arithmetic_remembered(fakes.shape_env, fakes.work), size_texts_marked(fakes.shape_env.names)
    # The dispatcher of Python can follow symbolic sizes into operators that are made of others.
    computing = (
        *sizes,
        when_entered(enable_python_dispatcher),
        fakes_hidden() if rung.hides_fakes else nullcontext(),
    )
    entered = _random_numbers_of_checks(), *kept, *computing
    with RestoringStack(made):
        with (
            state_kept(model, values=False),  # the twin shares what cannot be copied
            put_back_after(around, fakes.mode) as changed,
            RestoringStack(*entered),
        ):
            # The state alone holds the twin, and so ends it.
            run = RecordingState(
                fake_twin(model, fakes.mode, rung.training), leaves, fakes, made, one_thread, rung
            )
            with RestoringStack(fakes.mode):
                changed += around.set_by(record, run, arguments, fakes.values)
        run.recording.findings += map(Found.ATTRIBUTE_CHANGED, changed)
        left = still_there(run.end())
    # Fake tensors that outlive the run would reach later runs of the model.
    require_gone(left)
    fakes.require_given()
    fakes.put_given(run.recording.graph)
    if fakes.given_up:
        run.recording.put_numbers_for({fakes.symbols[size] for size in fakes.given_up})
        run.recording.remove_unused()
    return run


def _on_real_tensors(
    rung: TraceStrategy,
    model: nn.Module,
    around: Surroundings,
    arguments: tuple[Argument, ...],
    leaves: LeafModules,
) -> RecordingState:
    fakes = FakeInputs(arguments, dynamic=False)
    one_thread, made = OneThread(), TensorsMade()
    real = RealTensors(fakes, one_thread)
    with torch.inference_mode(False):
        # The model may write into its inputs, and shall not reach the person's.
        values = mapped_tensors(arguments, lambda _, __, tensor: tensor.clone())
    entered = caches_bypassed(model, around, made), _random_numbers_of_checks(), real
    kept = state_kept(model, others=around.tensors), put_back_after(around)
    with kept[0], kept[1] as changed, RestoringStack(*entered):
        run = RecordingState(real.twin_of(model), leaves, fakes, made, one_thread, rung, real)
        with made:
            watched = {name: real.watch(value) for name, value in values.items()}
            changed += around.set_by(record, run, arguments, watched)
        run.end()
    run.recording.findings += map(Found.ATTRIBUTE_CHANGED, changed)
    if real.cuts_history:
        run.recording.findings.append(Found.OWN_BACKWARD("a scripted function"))
    return run


@contextmanager
def _random_numbers_of_checks() -> Iterator[None]:
    """Draw the random numbers that a run for a comparison draws, in case that a model decides on them."""
    with generators_kept():
        seed_generators(0)
        yield
