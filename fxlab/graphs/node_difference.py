"""Differences of two nodes: matching, differences of graphs and proofs of equal order ask."""

from collections import OrderedDict
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from fxlab.base.torch_private import pytree
from fxlab.models.state.tensor_state import place_of
from fxlab.operators.node_info import attribute_at
from fxlab.values.tensors import same_bits


def what_differs(a: Node, b: Node, owner_of_a: GraphModule, owner_of_b: GraphModule) -> list[str]:
    """Return the aspects in which two nodes differ, apart from the nodes they read; in doubt they differ.

    Some of ``"op"``, ``"target"``, ``"arguments"`` (other than nodes), ``"values"`` (parameters, buffers,
    constants) and ``"settings"`` (all else of the module that is called).
    """
    if a.op == b.op == "placeholder":
        return []
    found = []
    if a.op != b.op:
        found.append("op")
    if not equal(a.target, b.target):
        found.append("target")
    if not equal(_arguments(a), _arguments(b)):
        found.append("arguments")
    if a.op == b.op and a.op in ("call_module", "get_attr"):
        found += _what_differs_in(
            *(attribute_at(m, str(n.target)) for m, n in ((owner_of_a, a), (owner_of_b, b)))
        )
    return found


def inputs_in_order(node: Node) -> list[Node]:
    """Return the nodes that a node reads, in the order of its arguments, as often as it reads them."""
    result: list[Node] = []
    map_arg((node.args, node.kwargs), result.append)
    return result


def _arguments(node: Node) -> Any:
    """Return the arguments with one equal placeholder for every node."""
    return map_arg((node.args, node.kwargs), lambda _: Node)  # type: ignore[arg-type,return-value]


def _what_differs_in(a: Any, b: Any) -> list[str]:
    if isinstance(a, GraphModule) and isinstance(b, GraphModule):
        return [] if is_same_graph(a, b) else ["settings"]
    if isinstance(a, torch.nn.Module) and isinstance(b, torch.nn.Module):
        found = [] if a is b or _settings(a) == _settings(b) else ["settings"]
        return found if _have_same_tensors(a, b) else [*found, "values"]
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return [] if _same_values(a, b) else ["values"]
    return [] if equal(a, b) else ["values"]


def is_same_graph(a: GraphModule, b: GraphModule) -> bool:
    """Tell whether two graphs have equal nodes in the same order; in doubt they differ."""
    ours, theirs = list(a.graph.nodes), list(b.graph.nodes)
    if a is b:
        return True
    return [node.name for node in ours] == [node.name for node in theirs] and all(
        not what_differs(old, new, a, b)
        and [value.name for value in inputs_in_order(old)] == [value.name for value in inputs_in_order(new)]
        for old, new in zip(ours, theirs, strict=True)
    )


def _have_same_tensors(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    ours, theirs = ({**dict(m.named_parameters()), **dict(m.named_buffers())} for m in (a, b))
    return ours.keys() == theirs.keys() and all(_same_values(ours[name], theirs[name]) for name in ours)


def _same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    return place_of(a) == place_of(b) or same_bits(a, b)


_PLAIN = (type(None), bool, int, str)


class _Differing:
    """Equals nothing, itself included."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _settings(module: torch.nn.Module) -> list[Any]:
    """Return the state of a module, apart from its tensors, that decides its result."""
    settings: list[Any] = []
    for name, part in module.named_modules():
        settings += [name, type(part)]
        for key, value in vars(part).items():
            if key in ("_parameters", "_buffers", "_modules"):
                continue
            if type(value) in _PLAIN or (type(value) in (dict, OrderedDict) and not value):  # nearly all are
                settings.append((key, value))
            else:
                # Not `type` itself: pytree wraps it, which Python 3.12.1 cannot do.
                plain = pytree.tree_map_only(torch.nn.Module, lambda module: type(module), value)
                settings.append((key, plain if equal(plain, plain) else _Differing()))
    return settings


def equal(a: Any, b: Any) -> bool:
    """Tell whether two values are equal; in doubt they are not."""
    try:
        return bool(a == b)
    except Exception:  # instances of some classes, such as arrays, do not compare to one truth value
        return False
