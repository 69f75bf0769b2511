"""Errors of operators on accelerators, raised before they end the process."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from fxlab.models.attention_kernels import in_steps, is_attention_kernel, is_small
from fxlab.models.running import accelerators_in_use, generators_kept
from fxlab.torch_private import FakeTensor, OpOverload, TorchDispatchMode, modes_disabled, pytree


def device_errors_raised() -> AbstractContextManager[Any]:
    """Raise errors in operators on accelerators as those of the CPU are raised, until the block ends.

    An index out of range, or a probability above one, raises on the CPU. On CUDA it triggers an assertion on
    the device, and from then on every call of CUDA fails until the process ends. A run that may fail, such
    as one on inputs of other sizes, is therefore made in this block.
    """
    if not accelerators_in_use():
        return nullcontext()
    return _ErrorsRaised()  # type: ignore[no-untyped-call]


class _ErrorsRaised(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tries operators on the CPU first that read positions, conditions or probabilities."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, OpOverload) and _may_fail_on_values(func):
            tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            if any(_is_on_accelerator(tensor) for tensor in tensors):
                if not is_attention_kernel(func, args, kwargs):
                    raise_error_of(func, args, kwargs)
                elif is_small(func, args, kwargs):
                    return in_steps(func, args, kwargs)  # kernels end the process for some masks
        return func(*args, **kwargs)


def raise_error_of(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise the error that an operator raises on the CPU because of the values of its arguments.

    Positions and conditions are copied there. Of other tensors the shapes suffice, unless probabilities are
    read. An operator that fails there with harmless values as well says nothing of the values.
    """
    draws = torch.Tag.nondeterministic_seeded in func.tags
    values = [tensor for tensor in pytree.tree_leaves((args, kwargs)) if isinstance(tensor, torch.Tensor)]
    if not draws and all(tensor.is_floating_point() or tensor.is_complex() for tensor in values):
        return
    written = {argument.name for argument in func._schema.arguments if _is_written(argument)}

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


def _may_fail_on_values(func: OpOverload) -> bool:
    return torch.Tag.pointwise not in func.tags and not func.is_view


def _is_written(argument: torch.Argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_on_accelerator(tensor: torch.Tensor) -> bool:
    return not isinstance(tensor, FakeTensor) and tensor.device.type not in ("cpu", "meta")


def _on_cpu(leaf: Any, needs_values: bool, is_written: bool, harmless: bool) -> Any:
    if isinstance(leaf, torch.Generator):
        return None
    if isinstance(leaf, torch.device):
        return torch.device("cpu")
    if not isinstance(leaf, torch.Tensor):
        return leaf
    is_number = leaf.is_floating_point() or leaf.is_complex()
    make: Callable[..., torch.Tensor] = torch.ones if leaf.dtype == torch.bool or is_number else torch.zeros
    if harmless:
        return make(leaf.shape, dtype=leaf.dtype, device="cpu")
    if needs_values or not is_number:
        return leaf.detach().to("cpu", copy=True)
    if is_written:
        return torch.zeros(leaf.shape, dtype=leaf.dtype, device="cpu")
    return torch.zeros((), dtype=leaf.dtype, device="cpu").expand(leaf.shape)
