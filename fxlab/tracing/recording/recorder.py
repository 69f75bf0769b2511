"""Records one run of a model as a ``torch.fx.Graph``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.fx import Node
from torch.overrides import TorchFunctionMode

from fxlab.base.interrupts import RestoringStack
from fxlab.models.running.running import given_arguments
from fxlab.models.state.model_state import python_generators
from fxlab.models.state.python_read import asks_for_tensors
from fxlab.operators import draws_random_numbers
from fxlab.tracing.bound_inputs import Argument, inputs_of
from fxlab.tracing.findings import Found
from fxlab.tracing.model_code.source_lines import is_asked_by_torch
from fxlab.tracing.obstacles import Obstacle
from fxlab.tracing.recording.autocast_regions import AutocastUse
from fxlab.tracing.recording.gradient_regions import gradients_turned_on_seen
from fxlab.tracing.recording.handlers.constants import (
    allow_numbers,
    arrays_seen,
    constructors_seen,
    copy_array,
)
from fxlab.tracing.recording.handlers.control_flow import loops_seen, record_control_flow
from fxlab.tracing.recording.handlers.lists import hand_on_uncounted, join_uncounted, lists_seen
from fxlab.tracing.recording.handlers.memory import (
    addresses_of_storages_seen,
    refuse_memory,
    require_own_storages,
    storages_seen,
)
from fxlab.tracing.recording.handlers.modules import modules_seen
from fxlab.tracing.recording.handlers.opaque_parts import functions_seen
from fxlab.tracing.recording.handlers.operators import make_and_record, require_of_data
from fxlab.tracing.recording.handlers.reads import (
    describe_other_fakes,
    leave_backward_hooks,
    leave_profiling,
    read_address,
    read_one_number,
    read_state,
    refuse_backward,
)
from fxlab.tracing.recording.handlers.torch_call import PASSED_ON, Handler, TorchCall
from fxlab.tracing.recording.handlers.transforms import (
    autograd_functions_seen,
    derivatives_refused,
    derivatives_seen,
    flex_attention_seen,
    saved_tensors_seen,
    vmap_seen,
)
from fxlab.tracing.recording.input_changes import changed_inputs
from fxlab.tracing.recording.run import RecordingState
from fxlab.values.tensors import storage_of

HANDLERS: tuple[Handler, ...] = (
    allow_numbers, describe_other_fakes, record_control_flow, refuse_backward, require_of_data, read_state,
    read_one_number,
    refuse_memory, require_own_storages, read_address, leave_profiling, leave_backward_hooks, copy_array,
    hand_on_uncounted, join_uncounted,
)  # fmt: skip
"""Tried in this order on each call that torch shows; a call without an answer is made and recorded."""

HIDDEN_CALLS: tuple[Callable[[RecordingState], AbstractContextManager[None]], ...] = (
    modules_seen, functions_seen, autograd_functions_seen, vmap_seen, loops_seen,
    flex_attention_seen, saved_tensors_seen, derivatives_seen, derivatives_refused, gradients_turned_on_seen,
    addresses_of_storages_seen, storages_seen, arrays_seen, constructors_seen, lists_seen,
)  # fmt: skip
"""Context managers that show the recorder, while the model runs, the calls that torch hides."""


class Recorder(TorchFunctionMode):
    """Makes a node of each torch-level call and each call of a leaf module.

    Tensors stay tensors (fake or real) all the while, so the model's own Python runs as it always does.
    """

    def __init__(self, run: RecordingState) -> None:
        super().__init__()
        self._run = run
        run.mode = self

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        run = self._run
        if run.is_paused:
            return run.computed(func, args, kwargs or {})
        # Torch itself asks all kinds of things of each tensor that it makes a fake one of.
        is_of_torch = is_asked_by_torch(sys._getframe(1))
        # Questions inside a call are torch's own: the call asks them again when the graph runs.
        with run.sizes.asked(by_model=False):
            run.one_thread.require()
            call = TorchCall(func, args, kwargs or {}, is_told=not is_of_torch)
            try:
                return _answer(run, call)
            except Exception as error:
                run.errors.notice(call.node, call.name, error)
                raise


def _answer(run: RecordingState, call: TorchCall) -> Any:
    for handle in HANDLERS:
        if (answer := handle(run, call)) is not PASSED_ON:
            return answer
    return make_and_record(run, call)


def record(run: RecordingState, arguments: tuple[Argument, ...], values: Mapping[str, Any]) -> None:
    """Run a model once, and make a graph of its calls.

    ``run``: the run, which has the graph afterwards. ``arguments``: the inputs, which become placeholders.
    ``values``: name of the argument -> its value for the run, with fake or real tensors.
    """
    recording, conditions = run.recording, run.conditions
    buffers, drawn = dict(run.model.named_buffers()), python_generators()
    _make_placeholders(run, arguments, values)
    recording.outside = sys._getframe()
    inputs = inputs_of(arguments, values)
    args, kwargs = given_arguments(inputs)
    autocast = AutocastUse()
    outside = run.outside_reads
    reads = run.mode_reads.watched(), run.setting_reads.watched(), outside.watched(), run.overrides_hidden()
    watched = autocast.watched(), *reads, *(seen(run) for seen in HIDDEN_CALLS)
    # Not torch.set_grad_enabled: it takes effect when made, and inference_mode would restore its value.
    grad_mode = torch.enable_grad() if run.rung.gradients else torch.no_grad()
    entered = torch.inference_mode(False), grad_mode, *watched, Recorder(run)
    with RestoringStack(*entered, run.sizes.asked(by_model=True)):
        try:
            output = run.model(*args, **kwargs)
        except Exception as error:
            if run.rung.on_failure is not None:
                run.rung.on_failure(run, error)
            raise
        finally:
            run.failed = None
            # Its traceback leads to tensors, which lead to the sizes by C++, where no cycle is collected.
            unanswered, run.sizes.unanswered = run.sizes.unanswered, None
            run.one_thread.require()
    run.errors.require_none(unanswered)
    run.require_held_unwritten()
    with torch.enable_grad():
        _write_replaced_buffers(run, buffers)
    given = {argument.name: values[argument.name] for argument in arguments}
    for name in changed_inputs(given, inputs, output):
        recording.note(Found.INPUT_CHANGED, name)
    for name in run.twin.changed():
        recording.note(Found.ATTRIBUTE_CHANGED, name)
    for name, state in python_generators().items():
        if drawn.get(name) != state:
            recording.note(Found.DRAWN_BY_PYTHON, name)
    recording.findings += (Found.NUMBER_OF_SYSTEM(name, at) for name, at in outside.numbers.items())
    recording.findings += (Found.FILES_READ(name, at) for name, at in outside.files.items())
    for name, at in outside.seeds.items():
        if any(map(draws_random_numbers, recording.graph.nodes)):
            raise Obstacle.SEEDS(called=name, where=at)
        recording.findings.append(Found.SEEDS(name, at))
    conditions.hold_decisions()
    conditions.hold_lists_read()
    conditions.require_unwritten()
    with grad_mode:  # else the caller's mode would decide which outputs are detached
        recording.output(output)
    conditions.require_settings([*run.setting_reads.held.values(), *outside.environment.values()])
    if autocast.depends or run.setting_reads.reads_autocast:
        conditions.require_autocast(run.autocast)
    asks = asks_for_tensors(run.model)
    tensors = [a.name for a in arguments if asks or a.default is not inspect.Parameter.empty]
    conditions.require_kinds(run.dtypes_read, tensors, dimensions=run.reads_shapes)
    recording.remove_unused()


def _make_placeholders(
    run: RecordingState, arguments: tuple[Argument, ...], values: Mapping[str, Any]
) -> None:
    # Only parameters at the end of a signature can have a default.
    ordered = sorted(arguments, key=lambda a: a.by_keyword and len(a.placeholder_default))
    last = max((i for i, a in enumerate(ordered) if not a.placeholder_default), default=-1)
    made: list[tuple[Node, Argument]] = []
    for index, argument in enumerate(ordered):
        default = argument.placeholder_default if index > last else ()
        # The graph's own ``self`` would take the place of one that is called so.
        name = "self_given" if argument.name == "self" else argument.name
        node = run.recording.graph.create_node("placeholder", name, default)
        run.recording.bind_input(values[argument.name], node)
        made.append((node, argument))
    for node, argument in made:
        run.conditions.require_structure(node, argument.name, argument.value)


def _write_replaced_buffers(run: RecordingState, buffers: Mapping[str, torch.Tensor]) -> None:
    """Copy tensors by which the model has replaced buffers into these buffers."""
    recording = run.recording
    for name, now in run.model.named_buffers():
        before = buffers.get(name)
        if before is None or now is before or _same_memory(now, before):
            continue
        if (now.shape, now.dtype) != (before.shape, before.dtype):
            recording.note(Found.BUFFER_REPLACED, name)
            continue
        value = recording.detached(recording.node_of(now))
        node = recording.graph.call_method("copy_", (recording.node_of(before), value))
        recording.describe(node, before)
        recording.impure.add(node)


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    same_storage = storage_of(a) == storage_of(b)
    return same_storage and (a.shape, a.stride()) == (b.shape, b.stride())
