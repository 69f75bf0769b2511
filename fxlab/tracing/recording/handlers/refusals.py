"""Calls whose results a graph could not compute again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._functorch import eager_transforms
from torch._subclasses.fake_tensor import FakeTensor

from fxlab.interrupts import RestoringStack
from fxlab.operators.python_functions import ADDRESSES
from fxlab.tracing.recording.handlers.reads import note_address
from fxlab.tracing.recording.handlers.replaced import replaced
from fxlab.tracing.recording.handlers.torch_call import PASSED_ON, TorchCall
from fxlab.tracing.recording.run import Run
from fxlab.tracing.report import TraceError

_DERIVATIVES = ("grad_increment_nesting", "jvp_increment_nesting")
"""What each derivative of ``torch.func`` goes through."""


def refuse_functions_of_functions(run: Run, call: TorchCall) -> Any:
    """Refuse operators that are given functions, such as ``torch.cond``."""
    if isinstance(call.func, torch._ops.HigherOrderOperator):
        raise _hidden(f"torch's operator {call.func.__name__}, which is given functions")
    return PASSED_ON


def refuse_backward(run: Run, call: TorchCall) -> Any:
    """Refuse ``backward``, which leaves its results in tensors."""
    if call.name == "backward":
        raise TraceError(
            "The model calls backward(), which leaves gradients in tensors, where a graph cannot read "
            "them. torch.autograd.grad, which returns them, can be recorded."
        )
    return PASSED_ON


def refuse_memory(run: Run, call: TorchCall) -> Any:
    """Refuse to go to the memory of a fake tensor, which has none."""
    if call.name in ADDRESSES and isinstance(call.args[0], FakeTensor):
        raise TraceError(f"The model reads memory ({call.name}), which only real inputs have")
    return PASSED_ON


@contextmanager
def addresses_of_storages_seen(run: Run) -> Iterator[None]:
    """Refuse to tell where the storage of a fake tensor begins, and note where a real one does."""
    # Python calls it on this class, which inherits it.
    original = torch.UntypedStorage.data_ptr

    def address(storage: torch.UntypedStorage) -> int:
        if run.is_seen():
            if storage.device.type == "meta" and run.real is None:
                raise TraceError(
                    "The model reads where a storage begins (data_ptr), which only real inputs tell"
                )
            note_address(run)
        return original(storage)

    torch.UntypedStorage.data_ptr = address  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del torch.UntypedStorage.data_ptr


@contextmanager
def derivatives_refused(run: Run) -> Iterator[None]:
    """Refuse the derivatives of ``torch.func``, which hide what they differentiate."""

    def nested(original: Any) -> Any:
        if not run.is_seen():
            return original()
        raise _hidden("a derivative of torch.func (grad, vjp, jvp, jacrev, jacfwd, hessian)")

    own = {name: vars(eager_transforms)[name] for name in _DERIVATIVES}
    with RestoringStack(*(replaced(eager_transforms, n, partial(nested, f)) for n, f in own.items())):
        yield


def _hidden(what: str) -> TraceError:
    return TraceError(
        f"The model uses {what}. Torch hides what is computed inside, so it cannot be recorded. Name the "
        "module that does this in leaf_modules."
    )
