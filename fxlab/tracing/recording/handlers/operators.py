"""The handler of calls that no other takes, and of those with lists: a node or a condition of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch.fx import Node

from fxlab.base.exchanged import patched_functions
from fxlab.base.torch_private import pytree
from fxlab.models.parallel.collectives import is_handle
from fxlab.operators.python_functions import (
    DATA,
    DTYPE_READS,
    GRADIENT_READS,
    LAYOUT_READS,
    TELL_NO_DATA,
    TEXT_READS,
)
from fxlab.tracing.model_code.python_builtins import as_python_number
from fxlab.tracing.model_code.running_code import is_asked_by_own_code, where_asked
from fxlab.tracing.recording import torch_calls
from fxlab.tracing.recording.run import PASSED_ON, RecordingState, TorchCall, versions_of
from fxlab.tracing.report import Found, Obstacle
from fxlab.tracing.shapes.symbolic_sizes import SymbolicNumber, expression_of, without_marks
from fxlab.tracing.shapes.uncounted_lists import (
    ListOfUnknownLength,
    all_read,
    is_unread,
    items_of,
    uncounted,
    uncounted_result,
)
from fxlab.tracing.torch_private import FakeTensor
from fxlab.values.nested import Path, tensors_inside
from fxlab.values.tensors import is_floating


@dataclass(frozen=True)
class _Made:
    """A call that was made, and its outcome."""

    call: TorchCall
    result: Any
    written: bool
    """Whether it has written into its arguments."""
    by_shapes: Any
    """The result of the same call on fake tensors, if it was made on real ones."""
    asked: tuple[int, int, int]
    """The count of questions about sizes before the call."""


class _StepOfAutograd:
    """The ``grad_fn`` of a tensor, as the model gets it: the graph does not have the hooks set there."""

    def __init__(self, run: RecordingState, step: torch.autograd.graph.Node) -> None:
        self._run, self._step = run, step

    def __getattr__(self, name: str) -> Any:
        if name.startswith("register_"):
            self._run.recording.note(Found.BACKWARD_HOOKS, name)
        return getattr(self._step, name)


def make_and_record(run: RecordingState, call: TorchCall) -> Any:
    """Make a call, and record it, or record the checks that the graph needs in its place."""
    args, kwargs = all_read((call.args, dict(call.kwargs)))
    args = torch_calls.with_numbers_for_sizes(call.func, args, run.number_in)
    parted = expression_of(torch_calls.size_that_is_parted(call.func, args, kwargs))
    call = TorchCall(call.func, args, kwargs, call.is_told)
    run.recording.end_if_new(call.node)
    made = _made(run, call)
    if call.name in DATA and not isinstance(made.result, SymbolicNumber | torch.Tensor):
        run.conditions.hold_read(call.node, call.name, made.result)
    if is_handle(made.result):
        raise Obstacle.COLLECTIVE_GOES_ON(called=call.name, where=where_asked())
    if call.is_told:
        _note_told(run, call, made.result)
    if not made.written and not _gives_new_values(made.result, run.recording.symbols):
        _hold_told(run, made)
        is_step = isinstance(made.result, torch.autograd.graph.Node) and is_asked_by_own_code()
        return _StepOfAutograd(run, made.result) if is_step else made.result
    if call.name in torch_calls.LEAF_MAKERS:
        return run.recorded(call.node, made.result, False, True)
    return _recorded(run, made, parted)


def require_of_data(run: RecordingState, call: TorchCall) -> Any:
    """Record a requirement on the elements of a tensor as it stands: the graph asks them when it runs."""
    if call.func is not torch._assert:
        return PASSED_ON
    condition = call.args[0] if call.args else call.kwargs["condition"]
    if not isinstance(condition, torch.Tensor) or run.recording.is_state(condition):
        return PASSED_ON
    _record_requirement(run, call.node)
    return None


def _made(run: RecordingState, call: TorchCall) -> _Made:
    before = versions_of(call.tensors)
    by_shapes = None if run.real is None else run.real.by_shapes(call.func, call.args, call.kwargs)
    asked = run.sizes.progress()
    indexes = call.name in ("__getitem__", "__setitem__") and run.real is None and not run.fakes.has_data
    args = torch_calls.with_any_index(call.args) if indexes and not run.recording.bodies else call.args
    result = run.computed(call.func, args, call.kwargs)
    known = torch_calls.written_by(call.func, call.args, call.kwargs)
    written = run.notice_writes(before, known)
    return _Made(call, result, written, by_shapes, asked)


def _hold_told(run: RecordingState, made: _Made) -> None:
    """Hold the answers of a call that becomes no node, unless it is made for its side effect."""
    call, node = made.call, made.call.node
    is_held = run.sizes.hold_since(made.asked)
    if made.result is None and call.is_told and not is_held and node.target is not getattr:
        _record_requirement(run, node)
    if run.real is not None and node.target is not getattr and call.name not in TELL_NO_DATA:
        run.conditions.hold_told(node, call.name, made.result, made.by_shapes)


def _record_requirement(run: RecordingState, call: torch_calls.Call) -> None:
    """Record a call without a result, which is made for its side effect: it may raise, for one thing."""
    # The words that it raises with.
    args, kwargs = pytree.tree_map_only(str, without_marks, (call.args, dict(call.kwargs)))
    call = replace(call, args=args, kwargs=kwargs)
    leaves = pytree.tree_leaves(run.recording.argument((args, kwargs)))
    if any(isinstance(leaf, Node) for leaf in leaves):
        run.recorded(call, None, False, impure=True)


def _recorded(run: RecordingState, made: _Made, parted: Any) -> Any:
    """Record a call that gives tensors or numbers, and hold the parts of these that Python may read."""
    call, result = made.call, made.result
    result = result if made.written else run.distinct(result, (call.args, call.kwargs))
    result = run.recorded(
        call.node, result, made.written, any(part in call.name for part in torch_calls.RAISE_ON_DATA)
    )
    if asked := run.sizes.asked_since(made.asked):
        run.recording.asked[run.recording.latest] = asked
    if run.real is not None:
        run.conditions.hold_given(call.name, result, made.by_shapes)
    elif not parted.is_number or type(result) is list:
        run.conditions.hold_count(call.name, result)
    if torch_calls.may_drop_dimensions(call.func):
        run.sizes.hold_since(made.asked)
    return result


def _note_told(run: RecordingState, call: TorchCall, result: Any) -> None:
    """Note the answers about tensors, besides their numbers, that the model's Python gets."""
    recording = run.recording
    is_type = call.name == "type" and isinstance(result, str)  # with an argument it is a cast
    is_dtype = isinstance(result, torch.dtype) or is_type
    tells_dtype = is_dtype or not DTYPE_READS.isdisjoint((call.func, call.name))
    tells_shape = _may_tell_a_shape(result)
    if tells_dtype or tells_shape:
        read = [tensor for _, tensor in tensors_inside(call.args) if not recording.is_state(tensor)]
        if tells_dtype:
            run.dtypes_read.update(map(is_floating, read))
        run.reads_shapes |= tells_shape and bool(read)
    if not LAYOUT_READS.isdisjoint((call.func, call.name)) and not recording.is_state(call.args[0]):
        run.conditions.hold_layout(call.node, call.name, result)
    if call.name in TEXT_READS and run.real is None:
        recording.note(Found.TEXT_READ, call.name)
    if call.func in GRADIENT_READS:
        _hold_gradient_read(run, call, GRADIENT_READS[call.func], result)


