"""Settings of torch on which graphs depend, for their guards; those that change numbers, for verdicts."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import torch
from torch import overrides
from torch.fx import Node
from torch.fx.node import has_side_effect

from fxlab.base.exchanged import patched_functions
from fxlab.base.torch_private import DeviceContext, dispatch_modes, function_modes

Setting: TypeAlias = tuple[str, Any, str]
"""The expression that reads a setting, its value, and ``file:line`` of its reader."""

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
_MODULES = os.path.join(_TORCH, "nn", "modules", "")

_ENVIRONMENT = "os.environ.get("
GRADIENTS = "torch.is_grad_enabled()"


@has_side_effect
def require_settings(settings: Iterable[Setting], made: str) -> None:
    """Raise ``AssertionError`` unless torch has the settings under which a graph was ``made``."""
    for name, value, place in settings:
        if (now := _value_of(name)) != value:
            raise AssertionError(
                f"{made} {name} being {value} only, not {now}, as the model's Python reads it at {place}: "
                "trace it as it is to run"
            )


def requires_gradients(node: Node) -> bool:
    """Tell whether a node refuses to run without gradients."""
    if node.target is not require_settings:
        return False
    settings: Any = node.args[0]
    return any(name == GRADIENTS and value for name, value, _ in settings)


def of_environment(name: str) -> str:
    """Return the expression that reads an environment variable, or ``None`` if it is not set."""
    return f"{_ENVIRONMENT}{name!r})"


def _value_of(name: str) -> Any:
    if name.startswith(_ENVIRONMENT):
        return os.environ.get(ast.literal_eval(name[len(_ENVIRONMENT) : -1]))
    _, *steps = name.removesuffix("()").split(".")
    value: Any = torch
    for step in steps:
        value = getattr(value, step)
    return value() if name.endswith("()") else value


@contextmanager
def function_modes_hidden(*plain: type) -> Iterator[None]:
    """Answer checks for overrides of torch functions as if no mode were active.

    Modules of torch compute in another way under a ``TorchFunctionMode``: they skip fast paths. Other parts
    of torch ask in order to show their calls to the mode, and get the true answer. ``plain``: classes of
    tensors whose own ``__torch_function__`` is to be hidden too.
    """
    own = overrides.has_torch_function_unary

    def is_overridden(value: Any) -> bool:
        # torch's own check counts modes as overrides, so they leave the stack while it runs.
        modes = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
        try:
            return type(value) not in plain and own(value)
        finally:
            for mode in reversed(modes):
                torch._C._push_on_torch_function_stack(mode)

    def question(name: str, before: Callable[..., bool]) -> Callable[..., bool]:
        def ask(*values: Any) -> bool:
            file = sys._getframe(2).f_code.co_filename  # past the wrapper that checks the thread
            if file.startswith(_TORCH) and not file.startswith(_MODULES):
                return before(*values)
            return any(map(is_overridden, values[0] if name == "has_torch_function" else values))

        return ask

    with patched_functions(overrides, {name: partial(question, name) for name in _QUESTIONS}):
        yield


_NO_NUMBERS = ("autograd", "backcompat", "graph_exec", "thread_name", "torch_function", "tracing", "warn")
"""Prefixes of settings that do not affect numbers."""

_PRECISIONS = {
    "generic_all": "none", "cuda_all": "none", "cuda_matmul": "none", "cuda_conv": "tf32", "cuda_rnn": "tf32",
    "mkldnn_all": "none", "mkldnn_matmul": "none", "mkldnn_conv": "none", "mkldnn_rnn": "none",
}  # fmt: skip
"""The parts of torch with their own precision of products, and its initial values."""

_USUAL: dict[str, Any] = {
    "float32_matmul_precision": "highest",
    "cublas_allow_tf32": False,
    "cublas_allow_fp16_accumulation": False,
    "cublas_allow_fp16_reduced_precision_reduction": (True, True),
    "cublas_allow_bf16_reduced_precision_reduction": (True, True),
    "cudnn_allow_tf32": True,
    "cudnn_enabled": True,
    "cudnn_deterministic": False,
    "mkldnn_enabled": True,
    "deterministic_debug_mode": 0,
    "default_dtype": torch.float32,
    **{f"{name}_fp32_precision": usual for name, usual in _PRECISIONS.items()},
    **{f"{backend}_autocast": False for backend in ("cpu", "cuda", "mps", "xpu")},
}
"""Torch's initial values of the settings that people change."""


