"""Tensors and operators as ``record_run`` sees them; results that are rounded again."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from fxlab.base import torch_private
from fxlab.operators.operator import is_written
from fxlab.validation.alignment.fingerprint import Fingerprint
from fxlab.values.nested import tensors_inside
from fxlab.values.tensors import is_floating, is_plain


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
    """Return the memory of a tensor and how it lies there; ``None`` of one that has no memory of its own."""
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
    """Return the fingerprint of a tensor; ``None`` of one that has no memory of its own."""
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


_NOISE = 2**15
_STEP = 7919
"""How far the noise of one result is from that of the next."""
_PRODUCTS = "mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "convolution", "cudnn_convolution"
_LESS_EXACT = {"high": 2.0**-10, "medium": 2.0**-8}
"""Roundings of products in float32, by ``torch.get_float32_matmul_precision()``."""


class Rounding:
    """Rounds the results of operators once more."""

    def __init__(self) -> None:
        self._known: dict[tuple[torch.device, torch.dtype, float], torch.Tensor] = {}
        self._count = 0

    def round(self, func: Any, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> None:
        """Round results once more: each element times one plus a random share of the last place."""
        self._count += 1
        keys = (key_of(tensor) for _, tensor in tensors_inside([args, kwargs]))
        given = {key[0] for key in keys if key is not None}
        written = {key_of(tensor) for tensor in written_by(func, args, kwargs)}
        for key, tensor in {key_of(tensor): tensor for tensor in tensors}.items():
            if key is None or not tensor.numel() or not is_floating(tensor):
                continue
            is_view = key[0] in given and key not in written
            if not is_view and tensor.element_size() > 1:
                unit = max(torch.finfo(tensor.dtype).eps, _unit_of_product(func, tensor))
                self._round(tensor, unit)

    def _round(self, tensor: torch.Tensor, unit: float) -> None:
        factors = self._factors(tensor.device, tensor.real.dtype, unit)
        count, start = tensor.numel(), (self._count * _STEP) % _NOISE
        if not tensor.is_contiguous():
            factors = factors[start : start + _NOISE]
            tensor.mul_(factors.repeat(-(-count // _NOISE))[:count].view(tensor.shape))
            return
        flat, whole = tensor.view(-1), count // _NOISE * _NOISE
        flat[:whole].view(-1, _NOISE).mul_(factors[start : start + _NOISE])
        flat[whole:].mul_(factors[start : start + count - whole])

    def _factors(self, device: torch.device, dtype: torch.dtype, unit: float) -> torch.Tensor:
        if (device, dtype, unit) not in self._known:
            generator = torch.Generator().manual_seed(0)
            noise = torch.rand(2 * _NOISE, generator=generator, dtype=torch.float64, device="cpu") * 2 - 1
            self._known[device, dtype, unit] = (1 + noise * unit).to(device, dtype)
        return self._known[device, dtype, unit]


def _unit_of_product(func: Any, tensor: torch.Tensor) -> float:
    """Return the rounding of a product in float32 where a setting allows a larger one."""
    if tensor.dtype is not torch.float32 or not isinstance(func, torch_private.OpOverload):
        return 0.0
    name = func._schema.name.partition("::")[2]
    if name not in _PRODUCTS:
        return 0.0
    if tensor.is_cuda and "conv" in name and torch.backends.cudnn.allow_tf32:
        return _LESS_EXACT["high"]
    return _LESS_EXACT.get(torch.get_float32_matmul_precision(), 0.0)
