"""Calls of ``torch.vmap`` and of the derivatives of ``torch.func`` as nodes, each with a graph of its own."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from fxlab.base.torch_private import pytree
from fxlab.tracing.recording.bodies import RecordedBody

DERIVATIVES = ("grad", "grad_and_value", "jacrev", "jacfwd", "hessian")
"""Names in ``torch.func`` of functions that return a derivative."""
JVP = "jvp"
"""That of the function which takes one at once, of primals and tangents."""
LINEAR = VJP, LINEARIZE = "vjp", "linearize"
"""Names of the functions which return the function's results, and a linear function."""


class Given(enum.Enum):
    """The place of a tensor among arguments."""

    TENSOR = "tensor"


@dataclass(frozen=True, eq=False)
class Derivative:
    """The target of a node that differentiates a graph."""

    graph_module: GraphModule
    """The differentiated graph; it holds no tensors, values that it uses of the model are arguments."""
    name: str
    """Of the function in ``torch.func``."""
    options: Mapping[str, Any]
    arguments: Any
    """Arguments of the graph: positional and by name, with a :class:`Given` for each tensor."""

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *given: Any) -> Any:
        """Differentiate the graph at the first of the arguments; the others are its further inputs."""
        if self.name in LINEAR:
            output, _, *others = self.taken(*given)
            return (output, *others)
        return self.taken(*given)

    def taken(self, *given: Any) -> Any:
        """Return the result of the function of ``torch.func``."""
        tensors = iter(given)
        args, kwargs = pytree.tree_map_only(Given, lambda _: next(tensors), self.arguments)
        others = tuple(tensors)

        def function(*args: Any, **kwargs: Any) -> Any:
            leaves = pytree.tree_leaves((args, kwargs))
            return self.graph_module(*(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)), *others)

        derivative = getattr(torch.func, self.name)
        if self.name in (JVP, *LINEAR):
            return derivative(function, *args, **self.options)
        return derivative(function, **self.options)(*args, **kwargs)


@dataclass(frozen=True, eq=False)
class Applied:
    """The target of a node that calls the linear function of another: the graph runs again for it."""

    derivative: Derivative
    vectors: Any
    """Its arguments, with a :class:`Given` for each tensor."""

    @property
    def __name__(self) -> str:
        return f"{self.derivative.name}_applied"

    def __call__(self, *given: Any) -> Any:
        """Apply the function to vectors, which are the last arguments."""
        count = sum(leaf is Given.TENSOR for leaf in pytree.tree_leaves(self.vectors))
        tensors = iter(given[len(given) - count :])
        vectors = pytree.tree_map_only(Given, lambda _: next(tensors), self.vectors)
        return self.derivative.taken(*given[: len(given) - count])[1](*vectors)


class DerivativeBody(RecordedBody):
    """The graph of a function that is being differentiated.

    ``function``: the function given to ``torch.func``.
    """

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        super().__init__(function)
        arguments = args, dict(kwargs)
        self.given += self.inputs(pytree.tree_leaves(arguments))
        self._arguments = pytree.tree_map_only(torch.Tensor, lambda _: Given.TENSOR, arguments)

    def target(self, name: str, options: Mapping[str, Any]) -> Derivative:
        """Return the target of the node that differentiates the graph."""
        return Derivative(self.module("Differentiated"), name, dict(options), self._arguments)


@dataclass(frozen=True, eq=False)
class Vmapped:
    """The target of a node that calls a graph under ``torch.vmap``."""

    graph_module: GraphModule
    """The mapped graph; it holds no tensors, values that it uses of the model are arguments."""
    in_dims: tuple[int | None, ...]
    """The mapped dimension of each argument."""
    out_dims: Any
    randomness: str

    @property
    def __name__(self) -> str:
        return "vmap"

    def __call__(self, *args: Any) -> Any:
        """Call the graph."""
        mapped = torch.vmap(self.graph_module, self.in_dims, self.out_dims, self.randomness)
        return mapped(*args)


class VmapBody(RecordedBody):
    """The graph of a function that is being mapped.

    ``function``: the function given to ``torch.vmap``. ``in_dims``: its mapped dimensions, as given.
    """

    def __init__(self, function: Callable[..., Any], in_dims: Any, args: tuple[Any, ...]) -> None:
        super().__init__(function)
        leaves, structure = pytree.tree_flatten(args)
        self._dims = pytree._broadcast_to_and_flatten(in_dims, structure, is_leaf=lambda d: d is None) or []
        self.given += self.inputs(leaves)

    def inputs(self, leaves: list[Any]) -> list[torch.Tensor]:
        """Return the tensors that are mapped."""
        return [leaf for leaf, dim in zip(leaves, self._dims, strict=False) if dim is not None]

    def target(self, out_dims: Any, randomness: str) -> Vmapped:
        """Return the target of the node that calls the graph."""
        mapped = [dim for dim in self._dims if dim is not None]
        # The values that it uses of the graph around it come last, and are not mapped.
        dims = (*mapped, *[None] * (len(self.given) - len(mapped)))
        return Vmapped(self.module("Vmapped"), dims, out_dims, randomness)
