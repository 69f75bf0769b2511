"""A call in its canonical form, arguments by the names of its schema, and facts by which calls are read."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from fxlab.base.torch_private import OpOverload
from fxlab.operators.node_info import known_result, known_shape
from fxlab.operators.operator import Operator
from fxlab.transformations.analysis.dtypes_and_sizes import are_same_sizes, is_cast

_IGNORED = frozenset({
    "_stacklevel", "inplace", "cudnn_enable", "cudnn_enabled", "memory_format", "layout", "pin_memory",
    "non_blocking", "copy", "padding_idx", "scale_grad_by_freq", "sparse", "implicit", "benchmark",
    "deterministic", "allow_tf32", "out",
})  # fmt: skip
"""Arguments that do not change values computed without gradients."""


_IN_SCHEMAS = {"input": "self", "axis": "dim", "keepdims": "keepdim"}
RENAMED = _IN_SCHEMAS | {"training": "train", "size": "shape"}


_BEFORE_SIZES = {"view": 1, "reshape": 1, "expand": 1, "permute": 1, "new_zeros": 1, "new_ones": 1}
_BEFORE_SIZES |= {"zeros": 0, "ones": 0}
"""The number of arguments before sizes or dimensions, which are a list or arguments of their own."""


_Signature = tuple[list[str], dict[str, Any]]


_SIGNATURES: dict[Any, _Signature | None] = {}
"""The parameters of operators, by the kinds of arguments in calls."""
_TENSOR = ("Tensor",)
_TENSOR_OR_NUMBER = ("Tensor", "int", "float", "bool", "number")


@dataclass(frozen=True)
class Weight:
    """A parameter or buffer of a module that is called."""

    path: str


def is_number(value: Any) -> bool:
    """Tell whether a value is a Python number, and no truth value."""
    return type(value) in (int, float)


def from_start(dims: Any, rank: int) -> Any:
    """Return dimensions, or one, counted from the start."""
    if isinstance(dims, tuple | list):
        return tuple(from_start(dim, rank) for dim in dims)
    return dims + rank if type(dims) is int and dims < 0 else dims


def flat(value: Any) -> tuple[Any, ...]:
    """Return a list of sizes or dimensions in one form."""
    if value is None:
        return ()
    if isinstance(value, tuple | list):
        if len(value) == 1 and isinstance(value[0], tuple | list):
            return tuple(value[0])
        return tuple(value)
    return (value,)


def call_arguments(
    called: Operator, node: Node, is_pattern: bool
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the arguments of a call by name, and defaults of others; ``None`` if its schema does not fit."""
    args, kwargs = node.args, node.kwargs
    before = _BEFORE_SIZES.get(called.computes, len(args))
    if len(args) > before:
        rest = args[before] if len(args) == before + 1 else tuple(args[before:])
        key = "dims" if called.computes == "permute" else "shape"
        return {**dict.fromkeys(("self",)[:before], args[0]), key: rest, **kwargs}, {}
    found = _signature(called, node, is_pattern)
    if found is None:
        return None
    names, defaults = found
    given = {name: _plain(value) for name, value in zip(names, args, strict=False)}
    given |= {RENAMED.get(name, name): _plain(value) for name, value in kwargs.items()}
    if called.computes == "embedding" and isinstance(called.function, OpOverload):
        given["self"] = given.pop("indices", None)
    return _kept(given, defaults, called), defaults


def without_defaults(given: dict[str, Any], called: Operator) -> dict[str, Any]:
    """Return the arguments of a module's function by name, without defaults."""
    defaults = {RENAMED.get(name, name): value for name, value in called.parameters.items()}
    return _kept({name: _plain(value) for name, value in given.items()}, defaults, called)


def _kept(given: dict[str, Any], defaults: dict[str, Any], called: Operator) -> dict[str, Any]:
    count = called.repeated
    given = {name: _not_repeated(value, count.get(name)) for name, value in given.items()}

    def is_default(name: str, value: Any) -> bool:
        if isinstance(value, Node | Weight) or name in ("self", "train", "p"):
            return False
        default = _not_repeated(_plain(defaults.get(name)), count.get(name))
        if is_number(value) and is_number(default):
            return bool(value == default)
        return default is not None and type(value) is type(default) and bool(value == default)

    return {
        name: value
        for name, value in given.items()
        if value is not None and name not in _IGNORED and not is_default(name, value)
    }


def _not_repeated(value: Any, count: int | None) -> Any:
    """Return one integer for a number of equal ones, which it stands for."""
    is_repeated = count and isinstance(value, tuple) and len(value) in (1, count) and len({*value}) == 1
    return value[0] if is_repeated else value


