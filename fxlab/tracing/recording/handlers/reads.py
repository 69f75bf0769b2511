"""The handler of calls by which Python takes numbers out of tensors or puts them in, or asks for memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from fxlab.base.exchanged import instead, patched_functions
from fxlab.operators.python_functions import ADDRESSES, DATA, NUMBER_OF
from fxlab.tracing.model_code.python_builtins import as_python_number
from fxlab.tracing.recording.run import PASSED_ON, RecordingState, TorchCall
from fxlab.tracing.recording.torch_calls import Call, is_part_of_sparse
from fxlab.tracing.report import Found, Obstacle
from fxlab.tracing.shapes.fake_mode import FakeMode
from fxlab.tracing.torch_private import FakeTensor, unset_fake_temporarily
from fxlab.values.nested import map_tensors

_HOOKS_OF_GRADIENTS = frozenset({"register_hook", "register_post_accumulate_grad_hook"})


def read_state(run: RecordingState, call: TorchCall) -> Any:
    """Read numbers out of a parameter or buffer, whose data is at hand while inputs are fake."""
    if call.name not in DATA:
        return PASSED_ON
    state = run.recording.state_behind(call.tensors)
    if state is None or any(tensor.is_meta for _, tensor in state):
        return PASSED_ON
    if not all(run.is_held(name, tensor) for (name, _), tensor in zip(state, call.tensors, strict=True)):
        return PASSED_ON
    originals = {id(fake): original for fake, (_, original) in zip(call.tensors, state, strict=True)}
    with unset_fake_temporarily():
        value = call.func(*map_tensors(lambda _, tensor: originals[id(tensor)], call.args), **call.kwargs)
    names = ", ".join(name for name, _ in state)
    run.recording.note(Found.VALUE_OF_STATE, names, value=value)
    return value


def describe_other_fakes(run: RecordingState, call: TorchCall) -> Any:
    """Answer questions about a fake tensor of another mode, such as one in the ``meta`` of a program's nodes.

    Its sizes are no values of this run, and modules that hold a program compare them with its inputs'.
    """
    others = [t for t in call.tensors if isinstance(t, FakeTensor) and not isinstance(t.fake_mode, FakeMode)]
    if not others or len(others) < len(call.tensors):
        return PASSED_ON
    return run.computed(call.func, call.args, dict(call.kwargs))


def read_one_number(run: RecordingState, call: TorchCall) -> Any:
    """Let Python have the one number in a fake tensor, which fixes it if it is a size."""
    if call.name not in NUMBER_OF or not isinstance(call.args[0], FakeTensor):
        return PASSED_ON
    with run.sizes.asked(by_model=True):
        return as_python_number(NUMBER_OF[call.name], run.number_in(call.args[0]))


def read_address(run: RecordingState, call: TorchCall) -> Any:
    """Note that an address is read, and pass the call on."""
    if call.name == "data_ptr":
        note_address(run)
    return PASSED_ON


def leave_profiling(run: RecordingState, call: TorchCall) -> Any:
    """Ignore regions that the model marks for a profiler: they compute nothing."""
    operator = getattr(call.func, "_qualified_op_name", "") or str(call.func)
    return call.func(*call.args, **call.kwargs) if operator.startswith("profiler") else PASSED_ON


def leave_backward_hooks(run: RecordingState, call: TorchCall) -> Any:
    """Skip a hook on a gradient, which the graph does not have."""
    if call.name not in _HOOKS_OF_GRADIENTS:
        return PASSED_ON
    run.recording.note(Found.BACKWARD_HOOKS, call.name)
    with run.unseen():
        return call.func(*call.args, **call.kwargs)


def refuse_backward(run: RecordingState, call: TorchCall) -> Any:
    """Refuse ``backward``, which leaves its results in tensors."""
    if call.name == "backward":
        raise Obstacle.BACKWARD()
    return PASSED_ON


def note_address(run: RecordingState) -> None:
    """Note that an address is read."""
    run.recording.note(Found.ADDRESS_READ, "data_ptr")


_STORAGES = frozenset({"storage", "untyped_storage", "_typed_storage"})
_COMPARED = ("_is_alias_of", "_overlaps", "_storage_address", "_storage_id")
"""Functions of ``torch._C`` that tell which tensors lie in one storage, and that modes do not see."""


class StoragesComparedError(BaseException):
    """The model asks which tensors share a storage, while fake ones of one shape do.

    Not an ``Exception``, after which a model may go on.
    """


def refuse_memory(run: RecordingState, call: TorchCall) -> Any:
    """Refuse to go to the memory of a fake tensor, which has none, and to the parts of a sparse one."""
    if not isinstance(call.args[0] if call.args else None, FakeTensor):
        return PASSED_ON
    if call.name in ADDRESSES:
        raise Obstacle.MEMORY_READ(called=call.name)
    if is_part_of_sparse(call.name, call.args):
        raise Obstacle.SPARSE_PARTS_READ(called=call.name)
    return PASSED_ON


@contextmanager
def addresses_of_storages_seen(run: RecordingState) -> Iterator[None]:
    """Refuse to tell where the storage of a fake tensor begins, and note where a real one does."""
    # Python calls it on this class, which inherits it.
    inherited: Callable[..., int] = super(torch.UntypedStorage, torch.UntypedStorage).data_ptr

    def address(storage: torch.UntypedStorage) -> int:
        if run.is_seen():
            if storage.device.type == "meta" and run.real is None:
                raise Obstacle.ADDRESS_READ()
            note_address(run)
        return inherited(storage)

    with patched_functions(torch.UntypedStorage, {"data_ptr": instead(address)}):
        yield


def require_own_storages(run: RecordingState, call: TorchCall) -> Any:
    """End the run if a model asks for the storage of a fake tensor that may be that of others."""
    if call.name in _STORAGES and call.is_told:
        _require_own(call.args)
    return PASSED_ON


@contextmanager
def storages_seen(run: RecordingState) -> Iterator[None]:
    """Require the same of comparisons of tensors, which torch hides from modes."""

    def compared(original: Any, *tensors: Any) -> Any:
        if run.is_seen():
            _require_own(tensors)
        return original(*tensors)

    known = [name for name in _COMPARED if name in vars(torch._C)]
    with patched_functions(torch._C, dict.fromkeys(known, lambda original: partial(compared, original))):
        yield


def _require_own(tensors: Any) -> None:
    for tensor in tensors:
        if isinstance(tensor, FakeTensor):
            mode = tensor.fake_mode
            if isinstance(mode, FakeMode) and mode.shares_storages and (mode.of_shape or mode.has_shared):
                raise StoragesComparedError


_OF_NUMPY = (torch.tensor, torch.as_tensor, torch.asarray)


def allow_numbers(run: RecordingState, call: TorchCall) -> Any:
    """Record a tensor that torch makes of Python numbers as a constant, and make the call."""
    if call.func is torch.ops.aten.lift_fresh.default:
        run.made.allow(call.args)
    return PASSED_ON


def copy_array(run: RecordingState, call: TorchCall) -> Any:
    """Make a tensor of an array of numpy, which no recorded call can have given."""
    if call.func not in _OF_NUMPY or not isinstance(call.args[0], np.ndarray):
        return PASSED_ON
    with run.unseen(), unset_fake_temporarily():
        constant = run.recording.constant_node(call.func(*call.args, **call.kwargs).clone())
    result = call.func(*call.args, **call.kwargs)
    return run.recorded(Call("call_method", "clone", (constant,), {}), result, False)


@contextmanager
def arrays_seen(run: RecordingState) -> Iterator[None]:
    """Let ``torch.from_numpy`` be seen, which torch hides from modes."""

    def from_array(from_numpy: Callable[..., Any], ndarray: Any) -> Any:
        return torch.as_tensor(ndarray) if isinstance(ndarray, np.ndarray) else from_numpy(ndarray)

    with patched_functions(torch, {"from_numpy": lambda from_numpy: partial(from_array, from_numpy)}):
        yield


@contextmanager
def constructors_seen(run: RecordingState) -> Iterator[None]:
    """Record tensors that classes make, as in ``torch.LongTensor([0, 2])``: only operators show them."""

    def hear(func: Any, args: tuple[Any, ...], result: Any) -> Any:
        if func is torch.ops.aten.lift_fresh.default and run.is_seen():
            with run.unseen(), unset_fake_temporarily():
                constant = run.recording.constant_node(args[0].clone())
            return run.recorded(Call("call_method", "clone", (constant,), {}), result, False)
        if func is torch.ops.aten.empty.memory_format and run.is_seen():
            options = {"dtype": result.dtype, "device": result.device}
            return run.recorded(Call("call_function", torch.empty, args[:1], options), result, False)
        return result

    run.fakes.mode.hear = hear
    try:
        yield
    finally:
        run.fakes.mode.hear = None
