"""The torch operator that a node calls, also by a module of ``torch.nn``, and facts that schemas do not tell.

A test holds the tables of such facts against torch's own samples.
"""

import builtins
import inspect
import itertools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.nn import functional

from fxlab.base.torch_private import OpOverload, OpOverloadPacket, boolean_dispatched
from fxlab.operators.python_functions import CASTS, IN_PLACE, NUMBERS, OPERATOR_NAMES, PURE, SYNTAX, VIEWS

ALIASES = frozenset({
    "broadcast_tensors", "meshgrid", "sum_to_size", "unsafe_split", "type_as", "einsum", "chain_matmul",
    "flatten_dense_tensors", "unflatten_dense_tensors", "data", "lift", "pad_sequence", "histogramdd",
    "_unsafe_view", "wait_tensor", "_wrap_tensor_autograd",
})  # fmt: skip
"""Operators that may return an argument or a view of it, and whose schema does not say so."""

HOLDS_ARGUMENTS = ("_", "to_", "sparse_")
"""Prefixes of composite operators that may return an argument, or hold it."""

SHARES_OTHERS_MEMORY = frozenset({"set_", "set_data"})
"""Operators that move the tensor they write into the memory of another argument."""

_STATISTICS = ("running_mean", "running_var")
WRITES_STATE = {
    "batch_norm": ("training", *_STATISTICS), "native_batch_norm": ("training", *_STATISTICS),
    "_batch_norm_impl_index": ("training", *_STATISTICS), "cudnn_batch_norm": ("training", *_STATISTICS),
    "miopen_batch_norm": ("training", *_STATISTICS), "instance_norm": ("use_input_stats", *_STATISTICS),
    "batch_norm_update_stats": ("input", *_STATISTICS), "embedding": ("max_norm", "weight"),
    "embedding_bag": ("max_norm", "weight"), "_saturate_weight_to_fp16": ("weight", "weight"),
}  # fmt: skip
"""Operators that write statistics or a weight: the argument that says so if given and true, and these."""

DRAWS = frozenset({
    "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices", "gumbel_softmax", "multi_head_attention_forward",
})  # fmt: skip
"""Functions in Python that draw random numbers, besides those whose operators are tagged."""

PREFIXES = {"special_": "", "arc": "a"}
"""Prefixes of second spellings, and those of the first spellings, if torch has both."""

SYNONYMS = {
    "absolute": "abs", "clip": "clamp", "concat": "cat", "concatenate": "cat", "det": "linalg_det",
    "divide": "div", "fix": "trunc", "ger": "outer", "greater": "gt", "greater_equal": "ge",
    "inverse": "linalg_inv", "less": "lt", "less_equal": "le", "linalg_matmul": "matmul",
    "linalg_matrix_exp": "matrix_exp", "matrix_power": "linalg_matrix_power", "moveaxis": "movedim",
    "multiply": "mul", "negative": "neg", "not_equal": "ne", "orgqr": "linalg_householder_product",
    "row_stack": "vstack", "special_expit": "sigmoid", "special_gammainc": "igamma",
    "special_gammaincc": "igammac", "special_gammaln": "lgamma", "special_multigammaln": "mvlgamma",
    "special_psi": "digamma", "subtract": "sub", "swapaxes": "transpose", "swapdims": "transpose",
    "true_divide": "div",
}  # fmt: skip
"""Second names of operators, and the first."""

UNINITIALISED = "empty"
"""Part of the names of operators that return uninitialised memory."""


_PACKAGES = frozenset({"torch", "_operator", "operator", "builtins", "math"})
_NAMESPACES: tuple[Any, ...] = (
    *(torch, torch.nn.functional, torch.Tensor),
    *(getattr(torch._C, name, None) for name in ("_nn", "_linalg", "_special", "_fft")),
)
"""Namespaces of functions that are named like their operators."""

_LISTS = frozenset({"List[int]", "Optional[List[int]]"})
_NUMBERS = _LISTS | {"int", "Optional[int]", "number", "Optional[number]"}
"""Types of arguments in schemas."""
WITH_INDICES = "_with_indices"
"""The end of the names of pools that return the places of the largest elements as well."""


