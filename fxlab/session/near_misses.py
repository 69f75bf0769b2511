"""Places at which a pass does not apply, for ``why_not``, in the columns of the compiler's patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from torch.fx import GraphModule, Node

from fxlab.base.author_frames import placed_words
from fxlab.base.checks import describe
from fxlab.base.reasons import Reason, Refusal
from fxlab.graphs.unfolded import unfolded
from fxlab.operators.node_info import nodes_at, unknown_node
from fxlab.transformations import Transformation
from fxlab.transformations.base import explanation
from fxlab.transformations.foreign.from_callable import CallableTransformation
from fxlab.transformations.rewriting.rewrite_pass import Attempt, RewritePass

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = 7
"""The number of fields of an attempt in the table."""


def why_not(pass_: Transformation, graph_module: GraphModule, node: Node | str | None) -> pd.DataFrame:
    """Return a row for each place at which a pass does not apply, or for each at a node."""
    from fxlab.transformations.inductor_patterns import attempts_at, attempts_table, near_misses, not_tried

    graph = unfolded(graph_module).graph
    names = places(graph_module, node)
    tried = pass_.tried(graph_module) if isinstance(pass_, CallableTransformation) else None
    if tried is not None and tried.patterns:
        known = {each.name: each for each in graph.nodes}
        if node is None:
            nearest = [attempt for _, attempt in near_misses(tried, known, ())]
            nearest.sort(key=lambda attempt: -len(attempt.nodes) / len(attempt.pattern.operators))
            return attempts_table([attempt.row(str(pass_.name)) for attempt in nearest])
        tables = [attempts_at([tried], str(each), None) for each in names]
        return next((t for t in tables if len(t)), not_tried([tried], known[str(names[0])]))
    found: list[Attempt] = []
    for each in names:
        rows = attempts(pass_, graph_module, each)
        if not rows and each is not None and len(names) == 1:
            refusal = Reason.NO_CANDIDATE(node=each)
            rows = [Attempt(False, refusal.words, refusal.code, 0, 1, each, each)]
        found += [row for row in rows if row not in found]
    chosen = [row for row in found if node is not None or not row.matched]
    table = [(str(pass_.name), str(pass_.name), *row[:_COLUMNS]) for row in chosen]
    return attempts_table(table)


def places(graph_module: GraphModule, node: Node | str | None) -> list[str | None]:
    """Return the names of the nodes that a node, a name or a module path means; ``[None]`` for ``None``.

    Raises TypeError for anything else, and ValueError if there is no such node.
    """
    if node is None:
        return [None]
    name = node.name if isinstance(node, Node) else node
    if not isinstance(name, str):
        raise TypeError(f"node: expected a torch.fx.Node or its name, got {describe(node)}.")
    graph = unfolded(graph_module).graph
    names = [each.name for each in nodes_at(graph, name)]
    if not names:
        raise unknown_node(graph, name)
    return [*names]


def of_all(
    passes: Iterable[Transformation],
    ask: Callable[[Transformation], pd.DataFrame],
    failed: Callable[[str, Refusal], pd.DataFrame],
) -> pd.DataFrame:
    """Return the answers of all passes, with a column ``pass``; for one that raises, a table that says so.

    A user's pass may raise, which must not hide the answers of the others.
    """
    from pandas import concat

    tables = {}
    for name, pass_ in ((str(each.name), each) for each in passes):
        try:
            tables[name] = ask(pass_)
        except (Exception, SystemExit) as error:
            tables[name] = failed(name, Reason.PASS_FAILS(error=placed_words(error)))
    return concat([table.assign(**{"pass": name}) for name, table in tables.items()])


def failed_explanation(_: str, refusal: Refusal) -> pd.DataFrame:
    """Return the one row of a pass that cannot explain itself."""
    return explanation([("", False, refusal.words, refusal.code, 0)])


def failed_attempt(name: str, refusal: Refusal) -> pd.DataFrame:
    """Return the one row of a pass that cannot say where it does not apply."""
    from fxlab.transformations.inductor_patterns import attempts_table

    return attempts_table(
        [(name, name, *Attempt(False, refusal.words, refusal.code, 0, 1, "", "")[:_COLUMNS])]
    )


def nearest(pass_: Transformation, graph_module: GraphModule) -> str:
    """Return the nearest place at which a pass does not apply, in words."""
    if pass_.explains_by_running:
        return ""
    try:
        table = why_not(pass_, graph_module, None)
    except (Exception, SystemExit):  # a foreign pass may fail to explain itself; asked directly, it raises
        return ""
    others = f", and {len(table) - 1} others" if len(table) > 1 else ""
    return f"{table.begins_at.iloc[0]}: {table.reason.iloc[0]}{others}" if len(table) else ""


def near_miss(pass_: Transformation, graph_module: GraphModule, name: str) -> Attempt:
    """Return how far a pass gets at a node, and the nodes that fit and that do not.

    Raises ValueError if the pass says nothing of the node, or applies there.
    """
    found = attempts(pass_, graph_module, name)
    refused = next((each for each in found if not each.matched), None)
    if refused is None:
        raise ValueError(f"{pass_.name} {'applies at' if found else 'says nothing of'} {name}.")
    return refused


def attempts(pass_: Transformation, graph_module: GraphModule, name: str | None) -> list[Attempt]:
    """Return how far a pass gets in a graph, or at a node of it."""
    if isinstance(pass_, RewritePass):
        return pass_.attempts(graph_module, name)
    found = []
    for _, rows in pass_.explain(graph_module).groupby("candidate", sort=False):
        names = tuple(str(each) for each in rows.index)
        first = rows.iloc[0]
        if name is None or name in names:
            at = "" if first["matched"] else names[0]
            said = bool(first["matched"]), first["reason"], first["code"], len(names), len(names)
            found.append(Attempt(*said, at, names[-1], names))
    return found
