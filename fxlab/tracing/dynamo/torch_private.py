"""Dynamo's private notes on a captured graph: origins of its inputs, sizes, and the modules that run.

Where this torch does not have one, graphs have Dynamo's own names, and breaks no reason.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import nn
from torch.fx import Graph, Node

_ROOT = re.compile(r"[LG]\['(\w+)'\]")
_STEP = re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]|\.([A-Za-z]\w*)|\['?(\w+)'?\]")
_SIZE = re.compile(r"(?P<tensor>.+)\.size\(\)\[(?P<dim>\d+)\]")
_COMPILED = "torch._dynamo.eval_frame"
"""The module of the class that ``torch.compile`` wraps a model in."""


@dataclass(frozen=True)
class Origin:
    """The source that Dynamo has taken the value of a placeholder from."""

    text: str
    """Its expression, such as ``L['self']._modules['0']._parameters['weight']``."""
    root: str
    """The variable of the function that it begins with."""
    steps: tuple[str, ...]
    """The names that lead from there to the value."""
    in_module: bool
    """Whether it is an attribute of a module."""

    @property
    def path(self) -> str:
        """The path from the variable to the value."""
        return ".".join(self.steps)

    @property
    def size(self) -> tuple[str, int] | None:
        """The expression of a tensor and a dimension, of whose size it is."""
        found = _SIZE.fullmatch(self.text)
        return (found["tensor"], int(found["dim"])) if found else None


def origin_of(placeholder: Node) -> Origin | None:
    """Return where a placeholder comes from, if Dynamo says so."""
    source = getattr(placeholder.meta.get("grapharg"), "source", None)
    text = str(getattr(source, "name", "") or "")
    root = _ROOT.match(text)
    if source is None or root is None:
        return None
    steps = tuple(next(filter(None, found)) for found in _STEP.findall(text[root.end() :]))
    kind = str(getattr(source, "guard_source", ""))
    return Origin(text, root[1], steps, "NN_MODULE" in kind or "FSDP_MODULE" in kind)


def running_modules() -> list[nn.Module]:
    """Return the modules whose calls are going on in this thread, the outermost first."""
    found: list[nn.Module] = []
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        code = frame.f_code
        # Looking at the variables of a frame may keep their values alive until it ends.
        if "self" not in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            continue
        # Dynamo gives a backend no module, but calls it inside the module's call.
        module = frame.f_locals.get("self")
        if isinstance(module, nn.Module) and type(module).__module__ != _COMPILED and module not in found:
            found.append(module)
    return found[::-1]


def stack_entries(node: Node) -> Iterator[tuple[str, str, Any]]:
    """Yield the module calls around a node: variable, path from there, and class."""
    stack = node.meta.get("nn_module_stack")
    for path, owner in stack.values() if isinstance(stack, Mapping) else ():
        if root := _ROOT.match(str(path)):
            yield root[1], str(path)[root.end() :].lstrip("."), owner


def held_sizes(graph: Graph) -> tuple[Mapping[sympy.Symbol, Any], Iterable[sympy.Basic]]:
    """Return the ranges of the symbols in a graph, and the other conditions on them that it relies on."""
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("example_value")
        environment = getattr(getattr(value, "fake_mode", None), "shape_env", None)
        if environment is not None and isinstance(value, torch.Tensor):
            guards = [found for guard in environment.guards if isinstance(found := guard.expr, sympy.Basic)]
            return dict(environment.var_to_range), guards
    return {}, ()
