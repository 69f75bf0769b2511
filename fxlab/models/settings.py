"""Settings of torch that a graph depends on, such as whether gradients are on, and refuses to run without."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch import overrides
from torch.fx import Node
from torch.fx.node import has_side_effect

from fxlab.exchanged import exchanged

Setting: TypeAlias = tuple[str, Any, str]
"""How Python reads a setting, its value, and ``file:line`` of what has read it."""

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
_MODULES = os.path.join(_TORCH, "nn", "modules", "")

_ENVIRONMENT = "os.environ.get("
GRADIENTS = "torch.is_grad_enabled()"


@has_side_effect
def require_settings(settings: Iterable[Setting], made: str) -> None:
    """Raise ``AssertionError`` unless torch is set as it was when a graph was ``made``."""
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


def _chooses_a_path(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(_MODULES) or not file.startswith(_TORCH)


def of_environment(name: str) -> str:
    """Return how Python reads an environment variable, ``None`` being that there is none."""
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
    """Let Python that asks for overrides of torch functions hear what it hears where no mode is active.

    Modules of torch compute in another way under a ``TorchFunctionMode``: fast paths are left out. What else
    of torch asks does so to show its calls to the mode, and hears of it. ``plain``: classes of tensors whose
    own ``__torch_function__`` is to be hidden too.
    """
    own = overrides.has_torch_function_unary

    def is_overridden(value: Any) -> bool:
        modes = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
        try:
            return type(value) not in plain and own(value)
        finally:
            for mode in reversed(modes):
                torch._C._push_on_torch_function_stack(mode)

    def question(name: str, before: Callable[..., bool]) -> Callable[..., bool]:
        def ask(*values: Any) -> bool:
            if not _chooses_a_path(sys._getframe(2)):  # past what asks for the thread
                return before(*values)
            return any(map(is_overridden, values[0] if name == "has_torch_function" else values))

        return ask

    with exchanged(overrides, {name: partial(question, name) for name in _QUESTIONS}):
        yield