def _hold_gradient_read(run: RecordingState, call: TorchCall, name: str, result: Any) -> None:
    """Hold the model's reads of gradients; torch's own reads only choose between kernels."""
    if call.args[0].grad_fn is not None and run.rung.gradients:  # there is none where gradients are off
        run.setting_reads.hold_gradients()
    if is_asked_by_own_code():
        run.conditions.hold_gradient_read(call.node, name, result)
    else:
        run.recording.note(Found.GRADIENT_READ_BY_TORCH, name, value=result)


def _may_tell_a_shape(result: Any) -> bool:
    """Tell whether a result may be of the number of dimensions: it is a size, or there are several things."""
    is_number = isinstance(result, int | SymbolicNumber) and not isinstance(result, bool)
    return is_number or type(result) in (torch.Size, tuple, list)


def _gives_new_values(result: Any, known: Mapping[sympy.Symbol, Any]) -> bool:
    """Tell whether there is a tensor in a result, or a number that no size gives."""
    if isinstance(result, torch.Tensor):
        return True
    if isinstance(result, SymbolicNumber):
        return not expression_of(result).free_symbols <= known.keys()
    if isinstance(result, list | tuple):
        return any(_gives_new_values(item, known) for item in result)
    return isinstance(result, dict) and any(_gives_new_values(item, known) for item in result.values())


