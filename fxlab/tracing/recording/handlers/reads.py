"""The handler of calls by which Python takes numbers out of tensors."""

from __future__ import annotations

from typing import Any

from fxlab.operators.python_functions import DATA
from fxlab.operators.tensor_reads import NUMBER_OF
from fxlab.tracing.findings import Found
from fxlab.tracing.model_code.python_builtins import as_python_number
from fxlab.tracing.obstacles import Obstacle
from fxlab.tracing.recording.handlers.torch_call import PASSED_ON, TorchCall
from fxlab.tracing.recording.run import RecordingState
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
    if not call.tensors or not all(map(_is_of_other_mode, call.tensors)):
        return PASSED_ON
    return run.computed(call.func, call.args, dict(call.kwargs))


def _is_of_other_mode(tensor: Any) -> bool:
    return isinstance(tensor, FakeTensor) and not isinstance(tensor.fake_mode, FakeMode)


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
