"""``fxlab.steps.collectives``: the calls by which a graph exchanges tensors, and computations beside each."""

from __future__ import annotations

from typing import Any

from fxlab.base.first_use import pd
from fxlab.front_desk import sources
from fxlab.graphs.unfolded import unfolded
from fxlab.models.parallel.collectives import Collective, collectives_of, tensor_bytes
from fxlab.models.running.arguments import Inputs
from fxlab.operators.node_info import known_result, module_path, modules_by_path
from fxlab.validation.cost.memory import pass_of
from fxlab.validation.cost.traced_flops import TracedFlops

_OF_COLLECTIVES: Any = {
    "kind": str, "reduction": str, "group": str, "ranks": "Int64", "bytes": int, "wait": str, "between": int,
    "flops_between": int, "bytes_between": int, "exposed": bool, "pass": str, "module_path": str,
}  # fmt: skip


def collectives(graph: sources.Model | sources.SessionLike, inputs: Inputs | None = None) -> pd.DataFrame:
    """List the collectives of a graph, and the work that each can hide behind. Nothing is run.

    A collective runs from the node that starts it to the first that waits for it. It is *exposed* if nothing
    is computed in between, so that the device does nothing but wait.

    Parameters
    ----------
    graph
        A graph module, a session (its present stage), or a model, which is traced.
    inputs
        For a model that is traced, as for :func:`fxlab.Session`.

    Returns
    -------
    pandas.DataFrame
        A row for each collective in the order of the graph, indexed by the ``node`` that starts it. Columns:
        ``kind`` (such as ``all_gather``), ``reduction`` (such as ``sum``), ``group`` (its title in torch,
        else its number), ``ranks`` (their count, where it is known), ``bytes`` (of the whole that is gathered
        or reduced), ``wait`` (the first node that waits for the result: a ``wait_tensor``, or else the first
        reader), ``between`` (the number of nodes that compute something meanwhile), ``flops_between`` and
        ``bytes_between`` (their operations, and the bytes that they read and write, as far as shapes tell),
        ``exposed``, ``pass`` and ``module_path``.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import fxlab
    >>> fxlab.steps.collectives(fxlab.symbolic_trace(nn.Linear(4, 8), torch.ones(2, 4))).empty
    True
    """
    given = sources.resolved(graph, "graph")
    graph_module = unfolded(sources.graph_of(given, "graph", sources.inputs_of(given, inputs)))
    flops = TracedFlops(modules_by_path(graph_module))
    rows = {one.start.name: _row(one, flops) for one in collectives_of(graph_module.graph)}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=[*_OF_COLLECTIVES])
    return table.rename_axis("node").astype(_OF_COLLECTIVES)


def _row(one: Collective, flops: TracedFlops) -> list[object]:
    work = one.meanwhile
    moved = sum(tensor_bytes(known_result(value)) for node in work for value in (node, *node.all_input_nodes))
    wait = one.waits[0].name if one.waits else ""
    what = [one.kind, one.reduction, str(one.group), one.group.size, one.bytes, wait]
    cost = [len(work), flops.of(work) or 0, moved, not work]
    return [*what, *cost, pass_of(one.start), module_path(one.start)]