@dataclass(frozen=True)
class Operator:
    """A function or method of torch or of Python, with the dispatcher's facts about it.

    ``name``: that of torch's operator, if there is one. ``function``: the target of a ``call_function`` node,
    ``None`` for a method. ``overloads``: torch's operators that it may be, but for those with ``out``.
    """

    name: str
    function: Callable[..., Any] | None
    overloads: tuple[OpOverload, ...]

    @cached_property
    def computes(self) -> str:
        """One name for all spellings: ``mul`` for ``*``, ``multiply``, ``mul_`` and ``aten.mul.Tensor``."""
        return one_name(self.name)

    @cached_property
    def is_pointwise(self) -> bool:
        """Whether each element of its result may depend on one element of each argument alone."""
        is_its_own = isinstance(self.function, OpOverload) and self.computes == self.name
        overloads = self.overloads if is_its_own else _overloads(self.computes)
        return any(torch.Tag.pointwise in overload.tags for overload in overloads)

    @cached_property
    def is_dropout(self) -> bool:
        """Whether it is a dropout, which returns its first argument if it is inactive."""
        is_named = self.name.rstrip("123d").endswith("dropout") and not is_in_place(self.name)
        return is_named and all(len(overload._schema.returns) == 1 for overload in self.overloads)

    @cached_property
    def may_alias(self) -> bool:
        """Whether its result may share memory with an argument."""
        if self.name in NUMBERS:
            return False
        if self.name in CASTS or self.name in VIEWS:
            return True
        if self.overloads:
            return self.name in ALIASES or any(map(_may_alias, self.overloads))
        return not self._only_computes

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """The names of the arguments that it writes, as its schema says."""
        names = (a.name for o in self.overloads for a in o._schema.arguments if is_written(a))
        return tuple(dict.fromkeys(names))

    @cached_property
    def returns_written(self) -> bool:
        """Whether its results share memory with arguments that it writes, and with no others."""
        returned = [value.alias_info for overload in self.overloads for value in overload._schema.returns]
        return (
            bool(returned)
            and all(alias is not None and alias.is_write for alias in returned)
            and (self.name not in SHARES_OTHERS_MEMORY)
        )

    @cached_property
    def writes_first(self) -> bool:
        """Whether it writes its first argument, as its name says."""
        return self.name in IN_PLACE or is_in_place(self.name)

    @cached_property
    def may_write(self) -> bool:
        """Whether it may write an argument other than ``out``, perhaps only on request."""
        is_asked = "inplace" in self.parameters or self.name in WRITES_STATE
        return bool(self.writes) or self.writes_first or is_asked

    @cached_property
    def is_random(self) -> bool:
        """Whether it may draw random numbers."""
        is_tagged = any(torch.Tag.nondeterministic_seeded in overload.tags for overload in self.overloads)
        return is_tagged or self.is_dropout or self.name in DRAWS

    @cached_property
    def returns_something(self) -> bool:
        """Whether it returns a value; an operator without one is called for its effects."""
        return all(overload._schema.returns for overload in self.overloads)

    @cached_property
    def returns_sequence(self) -> bool:
        """Whether it returns a list or tuple of any number of tensors."""
        types = [str(value.type) for overload in self.overloads for value in overload._schema.returns]
        is_list = bool(types) and set(types) == {"List[Tensor]"}
        return is_list or self.name in ("tuple", "builtins.tuple", "builtins.list")

    @cached_property
    def is_known(self) -> bool:
        """Whether torch's schemas or the tables of this package describe it."""
        named = CASTS.keys() | VIEWS | IN_PLACE
        return bool(self.overloads) or self._only_computes or self.is_dropout or self.name in named

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """Its arguments in their order, as far as they are known: name -> default (or ``None``)."""
        if self.function is not None and not isinstance(self.function, OpOverload | OpOverloadPacket):
            try:
                signature = inspect.signature(_dispatched(self.function)).parameters.values()
            except (TypeError, ValueError):  # a function in C has none
                signature = ()  # type: ignore[assignment]
            named = [p for p in signature if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
            if named:
                return {p.name: None if p.default is p.empty else p.default for p in named}
        longest = max(self.overloads, key=lambda o: len(o._schema.arguments), default=None)
        return {} if longest is None else {a.name: a.default_value for a in longest._schema.arguments}

    @cached_property
    def repeated(self) -> Mapping[str, int]:
        """The arguments that are a number of integers, for which one may be given; and that number."""
        arguments: Any = [a for overload in self.overloads for a in overload._schema.arguments]
        return {a.name: a.N for a in arguments if a.N and "List[int]" in str(a.type)}

    def takes_number(self, place: int) -> bool:
        """Tell whether a positional argument can only be numbers, which torch would read from a tensor."""
        types = self._types_by_place[place : place + 1]
        if not types and self._types_by_place and self._types_by_place[-1] & _LISTS:
            types = self._types_by_place[-1:]  # x.view(2, 3) is x.view((2, 3))
        return any(t & _NUMBERS and not any("Tensor" in name for name in t) for t in types)

    @cached_property
    def takes_indices(self) -> bool:
        """Whether a later argument holds indices of elements of the first."""
        behind = [argument for overload in self.overloads for argument in overload._schema.arguments[1:]]
        has_indices = any(a.name in ("index", "indices") and "Tensor" in str(a.type) for a in behind)
        return has_indices or self.computes == "getitem"

    @cached_property
    def _types_by_place(self) -> list[set[str]]:
        """The types that torch's schemas have for each positional argument."""
        positional = [[a for a in o._schema.arguments if not a.kwarg_only] for o in self.overloads]
        places = itertools.zip_longest(*positional)
        return [{str(argument.type) for argument in place if argument is not None} for place in places]

    @property
    def _only_computes(self) -> bool:
        return self.name in PURE | NUMBERS or self.name.startswith("math.")


def operator_of(node: Node) -> Operator | None:
    """Return the operator that a node calls, or ``None`` if it is none of torch or Python.

    Examples
    --------
    >>> import torch
    >>> from fxlab.operators import operator_of
    >>> graph = torch.fx.symbolic_trace(torch.nn.Flatten()).graph
    >>> operator_of(graph.find_nodes(op="call_method")[0]).may_alias
    True
    """
    if node.op == "call_method":
        return _method(str(node.target))
    return operator_for(node.target) if node.op == "call_function" else None


def computes(node: Node) -> str:
    """Return the one name of all spellings of the operator that a node calls; empty if it calls none."""
    operator = operator_of(node)
    return "" if operator is None else operator.computes


def computed_by(node: Node) -> str:
    """Return the one name of the operator that a node calls for its result.

    Empty if it writes its first argument, or gets an argument with a name that its schema does not have.
    """
    operator = operator_of(node)
    if operator is None or operator.writes_first:
        return ""
    kwargs = node.kwargs
    return "" if kwargs and not operator.parameters.keys() >= kwargs.keys() else operator.computes


def is_aten(node: Node) -> bool:
    """Tell whether a node calls an overload of torch's dispatcher, as exported graphs do."""
    return isinstance(node.target, OpOverload)


def is_of_python(function: object) -> bool:
    """Tell whether a function is one of ``operator``, ``builtins`` or ``math``, which keep numbers."""
    return getattr(function, "__module__", None) in ("_operator", "builtins", "math")


def is_of_torch(function: object) -> bool:
    """Tell whether a function is defined in torch, ``operator``, ``builtins`` or ``math``."""
    module = getattr(function, "__module__", None) or "torch"
    return str(module).partition(".")[0] in _PACKAGES


@lru_cache(maxsize=4096)
def _method(name: str) -> Operator:
    return Operator(name, None, _overloads_of_method(name) if hasattr(torch.Tensor, name) else ())


def operator_for(function: Any) -> Operator | None:
    """Return the operator that a function or method is, or ``None`` if it is none of torch or Python."""
    if (known := _FOUND.get(function)) is None:
        is_torchs = isinstance(function, OpOverload | OpOverloadPacket) or is_of_torch(function)
        known = _known_function(function) if is_torchs else None
        if known is not None:
            _FOUND[function] = known
    return known


_FOUND: dict[Any, Operator] = {}
"""The operators of torch and of Python that were looked up."""


def _known_function(target: Any) -> Operator | None:
    if isinstance(target, OpOverload):
        return Operator(target._schema.name.partition("::")[2], target, (target,))
    if isinstance(target, OpOverloadPacket):
        return Operator(target.__name__, target, _of_packet(target))
    name = str(getattr(target, "__name__", ""))
    if not name:
        return None
    if _is_special(name):
        return Operator(name, target, _overloads_of_method(name))
    public = name.lstrip("_")  # torch.nn.functional.threshold calls itself _threshold
    for namespace in _NAMESPACES:
        if target in (getattr(namespace, name, None), getattr(namespace, public, None)):
            return Operator(
                public, target, _overloads(public) or _overloads(public.removesuffix(WITH_INDICES))
            )
    if getattr(operator, name, None) is target:
        name = OPERATOR_NAMES.get(name, name)
        return Operator(name, target, _overloads(name))
    if getattr(builtins, name, None) is target:
        return Operator(f"builtins.{name}", target, ())
    return Operator(f"math.{name}", target, ()) if getattr(math, name, None) is target else None


def _dispatched(function: Any) -> Any:
    """Return the function with a signature: ``max_pool2d`` calls another one if indices are asked for."""
    found = boolean_dispatched.get(function) if inspect.isfunction(function) else None
    return function if found is None else found["if_false"]


def _is_special(name: str) -> bool:
    """Tell whether Python's syntax calls a method, as ``*`` calls ``__mul__``."""
    return name.startswith("__") and name.endswith("__")


def _overloads_of_method(name: str) -> tuple[OpOverload, ...]:
    is_syntax = _is_special(name) and not is_in_place(name)
    return _overloads(name) or (_overloads(one_name(name)) if is_syntax else ())


def one_name(name: str) -> str:
    """Return the name that an operator has in all its spellings: ``mul`` for ``__imul__``."""
    name = name.rpartition(".")[2]
    if _is_special(name) and (hasattr(operator, name) or name in SYNTAX):
        name = SYNTAX.get(name, name).strip("_")
        name = f"{name}_" if name in ("and", "or") else name
        name = OPERATOR_NAMES.get(name, name)
    if name in IN_PLACE and name.startswith("i"):
        name = OPERATOR_NAMES.get(name[1:], OPERATOR_NAMES.get(f"{name[1:]}_", name[1:]))
    elif is_in_place(name):
        name = name[:-1]
    for prefix, instead in PREFIXES.items():
        if name.startswith(prefix) and hasattr(torch.ops.aten, instead + name.removeprefix(prefix)):
            name = instead + name.removeprefix(prefix)
    return SYNONYMS.get(name, name)


@lru_cache(maxsize=4096)
def _overloads(name: str) -> tuple[OpOverload, ...]:
    packet = getattr(torch.ops.aten, name, None)
    return _of_packet(packet) if isinstance(packet, OpOverloadPacket) else ()


def _of_packet(packet: OpOverloadPacket) -> tuple[OpOverload, ...]:
    """Return the overloads that the dispatcher knows: others are for TorchScript's lists and numbers."""
    names = packet.overloads()  # type: ignore[no-untyped-call]
    named = [getattr(packet, name) for name in names]
    overloads = (o for o in named if torch._C._dispatch_has_kernel(o._name))
    return tuple(o for o in overloads if not any(is_written(a) and a.kwarg_only for a in o._schema.arguments))


def _may_alias(overload: OpOverload) -> bool:
    if any(value.alias_info is not None for value in overload._schema.returns):
        return True
    name = overload._schema.name.partition("::")[2]
    if getattr(torch.Tag, "maybe_aliasing_or_mutating", None) in overload.tags:
        return name not in WRITES_STATE
    # Foreign schemas may be silent, as composite ones are: to_dense returns an argument that is dense.
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(overload._name, "CompositeImplicitAutograd")
    return overload.namespace not in ("aten", "prims") or (composite and name.startswith(HOLDS_ARGUMENTS))


def is_written(argument: Any) -> bool:
    """Tell whether an operator writes one of the arguments of its schema."""
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def is_in_place(name: str) -> bool:
    """Tell whether a method of tensors writes the tensor, as its name says: ``add_`` or ``__iadd__``."""
    if name.endswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name[2:-2] in IN_PLACE)
    return name.endswith("_") and name not in ("and_", "or_", "not_", "is_")


