"""Errors on accelerators raised as on the CPU, in trials that may fail: there they would end the process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from fxlab.base.torch_private import FakeTensor, OpOverload, TorchDispatchMode, modes_disabled, pytree
from fxlab.models.running.running import accelerators_in_use, generators_kept
from fxlab.operators.operator import is_written
from fxlab.values.tensors import is_floating, tensor_leaves


def device_errors_raised() -> AbstractContextManager[Any]:
    """Raise errors of operators on accelerators as on the CPU, until the block ends.

    An index out of range, or a probability above one, raises on the CPU. On CUDA it triggers an assertion on
    the device, and from then on every call of CUDA fails until the process ends. A run that may fail, such
    as one on inputs of other sizes, is therefore made in this block.
    """
    if not accelerators_in_use():
        return nullcontext()
    return _ErrorsRaised()  # type: ignore[no-untyped-call]


class _ErrorsRaised(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """First tries operators that read positions, conditions or probabilities on the CPU."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        from fxlab.models.running.attention import in_steps, is_attention_kernel, is_small

        kwargs = kwargs or {}
        if isinstance(func, OpOverload) and torch.Tag.pointwise not in func.tags and not func.is_view:
            tensors = tensor_leaves((args, kwargs))
            if any(
                not isinstance(each, FakeTensor) and each.device.type not in ("cpu", "meta")
                for each in tensors
            ):
                if not is_attention_kernel(func, args, kwargs):
                    raise_error_of(func, args, kwargs)
                elif is_small(func, args, kwargs):
                    return in_steps(func, args, kwargs)  # kernels end the process for some masks
        return func(*args, **kwargs)


def raise_error_of(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise the error that an operator raises on the CPU because of the values of its arguments.

    Positions and conditions are copied there. For other tensors the shapes suffice, unless probabilities are
    read. An operator that also fails with harmless values tells nothing about the values.
    """
    draws = torch.Tag.nondeterministic_seeded in func.tags
    if not draws and all(is_floating(tensor) for tensor in tensor_leaves((args, kwargs))):
        return
    written = {argument.name for argument in func._schema.arguments if is_written(argument)}

    def run(harmless: bool) -> None:
        def of(name: str, value: Any) -> Any:
            return pytree.tree_map(lambda leaf: _on_cpu(leaf, draws, name in written, harmless), value)

        named = zip(func._schema.arguments, args, strict=False)
        with modes_disabled(), generators_kept(), torch.no_grad():
            func(*(of(each.name, value) for each, value in named), **{n: of(n, v) for n, v in kwargs.items()})

    try:
        run(harmless=False)
    except Exception as error:
        try:
            run(harmless=True)
        except Exception:  # the CPU does not have this operator for these dtypes
            return
        raise type(error)(str(error)) from None


def _on_cpu(leaf: Any, needs_values: bool, is_written: bool, harmless: bool) -> Any:
    if isinstance(leaf, torch.Generator):
        return None
    if isinstance(leaf, torch.device):
        return torch.device("cpu")
    if not isinstance(leaf, torch.Tensor):
        return leaf
    is_number = is_floating(leaf)
    make: Callable[..., torch.Tensor] = torch.ones if leaf.dtype == torch.bool or is_number else torch.zeros
    if harmless:
        return make(leaf.shape, dtype=leaf.dtype, device="cpu")
    if needs_values or not is_number:
        return leaf.detach().to("cpu", copy=True)
    # An expanded tensor cannot be written, and takes no memory for the others.
    if is_written:
        return torch.zeros(leaf.shape, dtype=leaf.dtype, device="cpu")
    return torch.zeros((), dtype=leaf.dtype, device="cpu").expand(leaf.shape)
