"""Peak memory of tensors during a run."""

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from fxlab.models.bodies import run_under
from fxlab.torch_private import HigherOrderOperator, TorchDispatchMode, pytree
from fxlab.values.tensors import stored_parts


class PeakMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors that operators return within it, as long as something refers to them.

    The same on every device: what an allocator keeps back, or a kernel takes for itself, does not count.
    ``peak``: the most bytes that were alive at once since the mode was entered, or since :meth:`restart`.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def restart(self) -> None:
        """Count anew: from here on only tensors that are made from here on."""
        self.peak = 0
        self._alive.clear()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {storage._cdata for storage in storages(args, kwargs)}
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return func(*run_under(self, args), **run_under(self, kwargs))
        result = func(*args, **kwargs)
        for storage in storages(result):
            if storage._cdata not in given:
                reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._alive[storage._cdata] = (reference, storage.nbytes())
        self._alive = {key: entry for key, entry in self._alive.items() if not _is_gone(entry[0])}
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return result


def _is_gone(reference: StorageWeakRef) -> bool:
    return bool(reference.expired())  # type: ignore[no-untyped-call]


def storages(*values: Any) -> list[torch.UntypedStorage]:
    """Return the memory of all tensors in values."""
    tensors = (leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor))
    return [storage for tensor in tensors for storage in _storages(tensor)]


def _storages(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    # To who watches for writes, whoever asks for a storage may write.
    with torch._C.DisableTorchFunction():
        parts = [tensor] if tensor.layout is torch.strided else stored_parts(tensor)
        return [part.untyped_storage() for part in parts]
