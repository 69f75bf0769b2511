"""``rewriting.transformed_nodes``: the nodes that transformations have changed, as a table."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxlab.base.checks import type_error
from fxlab.base.first_use import pd
from fxlab.front_desk.sources import Model, graph_of
from fxlab.graphs.matching import Provenance
from fxlab.graphs.unfolded import unfolded
from fxlab.operators.node_info import (
    module_path,
    modules_by_path,
    parameter_count,
    shape_and_dtype,
    target_text,
)
from fxlab.transformations import Transformation
from fxlab.transformations.marks import marks

COLUMNS = ("op", "target", "module_path", "shape", "dtype", "parameters", "inputs", "users")

BESIDE = ("op", "target", "shape", "dtype", "parameters", "inputs")
"""The columns with a counterpart for the original."""


def transformed_nodes(
    model: Model, pass_: Transformation | None = None, *, original: Model | None = None
) -> "pd.DataFrame":
    """List the nodes that a pass, or any, has changed in a model.

    Parameters
    ----------
    model
        The transformed graph module.
    pass_
        The pass to ask for; if left out, every node that carries a mark is listed.
    original
        The model before, to see both side by side.

    Returns
    -------
    pandas.DataFrame
        One row for each node in the order of the graph, indexed by its name (``node``), with its ``op``,
        ``target``, ``module_path``, ``shape`` (a tuple; sizes as in the run that was traced) and ``dtype``
        where known, the number of ``parameters`` that it holds, and the names of ``inputs`` and ``users``.

        With ``original``, ``before`` names the nodes that it stands for, and each of ``op``, ``target``,
        ``shape``, ``dtype``, ``parameters`` and ``inputs`` has a column for theirs (``op_before``, ...).
        These are lists, as a merged linear stands for several; empty for a node that is all new.

    Raises
    ------
    TypeError
        If a model is no module or session, or ``pass_`` no transformation.

    Examples
    --------
    >>> from torch import nn
    >>> from fxlab import FuseBatchNorm2dInConv2d
    >>> module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> fuse = FuseBatchNorm2dInConv2d()
    >>> transformed_nodes(fuse(torch.fx.symbolic_trace(module)), fuse)["parameters"].tolist()
    [224]
    """
    graph_module = unfolded(graph_of(model, "model"))
    nodes: Iterable[Node]
    if pass_ is None:
        nodes = [node for node in graph_module.graph.nodes if marks(node)]
    elif isinstance(pass_, Transformation):
        nodes = pass_.get_transformed_nodes(graph_module)
    else:
        raise type_error("pass_", "an fxlab.Transformation", pass_)
    nodes = list(nodes)
    table = _table({node.name: node for node in nodes}, graph_module)
    if original is None:
        return table
    return _side_by_side(table, nodes, graph_module, unfolded(graph_of(original, "original")))


def _table(nodes: Mapping[str, Node], graph_module: GraphModule) -> "pd.DataFrame":
    modules = modules_by_path(graph_module)
    rows = {name: _row(node, modules) for name, node in nodes.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS)).rename_axis("node")


def _side_by_side(
    table: "pd.DataFrame", nodes: list[Node], graph_module: GraphModule, original: GraphModule
) -> "pd.DataFrame":
    provenance = Provenance(original, graph_module)
    before = [provenance.of(node) for node in nodes]
    then = _table({node.name: node for others in before for node in others}, original)
    result = table.copy()
    result.insert(0, "before", [[other.name for other in others] for others in before])
    for column in BESIDE:
        known = dict(zip(then.index, then[column], strict=True))
        values = [[known[other.name] for other in others] for others in before]
        result.insert(list(result).index(column), f"{column}_before", values)
    return result


def _row(node: Node, modules: Mapping[str, torch.nn.Module]) -> list[Any]:
    shape, dtype = shape_and_dtype(node)
    return [
        node.op,
        target_text(node),
        module_path(node),
        shape,
        dtype,
        parameter_count(node, modules),
        [argument.name for argument in node.all_input_nodes],
        [user.name for user in node.users],
    ]
