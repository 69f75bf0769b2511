"""The search of the inspector, for scripts."""

from __future__ import annotations

from collections.abc import Iterable

from fxlab.checks import described, items_of
from fxlab.graphs.unfolded import unfolded
from fxlab.sources import Model, graph_of, is_session
from fxlab.transformations import Transformation
from fxlab.transformations.journal.journal import Journal
from fxlab.view_model.search.node_index import NodeSearch, names_of_passes


def find_nodes(
    model: Model,
    query: str,
    *,
    passes: Iterable[Transformation] | None = None,
) -> list[str]:
    """Return the names of the nodes that a query finds, as the search of the inspector does.

    A query is a list of terms, all of which must hold; ``-`` before a term negates it. Capital letters and
    small ones are the same, and values with spaces stand in quotes.

    =======================  ===================================================================
    ``attention``            anything that is known of a node has this in it
    ``name:`` ``op:``        so has its name, its op,
    ``target:`` ``module:``  what it calls, or the path of the module that it was made in
    ``class:Linear``         it is in a module of such a class, or calls one
    ``shape:2x12``           its result has these sizes beside each other; all, as ``shape:(2, 12)``
    ``dtype:f32``            its result has this dtype; ``dtype:int`` are all integers
    ``source:model.py:120``  it was made by this line, or by what the line calls; or a line with this text
    ``by:merge-linears``     a pass of this name or class has changed it
    ``inputs:NODE``          ``NODE`` is computed from it, however far away
    ``users:NODE``           it is computed from ``NODE``
    ``path:A..B``            it is on a path from ``A`` to ``B``, both included
    =======================  ===================================================================

    Numbers are whole: ``module:layer.1`` is not in ``layer.10``.

    Parameters
    ----------
    model
        A graph module; a session, of which the present one is searched; or a module, which is traced.
    query
        The query.
    passes
        The passes that ``by:`` may name, beside those that are known from the module or session itself. Only
        passes that keep no journal need be given.

    Returns
    -------
    list of str
        The names in the order of the graph.

    Raises
    ------
    TypeError
        If an argument is of another type.
    ValueError
        If the query has an unknown field, or names a node or a pass that is not there, or nodes that no path
        joins.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> gm = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4)))
    >>> find_nodes(gm, "op:call_module class:Linear")
    ['_0', '_2']
    >>> find_nodes(gm, "inputs:_2 -op:placeholder")
    ['_0', '_1']
    """
    if not isinstance(query, str):
        raise TypeError(f"query: expected a str, got {described(query)}.")
    given = items_of(() if passes is None else passes, "passes", "transformations")
    for pass_ in given:
        if not isinstance(pass_, Transformation):
            raise TypeError(f"passes: expected instances of fxlab.Transformation, got {described(pass_)}.")
    graph_module = unfolded(graph_of(model, "model"))
    known = model.passes if is_session(model) else Journal.of(graph_module).transformations.values()
    names = names_of_passes([*(p for p in known if isinstance(p, Transformation)), *given])
    return NodeSearch(graph_module).names(query, names)