def _plain(value: Any) -> Any:
    return tuple(_plain(each) for each in value) if isinstance(value, tuple | list) else value


def _signature(called: Operator, node: Node, is_pattern: bool) -> _Signature | None:
    """Return the names of a call's parameters, and their defaults."""
    kinds = tuple(map(_kind, node.args))
    named = tuple((name, _kind(value)) for name, value in node.kwargs.items())
    is_indexed = is_pattern and any(user.target in (getitem, getattr) for user in node.users)
    key = called.name, called.function, kinds, named, is_indexed
    if key not in _SIGNATURES:
        found = _found_signature(called, kinds, dict(named), is_indexed)
        if found is not None:
            names, defaults = found
            renamed = {RENAMED.get(name, name): value for name, value in defaults.items()}
            found = [RENAMED.get(name, name) for name in names], renamed
        _SIGNATURES[key] = found
    return _SIGNATURES[key]


def _found_signature(
    called: Operator, kinds: tuple[str, ...], named: dict[str, str], is_indexed: bool
) -> _Signature | None:
    own = called.parameters
    is_python = called.function is not None and hasattr(called.function, "__code__")
    if is_python or (called.function is not None and not called.overloads):
        return (list(own), dict(own)) if len(kinds) <= len(own) and named.keys() <= own.keys() else None
    # A number stands for a tensor only where no operator takes a number: x.max(-1) has a dimension.
    # An unknown value is rather a dimension than a truth value, as in x.std(dim); in a pattern also rather
    # than a tensor, if the result is one of several, as in x.max(dim)[0].

    def order(overload: Any) -> tuple[bool, bool]:
        return _reads_as_bool(overload, kinds), is_indexed and len(overload._schema.returns) == 1

    overloads = sorted(called.overloads, key=order)
    for tensors, overload in itertools.product((_TENSOR, _TENSOR_OR_NUMBER), overloads):
        arguments = overload._schema.arguments
        names = [argument.name for argument in arguments]
        given = [
            *zip(names, kinds, strict=False),
            *((_IN_SCHEMAS.get(n, n), kind) for n, kind in named.items()),
        ]
        types = {argument.name: str(argument.type) for argument in arguments}
        needed = [a.name for a in arguments[len(kinds) :] if not a.has_default_value()]
        positional = [
            name for name, argument in zip(names, arguments, strict=True) if not argument.kwarg_only
        ]
        given_names = {name for name, _ in given[len(kinds) :]}
        is_whole = len(kinds) <= len(positional) and {*needed} <= given_names
        if is_whole and all(
            name in types and _may_be(name, types[name], kind, tensors) for name, kind in given
        ):
            return names, {a.name: a.default_value for a in arguments if a.has_default_value()}
    if isinstance(called.function, OpOverload) or not own:
        return ["self", "other", "arg2", "arg3"][: len(kinds)], {}
    return list(own), dict(own)


def _reads_as_bool(overload: Any, kinds: tuple[str, ...]) -> bool:
    arguments = zip(overload._schema.arguments, kinds, strict=False)
    return any(kind == "node" and str(argument.type) == "bool" for argument, kind in arguments)


def _kind(value: Any) -> str:
    """Return the kind of an argument, which distinguishes overloads."""
    if isinstance(value, Node):
        result = known_result(value)
        return "node" if result is None else "Tensor" if hasattr(result, "dtype") else "number"
    if isinstance(value, torch.dtype):
        return "dtype"
    return "list" if isinstance(value, tuple | list) else type(value).__name__


def _may_be(name: str, expected: str, kind: str, tensors: tuple[str, ...]) -> bool:
    """Tell whether an argument of a kind fits a type of a schema, of which ``tensors`` may be a tensor."""
    expected = (
        expected.removeprefix("Optional[").removesuffix("]") if expected.startswith("Opt") else expected
    )
    if name == "dtype":
        return kind in ("dtype", "NoneType", "node")
    if kind in ("NoneType", "node"):
        return "name" not in expected.lower() and expected != "str"
    if expected == "Tensor":
        return kind in tensors
    takes = {
        "list": ("List",),
        "str": ("str",),
        "bool": ("bool", "number"),
        "int": ("int", "SymInt", "number", "float", "List[int]"),
        "float": ("float", "number"),
        "number": ("int", "SymInt", "number", "float"),
        "Tensor": ("List[Tensor]",),
        "dtype": (),
    }.get(kind)
    return takes is None or expected.startswith(takes)


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
