"""Names in a graph module: free paths for its parts, and the naming that its copies share."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from uuid import uuid4

from torch import nn
from torch.fx import Graph, GraphModule

from fxlab.models.graph_modules.generated_code import protect


def free_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return paths for the tensors of a model in a graph module that its own attributes do not hide."""
    split = [path.split(".") for path in paths]
    taken = {tuple(names[:depth]) for names in split for depth in range(1, len(names) + 1)}
    found: dict[str, str] = {}
    for names in split:
        free = [_free_name(tuple(names[:depth]), name, taken) for depth, name in enumerate(names)]
        found[".".join(names)] = ".".join(free)
    return found


def _free_name(parent: tuple[str, ...], name: str, taken: Collection[tuple[str, ...]]) -> str:
    own = _own_names()[bool(parent)]
    if name not in own:
        return name
    return next(other for other in variants(name) if other not in own and (*parent, other) not in taken)


def variants(name: str) -> Iterator[str]:
    """Yield a name, and numbered variants of it: ``layer``, ``layer_1``, ``layer_2``."""
    return itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))


def unused_name(parent: nn.Module, wanted: str) -> str:
    """Return ``wanted``, or a numbered variant of it if the parent already has that attribute."""
    return next(name for name in variants(wanted) if not hasattr(parent, name))


@lru_cache
def _own_names() -> tuple[frozenset[str], frozenset[str]]:
    """Return the attributes of graph modules, and of other modules that hold modules."""
    return frozenset(dir(GraphModule(nn.Module(), Graph()))), frozenset(dir(nn.Module()))


def graph_module_of(held: Mapping[str, Any], graph: Graph, class_name: str) -> GraphModule:
    """Return a graph module of a graph and the values at the paths that it names.

    ``held``: modules and attributes by their paths, maybe more than the graph names. ``graph``: becomes the
    graph of the module, and names :func:`free_paths`. ``class_name``: the name of the class.
    """
    readers = [node for node in graph.nodes if node.op in ("get_attr", "call_module")]
    paths = free_paths(dict.fromkeys(str(node.target) for node in readers))
    for node in readers:
        if (path := paths[str(node.target)]) != node.target:
            node.target = path
    root = {paths[path]: value for path, value in held.items() if path in paths}
    return GraphModule(root, protect(graph), class_name)


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