def hand_on_uncounted(run: RecordingState, call: TorchCall) -> Any:
    """Record a call that takes or returns a list whose length is unknown during tracing."""
    result = _uncounted(run, call)
    return PASSED_ON if result is None else result


def _uncounted(run: RecordingState, call: TorchCall) -> Any:
    def count(size: Any) -> bool:
        if isinstance(size, ListOfUnknownLength):
            size.read()
        elif not run.is_paused:
            with run.sizes.asked(by_model=True):
                as_python_number(int, size)
        return not run.is_paused

    with run.unseen():
        result = uncounted_result(call.name, call.args, call.kwargs, count)
    if result is None:
        return None
    items = items_of(result) if isinstance(result, ListOfUnknownLength) else result
    run.recorded(call.node, items, False)
    if isinstance(result, ListOfUnknownLength):
        result.node = run.recording.latest
    return result


def with_uncounted(run: RecordingState, value: Any, path: Path = (), in_mapping: bool = False) -> Any:
    """Return the latest node's result, with lists in it that notice when Python reads them.

    A list may have an item for each image of a batch, and so may a tuple in the result of a module; a tuple
    by itself is mostly several results.

    ``value``: the node's result, or its part at ``path``. ``in_mapping``: whether it is an item of a mapping.
    """
    if isinstance(value, Mapping):
        items = {key: with_uncounted(run, item, (*path, key), True) for key, item in value.items()}
        return items if type(value) is dict else type(value)(**items)
    if type(value) is tuple and not in_mapping:
        return tuple(with_uncounted(run, item, (*path, index)) for index, item in enumerate(value))
    if type(value) not in (list, tuple) or not value:
        return value
    result = uncounted(value, None, lambda _: not run.is_paused)
    result.size = result  # there is no tensor of which it is a size
    result.node = run.recording.taken_out(run.recording.latest, path)
    return result


def join_uncounted(run: RecordingState, call: TorchCall) -> Any:
    """Join the items of a list that a part which stays whole gives, however many there are."""
    is_known = call.args and not call.kwargs.keys() - {"dim"}
    if run.whole is None or call.name not in ("cat", "concat", "stack") or not is_known:
        return PASSED_ON
    parts, dim = (*call.args, call.kwargs.get("dim", 0))[:2]
    if not is_unread(parts) or parts.parted is not None:
        return PASSED_ON
    known = frozenset(run.recording.symbols)
    with run.unseen():
        result = run.whole.joined(call.func, items_of(parts), dim, adds_dimension=call.name == "stack")
        if result is None:
            return PASSED_ON
        result = run.recorded(call.node, result, False)
        run.conditions.hold_result(call.name, result, known)
    return result


@contextmanager
def lists_seen(run: RecordingState) -> Iterator[None]:
    """Let ``tolist`` be seen: of a fake tensor torch shows the calls alone that go through its numbers."""

    def call_tolist(tolist: Callable[..., Any], tensor: FakeTensor) -> Any:
        is_seen = run.is_seen() and not run.recording.bodies
        run.reads_shapes |= is_seen
        result = _uncounted(run, TorchCall(torch.Tensor.tolist, (tensor,), {})) if is_seen else None
        return tolist(tensor) if result is None else result

    with patched_functions(FakeTensor, {"tolist": lambda tolist: lambda tensor: call_tolist(tolist, tensor)}):
        yield
