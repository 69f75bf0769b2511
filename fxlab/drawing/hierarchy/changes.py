"""Two graphs as one, for pages: added, removed and changed nodes stand where they belong."""

from torch import fx

from fxlab.graphs.unfolded import held_by, to_look_at, unfolded

CHANGES = ("added", "removed", "changed", "rewired")
"""The marks of a merged graph, in the order that numbers them."""


def merged_graph(
    before: fx.GraphModule, after: fx.GraphModule
) -> tuple[fx.GraphModule, dict[str, tuple[str, ...]]]:
    """Return a graph of the nodes of two stages, which cannot be run, and the changes of those that differ.

    Nodes of one name are one node, that of the graph after; a removed node keeps its former inputs.
    """
    from fxlab.models.graph_modules.input_order import after_inputs
    from fxlab.transformations.journal.name_order import merged_order

    before, after = unfolded(before), unfolded(after)
    old, new = ({node.name: node for node in graph_module.graph.nodes} for graph_module in (before, after))
    names = merged_order(list(old), list(new))
    known = {name: new.get(name) or old[name] for name in names}
    # A node that is gone may read one that stands further down now.
    order = after_inputs(names, lambda name: [value.name for value in known[name].all_input_nodes])
    sources = {name: known[name] for name in order}
    graph = fx.Graph()
    copies: dict[str, fx.Node] = {}
    for name, node in sources.items():
        copy = copies[name] = graph.create_node(node.op, node.target, name=name, type_expr=node.type)
        copy.name = name
        copy.meta = dict(node.meta)
    for name, node in sources.items():
        copies[name].args = fx.map_arg(node.args, lambda argument: copies[argument.name])
        copies[name].kwargs = fx.map_arg(node.kwargs, lambda argument: copies[argument.name])
    held = held_by(before.graph, before) | held_by(after.graph, after)
    merged = to_look_at(graph, held, type(after).__name__)
    return merged, changes_between(before, after)


def changes_between(before: fx.GraphModule, after: fx.GraphModule) -> dict[str, tuple[str, ...]]:
    """Return, by name, the changes of the nodes in which two graphs differ, as marks are."""
    from fxlab.graphs.graph_diff import changes_by_name  # a single graph is drawn without it

    changes = changes_by_name(unfolded(before), unfolded(after))
    return {name: (change,) for name, change in changes.items()}
