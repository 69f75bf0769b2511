"""Results of recorded calls on fake tensors, made once for calls that are alike, as those of equal layers.

Torch asks dozens of questions about symbolic sizes for each call. A result is that of an earlier call if all
that decides on it is the same, and if that call wrote nothing and learned nothing about sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fxlab.tracing.recording.autocast_regions import attention_backends
from fxlab.tracing.shapes.asked_sizes import ModelSizes, can_remember, identity
from fxlab.tracing.shapes.fake_mode import FakeMode, computed_from, is_plain_fake
from fxlab.tracing.torch_private import FakeTensor
from fxlab.values.tensors import storage_of, version_of

_CONSTANTS = frozenset(
    (bool, int, float, complex, str, type(None), type(...), torch.dtype, torch.device, torch.memory_format)
)


class SharedResults:
    """The results of calls of one run. ``mode``: makes its fake tensors. ``sizes``: knows their symbols.

    ``known``: for each, the number of the tensor of its call that it is or views, whether it has a gradient,
    and copies by the viewed memory. ``tell``: functions that have given something else than a tensor.
    """

    def __init__(self, mode: FakeMode, sizes: ModelSizes) -> None:
        self.mode, self._sizes, self._version = mode, sizes, -1
        self._can_share = can_remember(sizes) and mode.shares_storages and not mode.propagate_real_tensors
        self.known: dict[Any, tuple[int | None, bool, dict[Any, FakeTensor]]] = {}
        self.tell: set[Any] = set()

    def find(self, func: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> SharedCall | None:
        """Return a call that is to be made, with its result if that is known; ``None`` if unlike others."""
        # What an attribute gives may be there already.
        if not self._can_share or func in self.tell or getattr(func, "__name__", "") == "__get__":
            return None
        with torch._C.DisableTorchFunction():
            try:
                return SharedCall(self, func, (args, *kwargs.items()))
            except NotImplementedError:
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
            raise NotImplementedError
        settings = torch.is_grad_enabled(), torch.get_default_dtype(), attention_backends()
        self._arguments = arguments
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
            return identity(value.node)
        if kind in (tuple, list, torch.Size):
            return kind, *[self._told(item) for item in value]
        if kind is slice:
            return slice, *[self._told(item) for item in (value.start, value.stop, value.step)]
        is_once = all(value is not other for other in self._tensors)
        if not _is_usual(value) or value.fake_mode is not self._shared.mode or not is_once:
            raise NotImplementedError
        self._tensors.append(value)
        sizes = *value.shape, *value.stride(), value.storage_offset()
        known = [identity(getattr(size, "node", size)) for size in sizes]
        return value.dtype, value.fake_device, value.requires_grad, *known

    def _again(self, place: int | None, has_gradient: bool, copies: dict[Any, Any]) -> torch.Tensor | None:
        """Return a result anew; ``None`` for a view of a tensor in other memory."""
        mode, of = self._shared.mode, None if place is None else self._tensors[place]
        if of is not None and not copies:
            return of
        if (known := copies.get(of if of is None else storage_of(of))) is None:
            return None
        result = mode.of(known, known.fake_device)
        if of is not None:
            return mode.given_by(torch.ops.aten.alias.default, of, result)
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
            tensors, self._tensors = self._tensors, []
            if len(tensors) == 1 and tensors[0] is result:
                if self._told(self._arguments) == self._key[2]:  # and it has set nothing, either
                    self._shared.known[self._key] = 0, False, {}
                return
            storages = [*map(storage_of, tensors), storage_of(result)]
            viewed = storages.index(storages[-1])
            place, within = viewed if viewed < len(tensors) else None, tensors[viewed : viewed + 1]
            follows = torch.is_grad_enabled() and any(t.requires_grad for t in within or tensors)
            is_kept = not result._is_view() and (not result.requires_grad or (follows and not result.is_leaf))
            for of in within:
                base = of._base if of._is_view() else of
                is_kept = result._is_view() and result._base is base and result.dtype == of.dtype
                is_kept = is_kept and result.requires_grad == follows
            # A size that data decides is that of one tensor: torch knows it if the same call is made again.
            if is_kept and _symbols(result) <= set[Any]().union(*map(_symbols, tensors)):
                known = self._shared.known.get(self._key, (place, result.requires_grad, {}))
                copies = known[2] if known[:2] == (place, result.requires_grad) else {}
                copies[storages[-1] if within else None] = self._shared.mode.of(result, result.fake_device)
                self._shared.known[self._key] = place, result.requires_grad, copies


def _symbols(tensor: Any) -> set[Any]:
    followed = (size.node._expr for size in tensor.shape if isinstance(size, torch.SymInt))
    return {symbol for expression in followed for symbol in expression.free_symbols}


def _is_usual(tensor: Any) -> bool:
    """Tell whether nothing is special about a tensor that a result depends on, or that a copy lacks."""
    is_dense = is_plain_fake(tensor) and tensor.layout is torch.strided
    return is_dense and not (tensor.is_complex() or tensor.is_inference() or tensor.is_neg())
