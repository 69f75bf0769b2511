"""Inductor's generated code as a function that a graph can call, so that a verdict can judge it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxlab.base.checks import describe


class CompiledCode:
    """Runs the code that Inductor has generated, on the arguments it was generated for and nothing else.

    Guards of Dynamo stand before compiled code. It is called here without them, and reads memory as it is.
    ``values``: the arguments that Dynamo captured the graph with. ``has_gradients``: whether a backward graph
    was compiled as well.
    """

    __name__ = __qualname__ = "compiled_code"
    is_generated_code = True
    """Tells a verdict that there is no float64 run of it."""

    def __init__(self, run: Callable[..., Any], values: Sequence[Any], *, has_gradients: bool) -> None:
        self._run, self._has_gradients = run, has_gradients
        self._given = [_known(value) for value in values]

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """Run it; ValueError if it was not generated for an argument, or for gradients that are wanted."""
        for place, (value, given) in enumerate(zip(values, self._given, strict=True)):
            now = _known(value)
            if now != given:
                came = now if isinstance(value, torch.Tensor) else describe(value)
                raise ValueError(f"compiled code: argument {place} is {came}; it was generated for {given}.")
        needs = torch.is_grad_enabled() and any(getattr(value, "requires_grad", False) for value in values)
        if needs and not self._has_gradients:
            raise ValueError(
                "compiled code: it was generated for inference, and has no gradients. Run it under "
                "torch.no_grad(), or compile them: "
                "fxlab.compiler.compile_session(model, inputs, training=True)."
            )
        return tuple(self._run(*values))

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledCode:
        return self


def _known(value: Any) -> Any:
    """Return, in words, the properties of a tensor that code requires; another value itself."""
    if not isinstance(value, torch.Tensor):
        return value
    shape, stride = list(value.shape), list(value.stride())
    return f"{value.dtype} of shape {shape} and strides {stride} on {value.device}"
