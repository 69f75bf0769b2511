"""``fxlab.nodes`` and ``rewriting.transformed_nodes``: nodes of a graph, as tables that pandas queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node

from fxlab.base.checks import describe, type_error
from fxlab.base.first_use import pd
from fxlab.front_desk.sources import Model, SessionLike, graph_of, is_session, resolved
from fxlab.graphs.provenance import Provenance
from fxlab.graphs.unfolded import unfolded
from fxlab.operators import node_info, operator_for
from fxlab.transformations import Transformation
from fxlab.transformations.journal.journal import Journal
from fxlab.transformations.marks import marks

Where: TypeAlias = str | Node | Callable[..., Any]
"""Nodes: a name, path or operation in words; a node; or a class of modules, an operator, or a predicate."""

COLUMNS = ("op", "target", "module", "class", "shape", "dtype", "source", "marks", "inputs", "users")


def nodes(
    graph: Model | SessionLike,
    where: Where | None = None,
    *,
    op: str | None = None,
    target: Any = None,
    module: str | None = None,
) -> pd.DataFrame:
    """Return a row for each node of a graph, in its order; nodes of bodies follow the call of the body.

    Parameters
    ----------
    graph
        A graph module; a session, which stands for its present graph; or a module, which is traced on inputs
        that are made from its configuration.
    where
        Nodes to list: the name of a node, the path of a module, an operation in words
        (``"linear"``), a class of modules, an operator, or a function of a node. Left out, all.
    op, target, module
        Only nodes of this ``op``; of this ``target``, itself or in words; in the module at this path.

    Returns
    -------
    pandas.DataFrame
        Indexed by the ``name`` of the node:

        ``op``, ``target``
            As in the graph, the target in words.
        ``module``, ``class``
            The path of the module in which it was recorded, and the classes around it, outermost first, with
            that of a module it calls last.
        ``shape``, ``dtype``
            Those of its result in the traced run (a tuple and a name); ``None`` if unknown.
        ``source``
            The lines that made it, as ``file:line function: code``, the innermost first.
        ``marks``
            The names of the passes that have changed it, separated by commas; the signature of a pass that
            neither the session nor the journal of the graph knows.
        ``inputs``, ``users``
            The names of its inputs and users.

    Raises
    ------
    TypeError
        If ``graph`` is no model or session.
    ValueError
        If there is no such ``op``, or nothing in the graph has the name or path in ``where`` or ``module``.

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
    graph_module: GraphModule = unfolded(graph_of(resolved(graph, "graph"), "graph"))
    passes = [
        *Journal.of(graph_module).transformations.values(),
        *(graph.passes if is_session(graph) else ()),
    ]
    names = {one.signature: str(one.name) for one in passes if isinstance(one, Transformation)}
    modules = node_info.modules_by_path(graph_module)

    def row(node: Node) -> list[Any]:
        shape, dtype = node_info.shape_and_dtype(node)
        return [
            node.op,
            node_info.target_text(node),
            node_info.module_path(node),
            node_info.class_names(node, modules.get(str(node.target)) if node.op == "call_module" else None),
            shape,
            dtype,
            "\n".join(
                f"{f['file']}:{f['line']} {f['function']}: {f['code']}" for f in node_info.frames_of(node)
            ),
            ", ".join(sorted(names.get(mark, mark) for mark in marks(node))),
            [value.name for value in node.all_input_nodes],
            [user.name for user in node.users],
        ]

    chosen = chosen_nodes(graph_module, where, op=op, target=target, module=module)
    rows = {node.name: row(node) for node in chosen}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS), dtype=object)
    return table.rename_axis("name")


_OPS = "placeholder", "get_attr", "call_function", "call_method", "call_module", "output"


def chosen_nodes(
    graph_module: GraphModule,
    where: Any,
    *,
    op: str | None = None,
    target: Any = None,
    module: str | None = None,
) -> list[Node]:
    """Return the nodes that are meant, in the order of the graph; ``None`` means all."""
    if op not in (None, *_OPS):
        raise ValueError(f"op: expected one of {', '.join(_OPS)}, got {describe(op)}.")
    # A module that computes nothing, such as a dropout in evaluation, has no nodes, and is no mistake.
    if (
        module
        and module not in node_info.modules_by_path(graph_module)
        and not node_info.nodes_at(graph_module.graph, module)
    ):
        raise node_info.unknown_node(graph_module.graph, module)
    return [
        node
        for node in (graph_module.graph.nodes if where is None else _meant(graph_module, where))
        if op in (None, node.op)
        and (target is None or node.target == target or node_info.target_text(node) == target)
        and (module is None or f"{node_info.module_path(node)}.".startswith(f"{module}."))
    ]


def _meant(graph_module: GraphModule, where: Any) -> list[Node]:
    """Return the nodes that ``where`` of :func:`nodes` means; ValueError if a text means none."""
    graph, modules = graph_module.graph, node_info.modules_by_path(graph_module)
    if isinstance(where, str):
        words = re.sub(r"[\W_]+", " ", where).lower().strip()
        found = node_info.nodes_at(graph, where) or [
            node
            for node in graph.nodes
            if words in (node_info.kind_text(node, modules).lower(), node.op.replace("_", " "))
        ]
        if not found:
            raise node_info.unknown_node(graph, where)
        return found
    if isinstance(where, type):
        return [node for node in graph.nodes if isinstance(modules.get(str(node.target)), where)]
    if not callable(where):
        raise TypeError(f"where: expected a name, a class of modules or a function, got {describe(where)}.")
    called = [node for node in graph.nodes if node.target is where]
    is_operator = operator_for(where) is not None  # it would be called with a node
    return called if called or is_operator else [node for node in graph.nodes if where(node)]


COLUMNS_OF_CHANGED = ("op", "target", "module_path", "shape", "dtype", "parameters", "inputs", "users")

BESIDE = ("op", "target", "shape", "dtype", "parameters", "inputs")
"""The columns with a counterpart for the original."""


def transformed_nodes(
    model: Model, pass_: Transformation | None = None, *, original: Model | None = None
) -> pd.DataFrame:
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


def _table(nodes: Mapping[str, Node], graph_module: GraphModule) -> pd.DataFrame:
    modules = node_info.modules_by_path(graph_module)
    rows = {name: _row(node, modules) for name, node in nodes.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS_OF_CHANGED)).rename_axis("node")


def _side_by_side(
    table: pd.DataFrame, nodes: list[Node], graph_module: GraphModule, original: GraphModule
) -> pd.DataFrame:
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
    shape, dtype = node_info.shape_and_dtype(node)
    return [
        node.op,
        node_info.target_text(node),
        node_info.module_path(node),
        shape,
        dtype,
        node_info.parameter_count(node, modules),
        [argument.name for argument in node.all_input_nodes],
        [user.name for user in node.users],
    ]
