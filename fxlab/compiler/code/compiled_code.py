"""Generated code as a function that a graph can call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fxlab.checks import described


@dataclass(frozen=True)
class _Given:
    """An argument as it was when the code was generated, which does not ask again."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Given:
        return cls(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)

    def __str__(self) -> str:
        shape, stride = list(self.shape), list(self.stride)
        return f"{self.dtype} of shape {shape} and strides {stride} on {self.device}"


class CompiledCode:
    """Runs the code that Inductor has generated, on what it was generated for and nothing else.

    Guards of Dynamo stand before compiled code. It is called here without them, and reads memory as it is.

    Parameters
    ----------
    run
        What Inductor returned.
    values
        The arguments that Dynamo captured the graph with.
    has_gradients
        Whether a backward graph was compiled as well.
    """

    __name__ = __qualname__ = "compiled_code"
    is_generated_code = True
    """Tells a verdict that there is no float64 run of it."""

    def __init__(self, run: Callable[..., Any], values: Sequence[Any], *, has_gradients: bool) -> None:
        self._run, self._has_gradients = run, has_gradients
        self._given = [_Given.of(v) if isinstance(v, torch.Tensor) else v for v in values]

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """Run it.

        Raises
        ------
        ValueError
            If an argument is none that the code was generated for, or gradients are asked for that it does
            not compute.
        """
        for place, (value, given) in enumerate(zip(values, self._given, strict=True)):
            now = _Given.of(value) if isinstance(value, torch.Tensor) else value
            if now != given:
                came = now if isinstance(now, _Given) else described(value)
                raise ValueError(f"compiled code: argument {place} is {came}; it was generated for {given}.")
        needs = torch.is_grad_enabled() and any(getattr(value, "requires_grad", False) for value in values)
        if needs and not self._has_gradients:
            raise ValueError(
                "compiled code: it was generated for inference, and has no gradients. Run it under "
                "torch.no_grad(), or compile them: fxlab.compile_session(model, inputs, training=True)."
            )
        return tuple(self._run(*values))

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledCode:
        return self
