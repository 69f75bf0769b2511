"""Operators that autocast computes in its own dtype, found by trying them: torch has no list of them."""

import warnings
from functools import lru_cache
from typing import Any

import torch

from fxlab.base.torch_private import OpOverload, modes_disabled
from fxlab.operators.operator import Operator

DEVICES = ("cpu", "cuda")


def is_lowered_by_autocast(operator: Operator) -> bool:
    """Tell whether autocast casts all floating-point tensors that an operator reads, on CPUs and on GPUs.

    An overload that autocast does not know calls another of them. Also false if a newer torch makes the trial
    impossible.
    """
    for device in DEVICES:
        known = [overload for overload in operator.overloads if _is_registered(overload, device)]
        if not known or not all(_is_lowered(overload, device) for overload in known):
            return False
    return True


def _is_registered(overload: OpOverload, device: str) -> bool:
    key = f"Autocast{device.upper()}"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(overload._name, key))


class _FirstCallError(Exception):
    """Reports the first call of an operator, and stops it there."""

    def __init__(self, casts_to: torch.dtype | None) -> None:
        super().__init__()
        self.casts_to = casts_to


class _Watched(torch.Tensor):
    """A tensor without data that claims to lie on a device, and stops every computation with it."""

    @staticmethod
    def __new__(cls, device: str) -> "_Watched":
        make: Any = torch.Tensor._make_wrapper_subclass
        return make(cls, (2, 2), dtype=torch.float32, device=device)  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        is_cast = func is torch.ops.aten._to_copy.default
        raise _FirstCallError((kwargs or {}).get("dtype") if is_cast else None)


@lru_cache(maxsize=1024)
def _is_lowered(overload: OpOverload, device: str) -> bool:
    """Call an operator on small tensors without data: autocast casts first."""
    was_on, dtype = torch.is_autocast_enabled(device), None
    try:
        with warnings.catch_warnings(), modes_disabled(), torch._C.DisableTorchFunction():
            warnings.simplefilter("ignore")
            args, kwargs = _arguments(overload, _Watched(device))
            torch.set_autocast_enabled(device, True)
            overload(*args, **kwargs)
    except _FirstCallError as first:
        dtype = first.casts_to
    except Exception:  # an operator may refuse such arguments, and autocast an operator
        return False
    finally:
        torch.set_autocast_enabled(device, was_on)
    return dtype is not None and dtype == torch.get_autocast_dtype(device)


_VALUES: dict[str, Any] = {"int": 1, "SymInt": 1, "float": 1.0, "number": 1, "bool": False, "str": ""}


def _arguments(overload: OpOverload, tensor: torch.Tensor) -> tuple[list[Any], dict[str, Any]]:
    """Return a value for each required argument."""
    values: dict[str, Any] = {**_VALUES, "Tensor": tensor, "List[Tensor]": [tensor, tensor], "List[int]": [1]}
    needed = [argument for argument in overload._schema.arguments if not argument.has_default_value()]
    args = [values.get(str(argument.type)) for argument in needed if not argument.kwarg_only]
    return args, {a.name: values.get(str(a.type)) for a in needed if a.kwarg_only}
