"""Graphs of functions that a model passes to torch, recorded inside its own, and targets that call them."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from fxlab.base.torch_private import pytree
from fxlab.models.graph_modules.generated_code import protect
from fxlab.models.graph_modules.graph_module import ensure_picklable
from fxlab.tracing.recording.output_objects import output_argument
from fxlab.tracing.recording.torch_calls import AutogradFunction
from fxlab.tracing.shapes.symbolic_sizes import SizeNodes


class RecordedBody:
    """The graph of a function while it runs; it receives the values that it uses of the graph around it.

    ``graph``: the graph that is recorded. ``given``: the values to call it with. ``branches``: the graphs of
    branches inside, by the name in ``get_attr`` nodes. ``sizes``: makes its nodes for symbolic numbers.
    """

    has_values = False
    """Whether its tensors are plain tensors, and not wrappers that torch puts in their place."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.graph = Graph()
        self.given: list[Any] = []
        self.branches: dict[str, GraphModule] = {}
        self.sizes: SizeNodes | None = None
        self._inherited: dict[Node, Node] = {}

    def inputs(self, leaves: list[Any]) -> list[torch.Tensor]:
        """Return the tensors among the arguments of the function that are inputs of the graph."""
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def recorded(
        self, bind: Callable[[torch.Tensor, Node], None], node_of: Callable[[Any], Any]
    ) -> Callable[..., Any]:
        """Return a function that records the calls of the given one, with its results as the graph's.

        ``bind``: called with each input and its placeholder. ``node_of``: tensor or symbolic number -> node.
        """

        def call(*args: Any, **kwargs: Any) -> Any:
            for leaf in self.inputs(pytree.tree_leaves((args, kwargs))):
                bind(leaf, self._placeholder("x"))
            result = self._function(*args, **kwargs)
            self.graph.output(output_argument(result, self.graph, node_of))
            return result

        return call

    def inherited(self, node: Node) -> Node:
        """Return the placeholder that stands for a node of the graph around this one."""
        if node not in self._inherited:
            first = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
            with self.graph.inserting_before(first) if first else nullcontext():
                self._inherited[node] = self._placeholder(node.name)
            if self.has_values and "val" in node.meta:
                self._inherited[node].meta["val"] = node.meta["val"]
            self.given.append(node)
        return self._inherited[node]

    def _placeholder(self, name: str) -> Node:
        node = self.graph.placeholder(name)
        node.target = node.name  # which no other has
        return node

    def module(self, name: str) -> GraphModule:
        """Return the graph as a module, which holds no tensors."""
        root = nn.Module()
        for path, branch in self.branches.items():
            root.add_module(path, branch)
        module = GraphModule(root, protect(self.graph), class_name=name)
        ensure_picklable(module)
        return module


class OperatorBody(RecordedBody):
    """A function that is an argument of an operator of torch, such as a branch of ``torch.cond``.

    ``refused``: makes the error that says why it is refused. ``given``: the values that another function of
    the same call uses of the graph around it; this one receives them as well. ``is_condition``: whether it
    computes the condition of a loop.
    """

    has_values = True

    def __init__(
        self,
        refused: Callable[[str], Exception],
        function: Callable[..., Any],
        given: list[Node],
        is_condition: bool,
    ) -> None:
        super().__init__(function)
        self._refused, self._shared, self._is_condition = refused, given, is_condition

    def run(
        self, arguments: Sequence[Any], bind: Callable[[Any, Node], None], node_of: Callable[[Any], Any]
    ) -> tuple[list[Any], Any]:
        """Call the function, end the graph with its results, and return these and their structure.

        ``arguments``: tensors, and symbolic numbers if it may give numbers. ``bind``: called with each
        of them and its placeholder. ``node_of``: tensor or symbolic number -> its node.
        """
        takes_numbers = any(isinstance(argument, torch.SymInt) for argument in arguments)
        for argument in arguments:
            bind(argument, self._placeholder("x"))
        for node in self._shared:
            self.inherited(node)
        leaves, structure = pytree.tree_flatten(self._function(*arguments))
        numbers = (torch.SymBool if self._is_condition else (int, torch.SymInt)) if takes_numbers else ()
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if not all(isinstance(leaf, (torch.Tensor, numbers)) for leaf in leaves):
            raise self._refused("gives something that is no tensor")
        kinds = [(leaf.dtype, leaf.dim()) for leaf in tensors]
        if self._is_condition and (len(leaves) != 1 or kinds not in ([], [(torch.bool, 0)])):
            raise self._refused("gives no condition, which is one number of dtype bool")
        nodes = tuple(leaf if type(leaf) is int else node_of(leaf) for leaf in leaves)
        given = [node_of(tensor) for tensor in tensors]
        if any(node.op == "placeholder" for node in given) or len({*given}) < len(given):
            raise self._refused("gives a tensor that is there already, and no copy")
        self.graph.output(nodes[0] if self._is_condition else nodes)
        return leaves, structure


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


@dataclass(frozen=True, eq=False)
class FlexAttention:
    """The target of a node that computes FlexAttention.

    ``graphs``: the graphs of ``score_mod`` and ``mask_mod``, where there are any; they hold no tensors,
    values that they use of the model are arguments. ``options``: the arguments that hold no tensors.
    """

    graphs: Mapping[str, GraphModule]
    options: Mapping[str, Any]

    only_reads = True

    @property
    def __name__(self) -> str:
        return "flex_attention"

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        blocks: Mapping[str, Any] | None,
        given: Mapping[str, Sequence[torch.Tensor]],
    ) -> Any:
        """Compute it.

        ``blocks``: the attributes of the block mask. ``given``: other values that the graphs use.
        """
        from torch.nn.attention.flex_attention import BlockMask, flex_attention

        def function(name: str) -> Any:
            graph = self.graphs[name]
            return lambda *numbers: graph(*numbers, *given[name])

        functions = {name: function(name) for name in self.graphs}
        mask = None
        if blocks is not None:
            mask = BlockMask.__new__(BlockMask)
            vars(mask).update(blocks, mask_mod=functions.pop("mask_mod"))
        return flex_attention(query, key, value, block_mask=mask, **functions, **self.options)


def arguments_of(function: str, query: torch.Tensor) -> list[torch.Tensor]:
    """Return arguments for one call of ``score_mod`` or ``mask_mod``, each without a dimension."""
    numbers = [query.new_zeros((), dtype=torch.int32) for _ in range(4)]
    return [query.new_zeros(()), *numbers] if function == "score_mod" else numbers


def indexed_by_tensors(graph: Graph) -> None:
    """Index as the source does: undo the replacement that torch makes while it traces."""
    for node in graph.nodes:
        if isinstance(node.target, AutogradFunction) and node.target.__name__ == "ModIndex":
            tensor, index = node.args
            node.target, node.args = operator.getitem, (tensor, tuple(index))
