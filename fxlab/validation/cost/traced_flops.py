"""Floating-point operations of nodes, from the shapes that were traced: nothing is run on data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call

from fxlab.models.collectives import exchanges
from fxlab.torch_private import pytree
from fxlab.validation.cost.flops import FlopCount
from fxlab.values.tensors import known_number

_CALLS = ("call_function", "call_method", "call_module")
_OF_TORCH = ("torch", "_operator", "math")


class TracedFlops:
    """Counts operations as :class:`FlopCount` does, at the sizes that a graph was traced with.

    What a node calls is called once on the meta device, which computes shapes alone. Only what torch itself
    has is called: a function or module of others might notice. ``known``: operations of calls, which graphs
    that have calls in common share.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], known: dict[Any, float | None] | None = None
    ) -> None:
        self._modules = modules
        self._by_node: dict[fx.Node, float | None] = {}
        self._by_call = {} if known is None else known

    def of(self, nodes: Iterable[fx.Node]) -> int | None:
        """Return the known operations of nodes together; ``None`` if those of none of them are known."""
        known = [count for node in nodes if (count := self.of_node(node)) is not None]
        known = [count for count in known if not math.isnan(count)]
        return int(sum(known)) if known else None

    def is_unknown(self, node: fx.Node) -> bool:
        """Tell whether a node computes floating-point tensors in a way whose operations are not known."""
        count = self.of_node(node)
        if count is None:
            made = pytree.tree_leaves(node.meta.get("val")) if node.op in _CALLS else []
            return any(isinstance(value, Tensor) and value.is_floating_point() for value in made)
        return math.isnan(count)

    def of_node(self, node: fx.Node) -> float | None:
        """Return a node's operations: NaN if not known of operators, ``None`` without shapes or of others."""
        if node not in self._by_node:
            self._by_node[node] = self._count(node) if node.op in _CALLS else None
        return self._by_node[node]

    def _count(self, node: fx.Node) -> float | None:
        target = self._called(node)
        if target is None:
            return None
        if exchanges(node):  # it moves elements, or others add them up
            return 0.0
        try:
            values, shape = pytree.tree_flatten(fx.map_arg((node.args, dict(node.kwargs)), _traced_value))
            arguments = [_described(value) for value in values]
            key = (node.op, _described_target(target), tuple(arguments), str(shape))
            if key not in self._by_call:
                args, kwargs = pytree.tree_unflatten([_on_meta(value) for value in values], shape)
                self._by_call[key] = _counted(target, args, kwargs)
            return self._by_call[key]
        except Exception:  # whatever torch raises for shapes alone, or for a value that was not traced
            return None

    def _called(self, node: fx.Node) -> Any:
        """Return what a node calls if torch has made it."""
        if node.op == "call_method":
            return str(node.target)
        called: Any = self._modules.get(str(node.target)) if node.op == "call_module" else node.target
        made_by = type(called) if isinstance(called, nn.Module) else called
        origin = str(getattr(made_by, "__module__", "") or "")
        return called if origin.partition(".")[0] in _OF_TORCH else None


def _traced_value(node: fx.Node) -> Any:
    if "val" not in node.meta:
        raise ValueError(f"{node.name} has no value that was traced")
    return node.meta["val"]


def _sizes(value: Tensor) -> tuple[int, ...]:
    return tuple(int(known_number(size)) for size in value.shape)


def _described(value: Any) -> Any:
    """Return something that is equal for arguments that make as many operations."""
    if isinstance(value, Tensor):
        return _sizes(value), value.dtype
    return value if isinstance(value, str | torch.dtype | torch.device | None) else repr(value)


def _described_target(target: Any) -> Any:
    if not isinstance(target, nn.Module):
        return target
    return type(target), repr(target), tuple((name, tuple(p.shape)) for name, p in target.named_parameters())


def _on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.empty(_sizes(value), dtype=value.dtype, device="meta")
    if isinstance(value, torch.device):
        return torch.device("meta")
    return known_number(value) if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else value


def _counted(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    with torch.no_grad(), FlopCount() as count:
        if isinstance(target, nn.Module):
            tensors = {**dict(target.named_parameters()), **dict(target.named_buffers())}
            weights = {name: torch.empty_like(value, device="meta") for name, value in tensors.items()}
            functional_call(target, weights, args, kwargs)
        elif isinstance(target, str):
            getattr(args[0], target)(*args[1:], **kwargs)
        else:
            target(*args, **kwargs)
    return float(count.total)
