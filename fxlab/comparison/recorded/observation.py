"""Tensors and operators of a run as ``record_run`` reads them, undisturbed: identity, parts, fingerprints."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from fxlab.base import torch_private
from fxlab.operators.operator import is_written
from fxlab.validation.alignment.fingerprint import Fingerprint
from fxlab.values.nested import tensors_inside
from fxlab.values.tensors import is_plain


def _no_reference(storage: Any) -> Any:
    raise RuntimeError("This torch has no weak references to storages, without which no run is recorded.")


_WeakStorage: Any = torch_private.private_name(
    "torch.multiprocessing.reductions.StorageWeakRef", "runs are not recorded", _no_reference
)
_UNWRITTEN = "empty", "new_empty"
_ALIASES = "detach", "alias", "lift_fresh", "_local_scalar_dense"
_NO_VALUES = "profiler", "prim", "_dtensor"


@contextmanager
def undisturbed() -> Iterator[None]:
    """Compute without gradients and modes until the block ends."""
    with torch_private.modes_disabled() if torch_private.dispatch_modes() else nullcontext(), torch.no_grad():
        yield


def key_of(tensor: torch.Tensor) -> tuple[Any, tuple[Any, ...]] | None:
    """Return the memory of a tensor and how it lies there; ``None`` for one that has no memory of its own."""
    if not isinstance(tensor, torch.Tensor) or not is_plain(tensor) or tensor.layout is not torch.strided:
        return None
    if tensor.is_meta or tensor.is_quantized:
        return None
    geometry = tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype
    return _WeakStorage(tensor.untyped_storage()), geometry


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a distributed tensor that this process has."""
    if is_plain(tensor):
        return tensor
    if hasattr(tensor, "trigger_wait"):  # the result of a collective that nobody has waited for
        return local_part(tensor.trigger_wait())
    return local_part(tensor._local_tensor) if hasattr(tensor, "_local_tensor") else tensor


def fingerprint_of(tensor: torch.Tensor) -> Fingerprint | None:
    """Return the fingerprint of a tensor; ``None`` for one that has no memory of its own."""
    if key_of(tensor) is None:
        return None
    try:
        return Fingerprint.of(tensor)
    except (RuntimeError, NotImplementedError):  # a dtype without arithmetic
        return None


def written_by(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors that an operator writes."""
    if not isinstance(func, torch_private.OpOverload):
        return
    for place, argument in enumerate(func._schema.arguments):
        if is_written(argument):
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            yield from (local_part(tensor) for _, tensor in tensors_inside(value))


def is_unseen(func: Any) -> bool:
    """Tell whether an operator computes nothing, such as a note for a profiler or a second name."""
    if not isinstance(func, torch_private.OpOverload):
        return False
    return func.namespace in _NO_VALUES or func._schema.name.partition("::")[2] in _ALIASES


def has_values(func: Any) -> bool:
    """Tell whether the results of an operator have values when it returns, unlike fresh memory."""
    if not isinstance(func, torch_private.OpOverload):
        return True
    name = func._schema.name.partition("::")[2]
    is_awaited = func.namespace == "_c10d_functional" and name != "wait_tensor"
    return not (is_awaited or name.startswith(_UNWRITTEN))


def wait_for(func: Any, result: Any) -> None:
    """Wait for a collective that writes into its arguments."""
    if getattr(func, "namespace", "") == "c10d":
        for each in result if isinstance(result, tuple) else (result,):
            if isinstance(each, torch.ScriptObject) and hasattr(each, "wait"):
                each.wait()


def is_faked(result: Any) -> bool:
    """Tell whether a result is of fake tensors, such as those that shapes of shards are computed on."""
    is_fake = isinstance(result, torch_private.FakeTensor)
    is_meta = getattr(result, "is_meta", False)
    return is_fake or (
        is_meta
        and any(isinstance(mode, torch_private.FakeTensorMode) for mode in torch_private.dispatch_modes())
    )
