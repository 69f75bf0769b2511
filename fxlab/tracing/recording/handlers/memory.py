"""The handler of questions about the memory of tensors: fake ones have none, and may share a storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from fxlab.base.exchanged import instead, patched_functions
from fxlab.operators.python_functions import ADDRESSES
from fxlab.tracing.obstacles import Obstacle
from fxlab.tracing.recording.handlers.reads import note_address
from fxlab.tracing.recording.handlers.torch_call import PASSED_ON, TorchCall
from fxlab.tracing.recording.run import RecordingState
from fxlab.tracing.recording.torch_calls import is_part_of_sparse
from fxlab.tracing.shapes.fake_mode import FakeMode
from fxlab.tracing.torch_private import FakeTensor

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
