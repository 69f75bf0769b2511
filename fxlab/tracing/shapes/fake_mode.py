"""The mode of torch that makes fake tensors and notices each operator on them; tensors of a known shape."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch

from fxlab.base.exchanged import instead, patched_functions
from fxlab.base.torch_private import HigherOrderOperator, OpOverload
from fxlab.tracing.model_code.running_code import is_model_code
from fxlab.tracing.model_code.unseen_work import OneThread
from fxlab.tracing.shapes.asked_sizes import ModelSizes
from fxlab.tracing.shapes.symbolic_sizes import expression_of
from fxlab.tracing.torch_private import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
    registered_hop_fake_fns,
)


class FakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Fake tensors. If data comes along, torch is not to compare the two, which would fix sizes."""

    one_thread: OneThread | None = None
    """Notices each operator on these tensors, in any thread."""
    hear: Callable[[Any, Any, Any], Any] | None = None
    """Is given each operator outside of functions that torch shows, its arguments, and its result."""
    of_shape: dict[Any, torch.Tensor]
    """A tensor for each dtype and shape of which one was made."""
    supports_higher_order_operators = True
    _is_writing = False
    _given: tuple[Any, FakeTensor] | None = None
    shares_storages = True
    """Whether tensors of one shape may share a storage, as long as no model compares storages."""
    has_shared = False

    def __init__(self, **options: Any) -> None:
        # The number in an input of no dimensions is data. Without ``export`` it would be a symbol with a
        # hint, which ``int`` and branches fix by a guard of torch's that no graph checks.
        super().__init__(export=True, **options)
        self.of_shape = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make a call; one that takes functions, by the rule that torch has for its own class of modes."""
        if self._given is not None and func is self._given[0]:
            return self._given[1]
        if func is torch.ops.aten._efficientzerotensor.default:
            # Of one that holds no numbers C++ asks sizes as plain numbers, when a derivative is added to it.
            func = torch.ops.aten.zeros.default
        rules: dict[Any, Any] = registered_hop_fake_fns
        if not isinstance(func, HigherOrderOperator) or func in rules:
            return super().__torch_dispatch__(func, types, args, kwargs)
        if (rule := func.python_key_table.get(FakeTensorMode)) is None:
            raise NotImplementedError(f"torch has no fake results of {func._name}")
        return rule(self, *args, **(kwargs or {}))

    def _cached_dispatch_impl(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Make each view again, and an alias without asking about sizes.

        To remember a view, torch computes again how much memory it spans: with symbols, the costliest part.
        """
        if func is torch.ops.aten.alias.default and is_plain_fake(args[0]):
            return self.of(args[0], args[0].fake_device)
        if getattr(func, "is_view", False):
            return self._dispatch_impl(func, types, args, kwargs)
        return super()._cached_dispatch_impl(func, types, args, kwargs)

    def of(self, elements: torch.Tensor, device: torch.device) -> FakeTensor:
        """Return a fake tensor like another, which copies what torch has found about its sizes."""
        with in_kernel_invocation_manager(self):
            return FakeTensor(self, elements.data, device)

    def given_by(
        self, operator: OpOverload[..., Any], given: torch.Tensor, result: FakeTensor
    ) -> torch.Tensor:
        """Return a result with the history, and the tensor that it views, which an operator gives it."""
        self._given = operator, result
        try:
            return operator(given)  # type: ignore[no-any-return]
        finally:
            self._given = None

    def _maybe_infer_fake_kernel_from_pytree_out(self, *args: Any) -> None:
        """Compare nothing: the check of the finished graph compares it with the model."""

    def can_run_unsafe_fallback(self, func: Any) -> bool:
        """Refuse numbers computed of zeros, with which torch replaces data that a kernel needs."""
        gives_tensors = all("Tensor" in str(returned.type) for returned in func._schema.returns)
        return gives_tensors and super().can_run_unsafe_fallback(func)

    def dispatch(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a call after its thread and operator have been noticed."""
        if self.one_thread is not None and not self.one_thread.is_paused:
            self.one_thread.notice()
            assert isinstance(self.shape_env, ModelSizes)
            if self.shape_env.is_asked_by_model and self.one_thread.is_here():
                self.shape_env.require_shown(func)
                if self.hear is not None:
                    return self.hear(func, args[1], super().dispatch(func, *args, **kwargs))
        return super().dispatch(func, *args, **kwargs)

    def _dispatch_impl(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Write data once: torch writes it again for each operator that the one that writes is made of."""
        with_data = self.propagate_real_tensors
        if self._is_writing:
            self.propagate_real_tensors = False
            try:
                return super()._dispatch_impl(func, types, args, kwargs)
            finally:
                self.propagate_real_tensors = with_data
        self._is_writing = with_data and isinstance(func, OpOverload) and func._schema.is_mutable
        try:
            return super()._dispatch_impl(func, types, args, kwargs)
        finally:
            self._is_writing = False


class _UnlessAsked(type):
    """The class of a class that a model takes no tensor to be of, and torch all fake ones."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, FakeTensor) and not is_model_code(sys._getframe(1).f_code.co_filename)


@contextmanager
def fakes_hidden() -> Iterator[None]:
    """Tell a model that asks whether a tensor is a fake one that it is not: it would compute otherwise then.

    Code outside of torch reaches their class as ``torch._subclasses.FakeTensor``.
    """
    hidden = _UnlessAsked("FakeTensor", (), {})
    with patched_functions(torch._subclasses, {"FakeTensor": instead(hidden)}):
        yield


def is_plain_fake(tensor: Any) -> bool:
    """Tell whether torch knows nothing of a fake tensor's data."""
    return type(tensor) is FakeTensor and tensor.constant is None and tensor.real_tensor is None


def made(shape: tuple[Any, ...], *given: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor as a call on others gives it, of the dtype and device of the first."""
    result = _empty(shape, given[0])
    follows = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    return computed_from(result, *given) if follows else result


def computed_from(result: FakeTensor, *given: torch.Tensor) -> torch.Tensor:
    """Return a new tensor that has a gradient and may be written to, as a call on others gives it."""
    followed = next(tensor for tensor in given if tensor.requires_grad)
    mode = result.fake_mode
    assert isinstance(mode, FakeMode)
    return mode.given_by(torch.ops.aten.clone.default, followed, result)


def _empty(shape: tuple[Any, ...], like: torch.Tensor) -> FakeTensor:
    """Return a new tensor, which copies torch's findings about the first one of its shape.

    To count the elements and to find whether they are contiguous takes some thirty questions about symbolic
    sizes. Each copy has a version of its own.
    """
    assert isinstance(like, FakeTensor)
    mode, device = like.fake_mode, like.fake_device
    if not isinstance(mode, FakeMode) or not mode.shares_storages:
        return cast(FakeTensor, like.new_empty(shape))
    key = like.dtype, *map(expression_of, shape)
    if key not in mode.of_shape:
        with in_kernel_invocation_manager(mode):
            mode.of_shape[key] = torch.empty(shape, dtype=like.dtype, device="meta")
    return mode.of(mode.of_shape[key], device)


def are_plain(*tensors: Any) -> bool:
    """Tell whether all are fake tensors of one dtype and device, which autocast does not change."""
    first = tensors[0]
    return (
        all(
            type(tensor) is FakeTensor and (tensor.dtype, tensor.device) == (first.dtype, first.device)
            for tensor in tensors
        )
        and not torch._C._is_any_autocast_enabled()
    )


def are_equal(sizes: Any, others: Any) -> bool:
    """Tell whether sizes are known to be equal, without a guard that makes them so."""
    return [*map(expression_of, sizes)] == [*map(expression_of, others)]