_ENDINGS = ("", "1d", "2d", "3d", "loss")
"""Endings of names of modules that the names of their functions lack."""

_FUNCTIONS: dict[Any, Any] = {
    nn.Identity: torch.ops.aten.alias.default,
    nn.Flatten: torch.flatten,
    nn.Unflatten: torch.unflatten,
    nn.Upsample: functional.interpolate,
}
"""Modules whose functions have other names."""


def function_of(module_class: type[nn.Module]) -> Operator | None:
    """Return the function that a module of ``torch.nn`` calls on its input, and nothing else, or ``None``."""
    return _function_of(module_class) if getattr(nn, module_class.__name__, None) is module_class else None


@lru_cache(maxsize=1024)
def _function_of(module_class: Any) -> Operator | None:
    function = _FUNCTIONS.get(module_class)
    name = module_class.__name__.lower()
    if function is None and name.endswith(("pad1d", "pad2d", "pad3d")):
        function = functional.pad
    for ending in _ENDINGS:
        if function is None and name.endswith(ending):
            function = _by_name().get(name.removesuffix(ending))
    return None if function is None else operator_for(function)


_PADDINGS = {"Reflection": "reflect", "Replication": "replicate", "Circular": "circular"}
"""The modes of padding, by the first part of the names of modules."""


def setting_of(module: nn.Module, name: str) -> Any:
    """Return the argument that a module of ``torch.nn`` gives to its function; ``None`` if it gives none."""
    kind, is_pad, _ = type(module).__name__.rpartition("Pad")
    if is_pad and name == "mode":
        return _PADDINGS.get(kind, "constant")
    if is_pad and name == "pad":
        return module.padding
    if isinstance(module, nn.Unflatten) and name == "sizes":
        return module.unflattened_size
    return getattr(module, name, None)


def operator_called(node: Node, root: nn.Module) -> Operator | None:
    """Return the operator that a node calls by a function, method or module of ``torch.nn``, or ``None``."""
    if node.op != "call_module":
        return operator_of(node)
    return function_of(type(root.get_submodule(str(node.target))))


@lru_cache(maxsize=1)
def _by_name() -> dict[str, object]:
    """The functions of torch by their names in one word, as in names of modules."""
    named = {name: getattr(functional, name) for name in dir(functional)}
    known = {name: value for name, value in named.items() if callable(value) and operator_for(value)}
    return {name.replace("_", ""): known[name] for name in known if name.strip("_") == name}
