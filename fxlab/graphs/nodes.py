"""All nodes of a graph, as a table that pandas queries."""

from typing import TYPE_CHECKING, Any

from torch.fx import GraphModule, Node

from fxlab.graphs.unfolded import unfolded
from fxlab.models.running import Inputs
from fxlab.node_info import (
    class_names,
    frames_of,
    module_path,
    modules_by_path,
    shape_and_dtype,
    target_text,
)
from fxlab.sources import Model, graph_of, is_session
from fxlab.transformations import Transformation
from fxlab.transformations.journal.journal import Journal
from fxlab.transformations.marks import marks

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("op", "target", "module", "class", "shape", "dtype", "source", "marks", "inputs", "users")


def nodes(model: Model, inputs: Inputs | None = None) -> "pd.DataFrame":
    """Return a row for each node of a graph, in its order, with those of bodies behind the calls they are of.

    Parameters
    ----------
    model
        A graph module; a session, of which the present one is described; or a module, which is traced.
    inputs
        What a module is traced on. Left out, they are made from its configuration.

    Returns
    -------
    pandas.DataFrame
        Indexed by the ``name`` of the node:

        ``op``, ``target``
            As in the graph, the target in words.
        ``module``, ``class``
            The path of the module it was recorded in, and the names of the classes around it, the outermost
            first and that of the module it calls last.
        ``shape``, ``dtype``
            Those of its result in the run that was traced (a tuple and a name); ``None`` where unknown.
        ``source``
            The lines that made it, as ``file:line function: code``, the innermost first.
        ``marks``
            The names of the passes that have changed it, separated by commas; the signature of a pass that
            neither the session nor the journal of the graph knows.
        ``inputs``, ``users``
            The names of the nodes that it reads, and of those that read it.

    Raises
    ------
    TypeError
        If ``model`` is no module or session.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> gm = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4)))
    >>> table = nodes(gm)
    >>> table[table["class"].str.contains("Linear")].index.tolist()
    ['_0', '_2']
    >>> table.query("op == 'call_module' and target != '1'").index.tolist()
    ['_0', '_2']
    """
    import pandas as pd

    graph_module: GraphModule = unfolded(graph_of(model, "model", inputs))
    passes = [
        *Journal.of(graph_module).transformations.values(),
        *(model.passes if is_session(model) else ()),
    ]
    names = {one.signature: str(one.name) for one in passes if isinstance(one, Transformation)}
    modules = modules_by_path(graph_module)

    def row(node: Node) -> list[Any]:
        shape, dtype = shape_and_dtype(node)
        return [
            node.op,
            target_text(node),
            module_path(node),
            class_names(node, modules.get(str(node.target)) if node.op == "call_module" else None),
            shape,
            dtype,
            "\n".join(f"{f['file']}:{f['line']} {f['function']}: {f['code']}" for f in frames_of(node)),
            ", ".join(sorted(names.get(mark, mark) for mark in marks(node))),
            [value.name for value in node.all_input_nodes],
            [user.name for user in node.users],
        ]

    rows = {node.name: row(node) for node in graph_module.graph.nodes}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS), dtype=object)
    return table.rename_axis("name")
