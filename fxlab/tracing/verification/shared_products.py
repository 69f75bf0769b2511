"""Products of matrices in a run of a model, taken by the run of its graph: equal calls give equal bits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch

from fxlab.base.torch_private import TorchDispatchMode, pytree
from fxlab.models.state.settings import settings_now
from fxlab.values.tensors import is_strided_on_cpu, storage_of

_PRODUCTS = [getattr(torch.ops.aten, name).default for name in ("mm", "addmm", "bmm", "convolution")]
_LEAST_BYTES, _SHARE_OF_WEIGHTS = 2**24, 16


class SharedProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes a product once for all calls in its context with equal bits, strides and settings of torch.

    ``weights``: known by their memory, which is held, until a call writes there; others by a checksum.
    """

    supports_higher_order_operators = True

    def __init__(self, weights: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._weights = [tensor.detach() for tensor in weights if _is_plain(tensor)]
        self._versions = {storage_of(tensor): tensor._version for tensor in self._weights}
        self._bytes_left = max(_LEAST_BYTES, sum(t.nbytes for t in self._weights) // _SHARE_OF_WEIGHTS)
        self._most_bytes = self._bytes_left // 32  # beyond that, checksums cost too much
        self._settings, self._products = settings_now(), dict[Any, torch.Tensor]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, or take its result."""
        key = self._key(func, args) if func in _PRODUCTS and not kwargs else None
        if key in self._products:
            return self._products[key].clone()
        result = func(*args, **(kwargs or {}))
        if key is not None and result.nbytes <= self._bytes_left:
            self._bytes_left -= result.nbytes
            self._products[key] = result.clone()
        elif getattr(getattr(func, "_schema", None), "is_mutable", True):
            for tensor in filter(is_strided_on_cpu, pytree.tree_leaves((args, kwargs))):
                self._versions.pop(storage_of(tensor), None)
        return result

    def _key(self, func: Any, args: tuple[Any, ...]) -> Any:
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        are_small = (t.nbytes <= self._most_bytes or storage_of(t) in self._versions for t in tensors)
        if not all(map(_is_plain, tensors)) or not all(are_small) or settings_now() != self._settings:
            return None
        return func, *(self._bits(v) if isinstance(v, torch.Tensor) else repr(v) for v in args)

    def _bits(self, tensor: torch.Tensor) -> Any:
        bits: Any = storage_of(tensor), tensor.storage_offset()
        if self._versions.get(bits[0]) != tensor._version:
            numbers = tensor.detach().contiguous().flatten().view(torch.uint8).numpy().data
            bits = hashlib.sha256(numbers).digest()
        return bits, tensor.shape, tensor.stride(), tensor.dtype


def _is_plain(tensor: torch.Tensor) -> bool:
    return is_strided_on_cpu(tensor) and not (tensor.is_inference() or tensor.is_conj() or tensor.is_neg())