@dataclass(frozen=True)
class NumericSettings:
    """The settings of one moment. Results computed under different settings may not be compared."""

    values: tuple[tuple[str, str], ...]
    """Names and values, in words."""
    unusual: tuple[str, ...]
    """Those that differ from torch's initial values, in words, and the names of modes that are on."""
    modes: tuple[Any, ...]
    """The modes of torch that see each call."""

    @classmethod
    def now(cls) -> NumericSettings:
        """Return the present ones."""
        found = settings_now()
        functions = (mode for mode in function_modes() if not isinstance(mode, DeviceContext))
        modes = (*functions, *dispatch_modes())  # the mode of torch.set_default_device counts as a setting
        unusual = (f"{name} = {found[name]}" for name in _USUAL if _is_unusual(name, found.get(name)))
        named = (f"the mode {type(mode).__name__}" for mode in modes)
        return cls(tuple((name, str(value)) for name, value in found.items()), (*unusual, *named), modes)


def _is_unusual(name: str, value: Any) -> bool:
    is_exact = name.endswith("_fp32_precision") and value == "ieee"
    return value is not None and value != _USUAL[name] and not is_exact


def settings_now() -> dict[str, Any]:
    """Return the names and values of all settings that torch can both get and set."""
    found = {}
    for name, (getter, _) in _functions().items():
        try:
            found[name] = getter()
        except RuntimeError:  # the precisions below differ, so there is no single value
            found[name] = _MIXED
    accelerator = torch.accelerator.current_accelerator()
    for device in ("cpu", *(() if accelerator is None else (accelerator.type,))):
        is_on = torch.is_autocast_enabled(device)
        found[f"{device}{_AUTOCAST}"] = torch.get_autocast_dtype(device) if is_on else False
    return found


def put_settings_back(before: dict[str, Any]) -> list[str]:
    """Restore the settings from :func:`settings_now`; return the names of those that had changed."""
    changed = [name for name, value in settings_now().items() if value != before[name]]
    for name in changed:
        if before[name] in (None, _MIXED):  # which no setter takes
            continue
        value, device = before[name], name.removesuffix(_AUTOCAST)
        if device == name:
            _functions()[name][1](value)
            continue
        torch.set_autocast_enabled(device, value is not False)
        if value:
            torch.set_autocast_dtype(device, value)
    return changed


_MIXED, _AUTOCAST = "mixed", "_autocast"


@cache
def _functions() -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return the functions that get and set each setting."""
    # torch has no list of its settings, but a pair of functions in torch._C for each.
    names = (name.removeprefix("_get_") for name in dir(torch._C) if name.startswith("_get_"))
    found = {name: (getattr(torch._C, f"_get_{name}"), setter) for name in names if (setter := _setter(name))}
    for name in _PRECISIONS:
        parts = name.split("_")
        found[f"{name}_fp32_precision"] = (
            partial(torch._C._get_fp32_precision_getter, *parts),
            partial(torch._C._set_fp32_precision_setter, *parts),
        )
    return found | {
        "num_threads": (torch.get_num_threads, torch.set_num_threads),
        "deterministic_debug_mode": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        "default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
        # A default device is a mode, the CPU's too, unless it is none.
        "default_device": (
            torch.get_default_device,
            lambda device: torch.set_default_device(None if device.type == "cpu" else device),
        ),
    }


def _setter(name: str) -> Callable[[Any], Any] | None:
    """Return the function that sets a setting; ``None`` if there is none, or it is not about numbers."""
    setters = (f"_set_{name}", f"_set_sdp_use_{name.removesuffix('_sdp_enabled')}")
    setter: Any = next((getattr(torch._C, each) for each in setters if hasattr(torch._C, each)), None)
    if name.startswith(_NO_NUMBERS) or setter is None:
        return None
    if name == "deterministic_algorithms":  # two of the three debug modes: warnings would become errors
        return None
    try:
        getattr(torch._C, f"_get_{name}")()
    except TypeError:  # it takes arguments
        return None
    except RuntimeError:  # there is no single value
        pass
    return lambda value: setter(*value) if isinstance(value, tuple) else setter(value)
