"""Which node of a transformed graph computes what which node of the original computes."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from fxlab.tensors import same_bits
from fxlab.validation.module_tensors import attribute, place_of


@dataclass(frozen=True)
class Matching:
    """Pairs of nodes of two graphs."""

    originals: dict[Node, Node]
    """Node of the transformed graph -> node of the original."""
    unchanged: frozenset[Node]
    """The nodes of the transformed graph that do the same as their originals, on the same values."""


def matched(original: GraphModule, transformed: GraphModule) -> Matching:
    """Match the nodes of two graphs.

    Inputs match by their order, other nodes by name. A node that was erased matches the one that is read in
    its stead: where an unchanged reader, such as an activation, now reads ``conv`` and not ``norm`` any more,
    and ``conv`` has changed, then ``conv`` computes what ``norm`` did. That holds for every pass, whether it
    keeps a journal or not.

    Parameters
    ----------
    original, transformed
        Two graph modules, the second made from the first or a copy of it.

    Examples
    --------
    >>> from torch import nn
    >>> from fxlab import FuseBatchNorm2dInConv2d
    >>> layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
    >>> graph = torch.fx.symbolic_trace(nn.Sequential(*layers).eval())
    >>> fused = FuseBatchNorm2dInConv2d()(torch.fx.symbolic_trace(graph))
    >>> {str(node): str(other) for node, other in matched(graph, fused).originals.items()}
    {'input_1': 'input_1', '_0': '_1', '_2': '_2', 'output': 'output'}
    """
    named = {node.name: node for node in original.graph.nodes}
    kept = {node.name for node in transformed.graph.nodes}
    originals = {node: named[node.name] for node in transformed.graph.nodes if node.name in named}
    originals |= dict(zip(_placeholders(transformed), _placeholders(original), strict=False))
    alike = {node for node, other in originals.items() if _do_the_same(other, node, original, transformed)}
    read_instead: dict[Node, set[Node]] = defaultdict(set)
    for reader in alike:
        for before, after in zip(_inputs(originals[reader]), _inputs(reader), strict=True):
            if after not in alike:
                read_instead[after].add(before)
    for node, others in read_instead.items():
        if len(others) == 1 and (other := next(iter(others))).name not in kept:
            originals[node] = other
    originals = _one_to_one(originals)
    return Matching(originals, frozenset(node for node in alike if _reads_the_same(node, originals)))


def _placeholders(module: GraphModule) -> list[Node]:
    return module.graph.find_nodes(op="placeholder")


def _one_to_one(originals: dict[Node, Node]) -> dict[Node, Node]:
    taken: set[Node] = set()
    result: dict[Node, Node] = {}
    for node, other in originals.items():
        if other not in taken:
            taken.add(other)
            result[node] = other
    return result


def _reads_the_same(node: Node, originals: dict[Node, Node]) -> bool:
    return node in originals and all(
        originals.get(after) is before
        for before, after in zip(_inputs(originals[node]), _inputs(node), strict=True)
    )


def _inputs(node: Node) -> list[Node]:
    """Return the nodes that a node reads, in the order of its arguments, as often as it reads them."""
    result: list[Node] = []

    def note(value: Any) -> Any:
        if isinstance(value, Node):
            result.append(value)
        return value

    map_aggregate((node.args, node.kwargs), note)
    return result


def _do_the_same(a: Node, b: Node, owner_of_a: GraphModule, owner_of_b: GraphModule) -> bool:
    """Tell whether two nodes do the same to their inputs, whichever those are; ``False`` if in doubt."""
    if a.op == b.op == "placeholder":
        return True
    if a.op != b.op or not _equal(a.target, b.target) or not _equal(_arguments(a), _arguments(b)):
        return False
    if a.op not in ("call_module", "get_attr"):
        return True
    return _are_same_attribute(*(attribute(m, str(a.target)) for m in (owner_of_a, owner_of_b)))


def _arguments(node: Node) -> Any:
    """Return the arguments with something that equals itself for every node."""

    def without_node(value: Any) -> Any:
        return Node if isinstance(value, Node) else value

    return map_aggregate((node.args, node.kwargs), without_node)


def _are_same_attribute(a: Any, b: Any) -> bool:
    if isinstance(a, torch.nn.Module) and isinstance(b, torch.nn.Module):
        return a is b or (_settings(a) == _settings(b) and _have_same_tensors(a, b))
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return _same_values(a, b)
    return _equal(a, b)


def _have_same_tensors(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    ours, theirs = ({**dict(m.named_parameters()), **dict(m.named_buffers())} for m in (a, b))
    return ours.keys() == theirs.keys() and all(_same_values(ours[name], theirs[name]) for name in ours)


def _same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    return place_of(a) == place_of(b) or same_bits(a, b)


class _Differing:
    """Equals nothing, itself included."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _settings(module: torch.nn.Module) -> list[Any]:
    """Return all but its tensors that decides what a module computes."""
    settings: list[Any] = []
    for name, part in module.named_modules():
        settings += [name, type(part)]
        for key, value in vars(part).items():
            if key not in ("_parameters", "_buffers", "_modules"):
                settings.append((key, value if _equal(value, value) else _Differing()))
    return settings


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:  # whatever a class raises whose instances do not compare to one truth value
        return False
