"""The nodes that transformations have changed, as a table."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.fx import GraphModule, Node

from fxlab.validation.node_columns import module_path, parameter_count, shape_and_dtype, target_text

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("op", "target", "module_path", "shape", "dtype", "parameters", "inputs", "users")


class MarksNodes(Protocol):
    """What :func:`transformed_nodes` asks of a transformation."""

    def get_transformed_nodes(self, graph_module: GraphModule) -> list[Node]:
        """Return the nodes that it has changed."""
        ...


def transformed_nodes(graph_module: GraphModule, transformation: MarksNodes | None = None) -> "pd.DataFrame":
    """List the nodes that a transformation, or any, has changed in a graph module.

    Parameters
    ----------
    graph_module
        The transformed module.
    transformation
        The transformation to ask for; if left out, every node that carries a mark is listed.

    Returns
    -------
    pandas.DataFrame
        One row for each node in the order of the graph, indexed by its name (``node``), with its ``op``,
        ``target``, ``module_path``, ``shape`` (a tuple; sizes as in the run that was traced) and ``dtype``
        where known, the number of ``parameters`` that it holds, and the names of ``inputs`` and ``users``.

    Raises
    ------
    TypeError
        If ``graph_module`` is no ``GraphModule`` or ``transformation`` no transformation.

    Examples
    --------
    >>> from torch import nn
    >>> from fxlab import FuseBatchNorm2dInConv2d
    >>> module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> fuse = FuseBatchNorm2dInConv2d()
    >>> transformed_nodes(fuse(torch.fx.symbolic_trace(module)), fuse)["parameters"].tolist()
    [224]
    """
    import pandas as pd

    if not isinstance(graph_module, GraphModule):
        raise TypeError(f"graph_module: expected a torch.fx.GraphModule, got {type(graph_module).__name__}")
    nodes: Iterable[Node]
    if transformation is None:
        nodes = [node for node in graph_module.graph.nodes if node.meta.get("transformations")]
    elif hasattr(transformation, "get_transformed_nodes"):
        nodes = transformation.get_transformed_nodes(graph_module)
    else:
        raise TypeError(
            f"transformation: expected an fxlab.Transformation, got {type(transformation).__name__}"
        )
    modules = dict(graph_module.named_modules())
    rows = {node.name: _row(node, graph_module, modules) for node in nodes}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS)).rename_axis("node")


def _row(node: Node, graph_module: GraphModule, modules: dict[str, torch.nn.Module]) -> list[Any]:
    shape, dtype = shape_and_dtype(node)
    return [
        node.op,
        target_text(node),
        module_path(node),
        shape,
        dtype,
        parameter_count(node, graph_module, modules),
        [argument.name for argument in node.all_input_nodes],
        [user.name for user in node.users],
    ]
