"""Dynamo's private notes on a captured graph: sources, breaks, modules; for captures and the compiler.

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
from torch.fx import Graph, GraphModule, Node

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


@dataclass(frozen=True)
class GraphBreak:
    """A place at which Dynamo ended a graph and went on in Python.

    Examples
    --------
    >>> print(GraphBreak("Call to print", "Call to print ...", "model.py", 7, "print(x)"))
    Call to print (model.py:7: print(x))
    """

    reason: str
    """Why, in one line."""
    details: str
    """All that Dynamo says about it, hints included."""
    file: str = ""
    line: int = 0
    code: str = ""
    """The line of Python that it could not capture."""

    @property
    def place(self) -> str:
        """File and line, if they are known."""
        return f"{self.file}:{self.line}" if self.file else ""

    def __str__(self) -> str:
        place = ": ".join(filter(None, (self.place, self.code)))
        return f"{self.reason} ({place})" if place else self.reason


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


def break_after(graph_module: GraphModule) -> GraphBreak | None:
    """Return the break that has ended a graph, if one has."""
    return graph_break(getattr(graph_module, "compile_subgraph_reason", None))


def reasons_noted() -> list[Any]:
    """Return Dynamo's notes of graph breaks in this process, also of breaks without a graph before them."""
    return [*(getattr(sys.modules.get("torch._dynamo.utils"), "graph_break_reasons", None) or ())]


def graph_break(reason: Any) -> GraphBreak | None:
    """Return the break that Dynamo's note is about, if it is about one."""
    if not getattr(reason, "graph_break", False):
        return None
    details = str(getattr(reason, "reason", "")).strip()
    first = details.partition("\n")[0]
    frames = list(getattr(reason, "user_stack", None) or ())
    if not frames:
        return GraphBreak(first, details)
    return GraphBreak(first, details, frames[-1].filename, frames[-1].lineno or 0, frames[-1].line or "")


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
