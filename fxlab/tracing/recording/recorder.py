"""Records one run of a model as a ``torch.fx.Graph``, in one of several ways: the rungs of a ladder."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.overrides import TorchFunctionMode

from fxlab.base.garbage import without_collecting
from fxlab.base.interrupts import RestoringStack, when_entered
from fxlab.models.running.arguments import given_arguments
from fxlab.models.running.running import generators_kept, seed_generators
from fxlab.models.state.model_state import python_generators, state_kept
from fxlab.models.state.python_read import asks_for_tensors
from fxlab.operators import draws_random_numbers
from fxlab.tracing.bound_inputs import Argument, inputs_of, mapped_tensors
from fxlab.tracing.model_code.caches import caches_bypassed
from fxlab.tracing.model_code.given_model import LeafModules
from fxlab.tracing.model_code.python_builtins import sizes_in_builtins
from fxlab.tracing.model_code.running_code import is_asked_by_torch
from fxlab.tracing.model_code.surroundings import Surroundings
from fxlab.tracing.model_code.unseen_work import OneThread, TensorsMade
from fxlab.tracing.recording.autocast_regions import AutocastUse
from fxlab.tracing.recording.handlers import operators, reads, transforms
from fxlab.tracing.recording.handlers.control_flow import loops_seen, record_control_flow
from fxlab.tracing.recording.handlers.modules import functions_seen, hooks_of, modules_seen
from fxlab.tracing.recording.real_tensors import RealTensors
from fxlab.tracing.recording.run import (
    PASSED_ON,
    Handler,
    RecordingState,
    StateWrittenError,
    TorchCall,
    TraceStrategy,
)
from fxlab.tracing.report import DATA, DYNAMIC, FIXED, REAL, WHOLE, Found, Obstacle, TraceError
from fxlab.tracing.shapes.asked_sizes import arithmetic_remembered
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.fake_mode import fakes_hidden
from fxlab.tracing.shapes.fake_state import fake_twin, put_back_after, require_gone, still_there
from fxlab.tracing.shapes.symbolic_sizes import size_texts_marked
from fxlab.tracing.shapes.uncounted_lists import is_unread
from fxlab.tracing.torch_private import enable_python_dispatcher
from fxlab.values.containers import is_same
from fxlab.values.nested import ObjectParts, class_of, is_object, parts_inside
from fxlab.values.tensors import storage_of

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
        except reads.StoragesComparedError:
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
    computing = *sizes, when_entered(enable_python_dispatcher)
    hidden = fakes_hidden() if rung.hides_fakes else nullcontext()
    # Fake tensors take no memory that has to be found soon.
    collecting = nullcontext() if rung.with_data else without_collecting()
    entered = collecting, _random_numbers_of_checks(), *kept, *computing, hidden
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


HANDLERS: tuple[Handler, ...] = (
    reads.allow_numbers, reads.describe_other_fakes, record_control_flow, reads.refuse_backward,
    operators.require_of_data, reads.read_state, reads.read_one_number, reads.refuse_memory,
    reads.require_own_storages, reads.read_address, reads.leave_profiling, reads.leave_backward_hooks,
    reads.copy_array, operators.hand_on_uncounted, operators.join_uncounted,
)  # fmt: skip
"""Tried in this order on each call that torch shows; a call without an answer is made and recorded."""

HIDDEN_CALLS: tuple[Callable[[RecordingState], AbstractContextManager[None]], ...] = (
    modules_seen, functions_seen, transforms.autograd_functions_seen, transforms.vmap_seen, loops_seen,
    transforms.flex_attention_seen, transforms.saved_tensors_seen, transforms.derivatives_seen,
    transforms.derivatives_refused, transforms.gradients_turned_on_seen, reads.addresses_of_storages_seen,
    reads.storages_seen, reads.arrays_seen, reads.constructors_seen, operators.lists_seen,
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
    return operators.make_and_record(run, call)


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
        if before is None or now is before:
            continue
        if (storage_of(now), now.shape, now.stride()) == (storage_of(before), before.shape, before.stride()):
            continue
        if (now.shape, now.dtype) != (before.shape, before.dtype):
            recording.note(Found.BUFFER_REPLACED, name)
            continue
        value = recording.detached(recording.node_of(now))
        node = recording.graph.call_method("copy_", (recording.node_of(before), value))
        recording.describe(node, before)
        recording.impure.add(node)


_CONTAINERS = (dict, list, tuple)


def changed_inputs(given: Mapping[str, Any], inputs: Mapping[Any, Any], output: Any) -> Iterator[str]:
    """Yield the paths of dicts, lists and objects that a run has changed, and has not returned.

    ``given``: name -> value, with its objects taken apart. ``inputs``: the copies made of them for the run,
    in this order. ``output``: the model's result: an object in there is seen by its caller.
    """
    returned: set[int] = set()
    _reach(output, returned)
    for name, value in zip(given, inputs.values(), strict=True):
        yield from _changed(name, given[name], value, returned)


def _changed(path: str, before: Any, now: Any, returned: set[int]) -> Iterator[str]:
    if type(before) not in (*_CONTAINERS, ObjectParts) or id(now) in returned:
        return
    is_of_object = isinstance(before, ObjectParts)
    held, current = _held_by(before), _held_by(ObjectParts.of(now) if is_of_object else now)
    if held.keys() != current.keys() or not all(_is_same(held[key], current[key]) for key in held):
        yield path
        return
    for key, item in held.items():
        yield from _changed(
            f"{path}.{key}" if is_of_object else f"{path}[{key!r:.40}]", item, current[key], returned
        )


def _held_by(value: Any) -> dict[Any, Any]:
    return dict(enumerate(value)) if isinstance(value, list | tuple) else {**value}


def _is_same(before: Any, now: Any) -> bool:
    """Tell whether an item has stayed the same; containers that were copied for the run are searched."""
    is_made = type(before) in (*_CONTAINERS, ObjectParts)
    return class_of(before) is type(now) if is_made else is_same(before, now)


def _reach(value: Any, seen: set[int]) -> None:
    if id(value) in seen or is_unread(value):
        return
    items = vars(value).items() if is_object(value) else parts_inside(value)
    for _, item in items:
        seen.add(id(value))
        _reach(item, seen)
