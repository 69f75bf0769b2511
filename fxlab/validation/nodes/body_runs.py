"""Runs of bodies: the arguments with which higher-order operators call the graphs that they receive."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxlab.base.torch_private import pytree
from fxlab.graphs.unfolded import passed_to
from fxlab.models.graph_modules.bodies import Body, all_bodies, bodies_called
from fxlab.models.graph_modules.safe_code import protect
from fxlab.models.running.running import bound_values

MOST = 100
"""How many runs of a body are kept in one call, such as the steps of a loop: the first ones."""


@dataclass
class BodyRuns:
    """The inputs with which the bodies of one call have run, by the paths of the bodies."""

    keeps_object: Callable[[torch.Tensor], bool] = lambda tensor: False
    """Tells of which tensors the very objects are kept, and no copies."""
    inputs: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def noted(self, node: Node, module: GraphModule, values: dict[Node, Any]) -> dict[Node, Any]:
        """Return the values for a node with bodies in place that note their arguments.

        ``node``: the node to run next. ``module``: the module whose graph it is in. ``values``: its
        arguments.
        """
        self.inputs = {}
        noting: dict[Node, Any] = {}
        for body in bodies_called(node, module):
            runs = self.inputs.setdefault(body.path, [])
            if body.reading is not None:
                noting[body.reading] = _noting(values[body.reading], runs, self.keeps_object)
            else:
                args, kwargs = pytree.tree_map(
                    lambda value: values[value] if isinstance(value, Node) else value,
                    (tuple(node.args), dict(node.kwargs)),
                )
                _note(runs, self.keeps_object, *bound_values(body.module, args, kwargs))
        return values | noting if noting else values


def body_names(graph_module: GraphModule) -> dict[int, str]:
    """Return the prefix of the names of the nodes of each body, by the ``id`` of the body."""
    return {id(body): prefix for prefix, body in all_bodies(graph_module).items()}


@dataclass(frozen=True)
class BodyPair:
    """Two bodies that stand in the same place of two calls."""

    original: Body
    transformed: Body
    inputs: dict[Node, Node]
    """Input of the transformed one -> the input of the original that receives the same value."""


def matching_bodies(
    calls: tuple[Node, Node], modules: tuple[GraphModule, GraphModule], originals: Mapping[Node, Node]
) -> Iterator[BodyPair]:
    """Yield the bodies of two calls that match.

    ``calls``, ``modules``: the two nodes and the modules that they are in, of the original first.
    ``originals``: which nodes of the transformed graph match which of the original.
    """
    ours, theirs = (bodies_called(node, module) for node, module in zip(calls, modules, strict=True))
    if len(ours) != len(theirs):
        return
    for a, b in zip(ours, theirs, strict=True):
        given, given_now = _inputs_of(a, ours, calls[0]), _inputs_of(b, theirs, calls[1])
        pairs = dict[Node, Node]()
        for node, value in given_now.items():
            wanted = originals.get(value, value) if isinstance(value, Node) else value
            for other, before in given.items():
                if other not in pairs.values() and type(before) is type(wanted) and before == wanted:
                    pairs[node] = other
                    break
        yield BodyPair(a, b, pairs)


def _inputs_of(body: Body, called: list[Body], call: Node) -> dict[Node, Any]:
    """Return the value of a call for each input of a body; names of inputs where the graph does not tell."""
    inputs = body.module.graph.find_nodes(op="placeholder")
    passed = passed_to(called, body, call)
    return dict(zip(inputs, passed or [node.name for node in inputs], strict=True))


def _noting(
    body: GraphModule, runs: list[tuple[Any, ...]], keeps_object: Callable[[torch.Tensor], bool]
) -> GraphModule:
    """Return a body that notes its inputs first; operators run it by its code or node by node."""
    graph = copy.deepcopy(body.graph)
    inputs = graph.find_nodes(op="placeholder")
    rest = next(node for node in graph.nodes if node.op != "placeholder")

    def note(*values: Any) -> None:
        _note(runs, keeps_object, *values)

    with graph.inserting_before(rest):
        graph.call_function(note, tuple(inputs))
    return GraphModule(body, protect(graph))


def _note(runs: list[tuple[Any, ...]], keeps_object: Callable[[torch.Tensor], bool], *values: Any) -> None:
    # A loop may run its body any number of times.
    if len(runs) >= MOST or any(map(_is_wrapped, pytree.tree_leaves(values))):
        return
    runs.append(
        pytree.tree_map_only(
            torch.Tensor, lambda tensor: tensor if keeps_object(tensor) else tensor.detach().clone(), values
        )
    )


def _is_wrapped(value: Any) -> bool:
    """Tell whether a value is many at once, as in ``torch.vmap``, and means nothing outside of it."""
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value)
