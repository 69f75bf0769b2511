"""Functions that modules of torch compute, so that facts about functions hold for modules."""

from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.nn import functional

from fxlab.operators.operator import Operator, operator_for, operator_of

_ENDINGS = ("", "1d", "2d", "3d", "loss")
"""How the name of a module may end where that of its function does not."""

_FUNCTIONS: dict[Any, Any] = {
    nn.Identity: torch.ops.aten.alias.default,
    nn.Flatten: torch.flatten,
    nn.Unflatten: torch.unflatten,
    nn.Upsample: functional.interpolate,
}
"""Modules with other names than their functions have."""


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


def operator_called(node: Node, root: nn.Module) -> Operator | None:
    """Return the operator that a node calls by a function, method or module of ``torch.nn``, or ``None``."""
    if node.op != "call_module":
        return operator_of(node)
    return function_of(type(root.get_submodule(str(node.target))))


@lru_cache(maxsize=1)
def _by_name() -> dict[str, object]:
    """The functions of torch by their names as those of modules are written, in one word."""
    named = {name: getattr(functional, name) for name in dir(functional)}
    known = {name: value for name, value in named.items() if callable(value) and operator_for(value)}
    return {name.replace("_", ""): known[name] for name in known if name.strip("_") == name}
