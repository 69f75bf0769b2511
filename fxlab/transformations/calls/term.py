"""A call in its canonical form, and the facts by which calls are read."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from fxlab.operators.node_info import known_result, known_shape
from fxlab.transformations.analysis.node_shape import are_same_sizes, is_cast
from fxlab.transformations.calls.arguments import is_number


@dataclass(eq=False)
class Term:
    """A call in its canonical form."""

    name: str
    args: dict[str, Any]
    """Arguments by name: nodes, other terms, :class:`Weight`, numbers, tuples of them."""
    nodes: tuple[Node, ...] = ()
    """The nodes that compute it, last first; none for a part of a call that is no node itself."""
    is_transparent: bool = False
    """Whether it returns the numbers of its first argument, in their dtype."""
    rank: int | None = None
    """The number of dimensions of its first argument, if it is known."""
    module: str | None = None
    """The path of the module that is called."""
    is_write: bool = False
    """Whether it writes its result into its first argument."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """The values of arguments that the call does not give."""
    written: str = ""
    """The name of the operator as written, if it differs, such as ``div``."""
    repeated: Mapping[str, int] = field(default_factory=dict)
    """The arguments for whose equal integers one stands, and how many they are."""

    @property
    def called(self) -> str:
        """The name of the operator for people."""
        return self.written or self.name

    def whole(self, key: str, value: Any, like: Any) -> Any:
        """Return the integers that one stands for, if another call gives a list of as many."""
        is_one = is_number(value) and isinstance(like, tuple) and len(like) == self.repeated.get(key)
        return (value,) * len(like) if is_one else value


@dataclass
class Reading(ABC):
    """The calls of a graph in their canonical form, each read once.

    ``module_of``: returns the module that a node calls, if it computes the same as its class. Copies of
    values that ``is_written`` are no identities. ``is_pattern``: shapes are unknown and modules have any
    settings. ``only_casts``: casts are seen through, and nothing else.
    """

    module_of: Callable[[Node], nn.Module | None]
    is_written: Callable[[Node], bool] = lambda node: False
    is_pattern: bool = False
    only_casts: bool = False
    _terms: dict[Node, Term | None] = field(default_factory=dict)

    def term(self, value: Any) -> Term | None:
        """Return the canonical form of a call's value; ``None`` for any other value."""
        if isinstance(value, Term):
            return value
        if not isinstance(value, Node):
            return None
        if value not in self._terms:
            self._terms[value] = None  # a broken graph may have a cycle
            read = self._read(value)
            if self.only_casts and read is not None:
                read.is_transparent = is_cast(value) and not read.is_write
            self._terms[value] = read
        return self._terms[value]

    def shape(self, value: Any) -> tuple[Any, ...] | None:
        """Return the shape of a value, if it is known."""
        return known_shape(value) if isinstance(value, Node) else None

    def dtype(self, value: Any) -> torch.dtype | None:
        """Return the dtype of a value, if it is known."""
        result = known_result(value) if isinstance(value, Node) else None
        dtype = getattr(result, "dtype", None)
        return dtype if isinstance(dtype, torch.dtype) else None

    def rank(self, value: Any) -> int | None:
        """Return the number of dimensions of a value, if it is known."""
        if isinstance(value, tuple | list):
            return self.rank(value[0]) if value else None
        if isinstance(value, Term):
            if value.rank is None:
                return None
            return value.rank + {"unsqueeze": 1, "select": -1}.get(value.name, 0)
        shape = self.shape(value)
        return None if shape is None else len(shape)

    def seen_through(self, value: Any) -> Iterator[Any]:
        """Yield a value, and the values it is a copy of, nearest first."""
        while True:
            yield value
            term = self.term(value)
            if term is None or not term.is_transparent:
                return
            value = term.args["self"]

    def _size(self, value: Any, dim: Any) -> Any:
        shape = self.shape(value)
        return (
            shape[dim] if shape is not None and type(dim) is int and -len(shape) <= dim < len(shape) else None
        )

    def _is_kept(self, node: Node, value: Any) -> bool:
        """Tell whether neither a value nor a copy of it is written in place."""
        return not self.is_written(node) and not (isinstance(value, Node) and self.is_written(value))

    def _is_same(self, node: Node, value: Any) -> bool:
        """Tell whether a call that keeps all numbers in their order keeps the shape as well."""
        return are_same_sizes(self.shape(node), self.shape(value)) and self._is_kept(node, value)

    @abstractmethod
    def _read(self, node: Node) -> Term | None:
        """Return the canonical form of a call."""
