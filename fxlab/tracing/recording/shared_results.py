"""Results of calls on fake tensors, made once for calls that are alike, as those of equal layers are.

Torch asks dozens of questions about symbolic sizes for each call. A result is that of an earlier call if all
that decides on it is the same, and if that call has only made it: it has written nothing, and has learned
nothing about sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fxlab.tracing.recording.autocast_regions import attention_backends
from fxlab.tracing.shapes.asked_sizes import ModelSizes
from fxlab.tracing.shapes.fake_mode import FakeMode, is_plain_fake
from fxlab.tracing.shapes.kernels.made_tensors import computed_from
from fxlab.tracing.shapes.size_cache import can_remember
from fxlab.tracing.torch_private import FakeTensor, SymNode
from fxlab.values.tensors import storage_of, version_of

_CONSTANTS = frozenset(
    (bool, int, float, complex, str, type(None), type(...), torch.dtype, torch.device, torch.memory_format)
)


class _UnlikeOthersError(Exception):
    """A call depends on more than can be compared."""


class SharedResults:
    """The results of calls of one run. ``mode``: makes its fake tensors. ``sizes``: knows their symbols.

    ``known``: a copy of each, whether it has a gradient, and the number of the tensor that it is a view of,
    among those of its call. ``tell``: functions that have given something else than a tensor.
    """

    def __init__(self, mode: FakeMode, sizes: ModelSizes) -> None:
        self.mode, self._sizes, self._version = mode, sizes, -1
        self._can_share = can_remember(sizes) and mode.shares_storages and not mode.propagate_real_tensors
        self.known: dict[Any, tuple[FakeTensor, bool, int | None]] = {}
        self.tell: set[Any] = set()

    def find(self, func: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> SharedCall | None:
        """Return a call that is to be made, with its result if that is known; ``None`` if unlike others."""
        # What an attribute gives may be there already.
        if not self._can_share or func in self.tell or getattr(func, "__name__", "") == "__get__":
            return None
        with torch._C.DisableTorchFunction():
            try:
                return SharedCall(self, func, (args, *kwargs.items()))
            except _UnlikeOthersError:
                return None

    def progress(self) -> Any:
        """Return how much is known about sizes."""
        if self._version != self._sizes._version_counter:
            self._version = self._sizes._version_counter
            self.known.clear()
        return self._version, len(self._sizes.fixed), self._sizes.progress()


class SharedCall:
    """A call. ``result``: the result that an earlier one has had, made anew, or ``None``."""

    def __init__(self, shared: SharedResults, func: Any, arguments: Any) -> None:
        self._shared, self._func, self._tensors = shared, func, list[FakeTensor]()
        if torch._C._is_any_autocast_enabled():
            raise _UnlikeOthersError
        settings = torch.is_grad_enabled(), torch.get_default_dtype(), attention_backends()
        self._key = func, settings, self._told(arguments)
        self._before = shared.progress()
        self.result = self._again(*shared.known[self._key]) if self._key in shared.known else None
        self._versions = [] if self.result is not None else [*map(version_of, self._tensors)]

    def _told(self, value: Any) -> Any:
        """Return all of an argument that a result may depend on."""
        kind = type(value)
        if kind in _CONSTANTS:
            return kind, value  # as 1, 1.0 and True are equal
        if kind is torch.SymInt:
            return _expression(value)
        if kind in (tuple, list, torch.Size):
            return kind, *[self._told(item) for item in value]
        if kind is slice:
            return slice, *[self._told(item) for item in (value.start, value.stop, value.step)]
        if not _is_usual(value) or value.fake_mode is not self._shared.mode:
            raise _UnlikeOthersError
        if any(value is other for other in self._tensors):
            raise _UnlikeOthersError
        self._tensors.append(value)
        sizes = *value.shape, *value.stride(), value.storage_offset()
        return value.dtype, value.fake_device, value.requires_grad, *map(_expression, sizes)

    def _again(self, known: FakeTensor, has_gradient: bool, viewed: int | None) -> torch.Tensor | None:
        """Return a result anew; ``None`` for a view of a tensor in other memory."""
        mode = self._shared.mode
        result = mode.of(known, known.fake_device)
        if viewed is not None:
            of = self._tensors[viewed]
            is_there = storage_of(of) == storage_of(result)
            return mode.given_by(torch.ops.aten.alias.default, of, result) if is_there else None
        mode.has_shared = True
        return computed_from(result, *self._tensors) if has_gradient else result

    def keep(self, result: Any) -> None:
        """Keep the result of the call for others, if it is a new tensor or a view of one that was given."""
        if type(result) is not FakeTensor:
            self._shared.tell.add(self._func)
            return
        with torch._C.DisableTorchFunction():
            is_made_only = self._versions == [*map(version_of, self._tensors)]
            if not is_made_only or self._before != self._shared.progress() or not _is_usual(result):
                return
            storages, viewed = [*map(storage_of, self._tensors)], None
            may_follow = torch.is_grad_enabled()
            if storage_of(result) in storages:
                viewed = storages.index(storage_of(result))
                of = self._tensors[viewed]
                is_view = result._is_view() and result._base is (of._base if of._is_view() else of)
                follows = may_follow and of.requires_grad
                if not is_view or result.dtype != of.dtype or result.requires_grad != follows:
                    return
            else:
                may_follow &= any(tensor.requires_grad for tensor in self._tensors)
                if result._is_view() or (result.requires_grad and (result.is_leaf or not may_follow)):
                    return
            copy = self._shared.mode.of(result, result.fake_device)
            self._shared.known[self._key] = copy, result.requires_grad, viewed


def _is_usual(tensor: Any) -> bool:
    """Tell whether nothing is special about a tensor that a result depends on, or that a copy lacks."""
    if not is_plain_fake(tensor) or tensor.layout is not torch.strided:
        return False
    return not (tensor.is_complex() or tensor.is_inference() or tensor.is_neg())


def _expression(size: Any) -> Any:
    if type(size) is int:
        return size
    if not isinstance(size.node, SymNode):
        raise _UnlikeOthersError
    return size.node._expr
