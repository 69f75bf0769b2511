"""All ranks of a graph in one process: its nodes once for each rank, and collectives as computations."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import fx

from fxlab.models.collectives import Collective, collectives_of, exchanges, is_wait
from fxlab.models.placements import known_placement
from fxlab.models.safe_code import protect
from fxlab.node_info import state_path
from fxlab.torch_private import OpOverload, OpOverloadPacket

MOST_NODES = 100_000
"""The most nodes of all ranks together in one graph."""
_COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add, "avg": operator.add, "product": operator.mul, "min": torch.minimum,
    "max": torch.maximum,
}  # fmt: skip


def of_all_ranks(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Return a graph in which all ranks run a graph, each on its own inputs, and exchange values.

    All ranks are taken to run the same graph. Collectives become sums, concatenations and parts, in the order
    of the ranks, so that nothing waits for another process. ``graph_module``: the graph of one rank. Raises
    ValueError if it has an unknown collective, or there are too many nodes. The result takes the inputs of
    :func:`inputs_of_all_ranks`, and returns the results of each rank under ``rank 0``, ``rank 1``, ...; it
    shares the tensors of the given graph.
    """
    ranks = range(dist.get_world_size())
    count = len(graph_module.graph.nodes) * len(ranks)
    if count > MOST_NODES:
        raise ValueError(f"all {len(ranks)} ranks together have {count:,} nodes, more than {MOST_NODES:,}.")
    starts = {collective.start: collective for collective in collectives_of(graph_module.graph)}
    graph = fx.Graph()
    copies: list[dict[fx.Node, Any]] = [{} for _ in ranks]
    for node in graph_module.graph.nodes:
        if node in starts:
            for rank, value in _exchanged(graph, starts[node], copies).items():
                copies[rank][node] = value
        elif node.op == "output":
            graph.output({f"rank {rank}": _given(node.args[0], copies[rank]) for rank in ranks})
        elif is_wait(node):
            for rank in ranks:
                copies[rank][node] = copies[rank][node.all_input_nodes[0]]
        elif exchanges(node):
            raise _unknown(node)
        else:
            for rank in ranks:
                args, kwargs = (_given(part, copies[rank]) for part in (node.args, node.kwargs))
                target = _of_rank(str(node.target), rank) if node.op == "placeholder" else node.target
                name = _of_rank(node.name, rank)
                copies[rank][node] = graph.create_node(node.op, target, args, kwargs, name)
    return fx.GraphModule(graph_module, protect(graph), type(graph_module).__name__)


def inputs_of_all_ranks(graph_module: fx.GraphModule, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs of :func:`of_all_ranks`, made from those of this rank by name.

    Batches, and tensors of which each rank has a part, have the same elements in another order on each rank;
    other parameters, buffers and states are the same on all.
    """
    own = dist.get_rank()
    given: dict[str, Any] = {}
    for node in graph_module.graph.find_nodes(op="placeholder"):
        name = str(node.target)
        if name not in inputs:
            continue
        value = inputs[name]
        is_own = "Shard" in known_placement(node) or state_path(node) is None
        for rank in range(dist.get_world_size()):
            is_other = is_own and rank != own and isinstance(value, torch.Tensor)
            given[_of_rank(name, rank)] = _turned(value, rank - own) if is_other else value
    return given


def _turned(value: torch.Tensor, steps: int) -> torch.Tensor:
    turned = torch.roll(value.detach(), steps)
    return turned.requires_grad_(value.requires_grad)


def _of_rank(name: str, rank: int) -> str:
    return f"{name}_rank_{rank}"


def _given(part: Any, copies: Mapping[fx.Node, Any]) -> Any:
    return fx.map_arg(part, copies.__getitem__)


def _unknown(node: fx.Node) -> ValueError:
    return ValueError(f"node {node.name!r} calls {node.target}, which is not computed in one process.")


def _members(collective: Collective) -> list[list[int]]:
    """Return the ranks of each group of a mesh that a collective runs over, this rank's and the others.

    This process knows only its own; the others are the same steps from other ranks.
    """
    ranks, world = collective.group.ranks, dist.get_world_size()
    steps = [rank - ranks[0] for rank in ranks]
    left, groups = set(range(world)), list[list[int]]()
    for first in range(world):
        group = [first + step for step in steps]
        if ranks and left.issuperset(group):
            left.difference_update(group)
            groups.append(group)
    if left or list(ranks) not in groups:
        raise _unknown(collective.start)
    return groups


def _exchanged(
    graph: fx.Graph, collective: Collective, copies: Sequence[Mapping[fx.Node, Any]]
) -> dict[int, Any]:
    """Return the result of a collective for each rank."""
    node = collective.start
    # In-place collectives, and functions of Python, which return a handle, are not computed.
    is_operator = isinstance(node.target, OpOverload | OpOverloadPacket)
    if not is_operator or _name(node).endswith(("_", "_out")) or not node.args or node.kwargs:
        raise _unknown(node)
    found: dict[int, Any] = {}
    for group in _members(collective):
        given = [_given(node.args[0], copies[rank]) for rank in group]
        if isinstance(given[0], fx.Node):
            results: Sequence[Any] = _results(graph, collective, given)
        else:  # several tensors at once
            parts = [_results(graph, collective, each) for each in zip(*given, strict=True)]
            results = [list(part) for part in zip(*parts, strict=True)]
        found.update(zip(group, results, strict=True))
    return found


def _results(graph: fx.Graph, collective: Collective, given: Sequence[fx.Node]) -> list[fx.Node]:
    """Return the result for each rank of a group, from the contribution of each."""
    size, call, args = len(given), graph.call_function, collective.start.args
    name = _name(collective.start).removesuffix("_coalesced")
    if name == "all_gather_into_tensor":
        return [call(torch.cat, ([*given],)) for _ in given]
    if name == "broadcast":
        return [call(torch.clone, (given[args[1]],)) for _ in given]  # type: ignore[index]
    if name in ("all_reduce", "reduce_scatter_tensor") and collective.reduction in _COMBINED:
        whole = given[0]
        for other in given[1:]:
            whole = call(_COMBINED[collective.reduction], (whole, other))
        if collective.reduction == "avg":
            whole = call(operator.truediv, (whole, size))
        if name == "all_reduce":
            return [call(torch.clone, (whole,)) for _ in given]
        return [call(torch.clone, (part,)) for part in _parts(graph, whole, size, 0)]
    if name == "shard_dim_alltoall":
        gathered, sharded = args[1:3]
        sent = [_parts(graph, each, size, sharded) for each in given]
        return [call(torch.cat, ([parts[at] for parts in sent], gathered)) for at in range(size)]
    if name == "all_to_all_single" and len({*args[1], *args[2]}) == 1:  # type: ignore[misc]
        sent = [_parts(graph, each, size, 0) for each in given]
        return [call(torch.cat, ([parts[at] for parts in sent],)) for at in range(size)]
    raise _unknown(collective.start)


def _parts(graph: fx.Graph, whole: fx.Node, count: int, dim: Any) -> list[fx.Node]:
    """Return equal parts of a value; unequal ones are an error when it runs."""
    parts = graph.call_function(torch.tensor_split, (whole, count, dim))
    return [graph.call_function(operator.getitem, (parts, at)) for at in range(count)]


def _name(node: fx.Node) -> str:
    return str(node.target).split(".")[1]
