"""Decisions that operators take on numbers, such as comparisons, noted and taken again in other runs."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch.fx import Node

from fxlab.base.torch_private import pytree
from fxlab.operators import argument_of, operator_for, takes_steps
from fxlab.validation.verdicts.draws import Draws, DrawsMode
from fxlab.values.tensors import to_float64

Key: TypeAlias = tuple[str, str, int]
"""The name of the node, the name of the operator, and how often it was called in this node before."""

_NO_DECISIONS = ("_scaled_dot_product", "_flash_attention", "_efficient_attention")
"""Operators that return integers of another kind, such as states of generators."""


@dataclass
class Decisions:
    """The integers and booleans that the operators of a graph have made of floating-point numbers.

    Where a model compares, counts or picks, a rounding error may lead to another decision, and with it to a
    result that is far away without being wrong. So decisions are noted in a run of the model as it is, and
    given to a run in float64, which then has no other error than rounding.
    """

    given: "Decisions | None" = None
    """Decisions to take in place of one's own."""
    taken: dict[Key, list[torch.Tensor]] = field(default_factory=dict)
    """The integer and boolean results of each operator that decides."""
    otherwise: int = 0
    """How many results of operators were others than those that were given for them."""
    not_given: dict[str, str] = field(default_factory=dict)
    """Nodes with other decisions than those given that could not be taken in their place -> why."""
    _node: str = ""
    _calls: Counter[str] = field(default_factory=Counter)

    def begin(self, node: Node) -> None:
        """Note the following decisions as those of a node."""
        self._node = node.name
        self._calls.clear()

    def decided(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """Note the result of an operator if it is a decision, and return it, or the one that was given."""
        if func._opname.startswith(_NO_DECISIONS) or not _decides(func, args, kwargs, result):
            return result
        key = (self._node, str(func), self._calls[str(func)])
        self._calls[str(func)] += 1
        own = _decided_parts(func, args, kwargs, result)
        self.taken[key] = [tensor.detach().clone() for tensor in own]
        if self.given is None:
            return result
        given = self.given.taken.get(key)
        if given is None or len(given) != len(own):
            self.not_given.setdefault(self._node, f"{func._opname} was not called there")
            return result
        unequal = sum(map(_unequal, own, given))
        if not unequal:
            return result
        self.otherwise += unequal
        why = f"{func._opname} computes numbers beside its choices"
        try:
            replaced = _with(func, args, kwargs, result, own, given)
        except Exception as error:  # the node itself has run: it is not one that has no float64
            first_line = str(error).partition("\n")[0]
            replaced, why = None, f"{func._opname}: {type(error).__name__}: {first_line}"
        if replaced is None:
            self.not_given.setdefault(self._node, why)
            return result
        return replaced

    def differ_from(self, other: "Decisions") -> bool:
        """Tell whether any decision differs."""
        return self.taken.keys() != other.taken.keys() or any(
            len(ours) != len(other.taken[key]) or any(map(_unequal, ours, other.taken[key]))
            for key, ours in self.taken.items()
        )


class DecisionMode(DrawsMode):  # type: ignore[no-untyped-call]
    """Notes decisions and random numbers, also in bodies of higher-order operators."""

    def __init__(self, decisions: Decisions, drawn: Draws | None = None) -> None:
        super().__init__(drawn or Draws())
        self._decisions = decisions

    def _result(self, func: Any, args: Any, kwargs: Any) -> Any:
        return self._decisions.decided(func, args, kwargs, func(*args, **kwargs))


def _tensors(*values: Any) -> Iterator[torch.Tensor]:
    for value in values:  # of an operator, which has tensors alone or in lists
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(*value)


def _steps(func: Any, args: Any, kwargs: Any) -> bool:
    operator = operator_for(func)
    return operator is not None and takes_steps(operator, args, kwargs)


def _decides(func: Any, args: Any, kwargs: Any, result: Any) -> bool:
    if not any(tensor.is_floating_point() for tensor in _tensors(*args, *kwargs.values())):
        return False
    return any(map(_is_discrete, _tensors(result))) or _steps(func, args, kwargs)


def _decided_parts(func: Any, args: Any, kwargs: Any, result: Any) -> list[torch.Tensor]:
    tensors = [*_tensors(result)]
    return tensors if _steps(func, args, kwargs) else list(filter(_is_discrete, tensors))


def _unequal(a: torch.Tensor, b: torch.Tensor) -> int:
    """Return how many elements differ, in any two dtypes: steps are taken in two of them."""
    if a.shape != b.shape:
        return max(1, abs(a.numel() - b.numel()))
    b = b.to(a.device)
    if a.is_floating_point():
        a, b = to_float64(a), to_float64(b)
        return int(((a != b) & ~(a.isnan() & b.isnan())).sum())
    return int((a != b).sum())


def _with(
    func: Any, args: Any, kwargs: Any, result: Any, own: list[torch.Tensor], given: list[torch.Tensor]
) -> Any | None:
    """Return the result of an operator with other decisions, or ``None`` if that is not known."""
    exchanged = {
        id(tensor): other.to(tensor.device, tensor.dtype) for tensor, other in zip(own, given, strict=True)
    }
    values = [tensor for tensor in _tensors(result) if id(tensor) not in exchanged]
    if values:
        read = _read_at(func, args, kwargs, exchanged[id(own[0])])
        if read is None or (read.shape != values[0].shape and own[0].shape == given[0].shape):
            return None
        exchanged[id(values[0])] = read
    if any(tensor is argument for tensor in own for argument in _tensors(*args)):
        # Written in place: who else holds the tensor reads it as well.
        for tensor in own:
            if tensor.shape != exchanged[id(tensor)].shape:
                return None
            tensor.copy_(exchanged[id(tensor)])
        return result
    return pytree.tree_map_only(torch.Tensor, lambda tensor: exchanged[id(tensor)], result)


def _read_at(func: Any, args: Any, kwargs: Any, places: torch.Tensor) -> torch.Tensor | None:
    """Return the numbers of the first argument at given places, as ``topk``, ``sort`` and ``max`` do."""
    source = args[0]
    if not isinstance(source, torch.Tensor):
        return None
    if "max_pool" in func._opname:
        dims = 3 if "3d" in func._opname else 2
        return source.flatten(-dims).gather(-1, places.flatten(-dims)).reshape(places.shape)
    operator = operator_for(func)
    if operator is None or [value.name for value in func._schema.returns] != ["values", "indices"]:
        return None
    dim = argument_of(operator, args, kwargs, "dim")
    if not isinstance(dim, int) or not source.dim():
        return None
    is_reduced = places.dim() < source.dim()
    read = source.gather(dim, places.unsqueeze(dim) if is_reduced else places)
    return read.squeeze(dim) if is_reduced else read


def _is_discrete(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex() and not tensor.is_quantized


def may_decide(otherwise: int, own: int) -> bool:
    """Tell whether a model takes other decisions than its float64 run about as seldom as another one.

    Both are numbers of rare events, whose variance is their mean.
    """
    return otherwise <= 4 * (own + 4 + 4 * math.sqrt(own))
