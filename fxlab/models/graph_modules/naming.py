"""The naming of a graph: in its copies, even changed by passes, a name still means the same node."""

from uuid import uuid4

from torch.fx import GraphModule

_KEY = "fxlab.names"


def new_naming() -> str:
    """Return a naming that no other graph has."""
    return uuid4().hex


def give_naming(graph_module: GraphModule, naming: str) -> None:
    """Note the naming of a graph's nodes; its copies and pickles have it as well."""
    graph_module.meta[_KEY] = naming


def share_naming(graph_module: GraphModule, other: GraphModule) -> None:
    """Give a graph the naming of another."""
    other.meta[_KEY] = graph_module.meta[_KEY]


def have_one_naming(first: GraphModule, second: GraphModule) -> bool | None:
    """Tell whether two graphs have the same naming; ``None`` if one of them has none."""
    ours, theirs = (module.meta.get(_KEY) for module in (first, second))
    return None if ours is None or theirs is None else ours == theirs
