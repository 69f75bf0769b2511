"""The source of a pattern: Python written from nodes, and compiled."""

import ast
import inspect
import keyword
import linecache
import math
import operator
import re
import sys
import textwrap
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.nn import functional

from fxlab.base.checks import describe
from fxlab.base.torch_private import OpOverload, OpOverloadPacket, pytree
from fxlab.models.graph_modules.free_paths import variants
from fxlab.operators import function_of, operator_of
from fxlab.operators.node_info import function_text, known_result
from fxlab.operators.operator import setting_of
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.calls.graph_index import GraphIndex, is_guard
from fxlab.transformations.patterns.pattern import either

_INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.matmul: "@", operator.pow: "**", operator.mod: "%",
}  # fmt: skip
_LAYERS = {"matmul": "torch.matmul"} | {
    name: f"torch.nn.functional.{name}" for name in ("linear", "layer_norm", "batch_norm")
}
"""Functions for layers that decomposed graphs write as several nodes."""


_KNOWN = {"math": math, "operator": operator, "torch": torch, "nn": nn, "F": functional}
"""Modules that a source may use, besides fxlab."""
_IMPORTS = dict.fromkeys(("math", "operator", "torch"), "import {}") | {
    "nn": "from torch import {}",
    "F": "from torch.nn import functional as {}",
}
_FILE = "<fxlab pattern "


def compiled(source: str, name: str) -> Any:
    """Return an object by name from a source written here; ``inspect.getsource`` finds it."""
    file = f"{_FILE}{abs(hash(source)):x}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    in_fxlab = types.SimpleNamespace(either=either)
    namespace: dict[str, Any] = {"torch": torch, "operator": operator, "math": math, "fxlab": in_fxlab}
    exec(compile(source, file, "exec"), namespace)
    return namespace[name]


def definition(function: object) -> str:
    """Return the source of a function that needs only known imports, else ``""``."""
    if not isinstance(function, types.FunctionType) or function.__closure__ is not None:
        return ""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        names = {each.id for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Name)}
    except (OSError, SyntaxError):
        return ""
    known, outer = _KNOWN | {"fxlab": sys.modules.get("fxlab")}, function.__globals__
    is_alone = all(known.get(name) is outer[name] for name in names if name in outer)
    is_ours = function.__code__.co_filename.startswith(_FILE)
    return source if (is_alone or is_ours) and source.startswith(f"def {function.__name__}(") else ""


def imports_of(text: str) -> list[str]:
    """Return the imports that a text needs besides fxlab."""
    return [line.format(name) for name, line in _IMPORTS.items() if re.search(rf"(?<![\w.]){name}\.", text)]


class Source:
    """Writes a function of nodes.

    Parameters
    ----------
    facts
        The facts about their graph.
    nodes
        The nodes, in the order of the graph.
    index
        The calls of the graph; layers that are decomposed are written as one.
    """

    def __init__(self, facts: GraphFacts, nodes: Sequence[Node], index: GraphIndex) -> None:
        self._facts = facts
        self._layers = {
            node: term
            for node in nodes
            if (term := index.calls.term(node)) is not None and term.name in _LAYERS and len(term.nodes) > 1
        }
        inner = {each for term in self._layers.values() for each in term.nodes[1:]}
        own = {*nodes}
        written = [node for node in nodes if node not in inner]
        read = [
            node for node in written if any(user not in own and not is_guard(user) for user in node.users)
        ]
        self._returns = read or written[-1:]
        self._nodes = self._needed(written)
        self._names: dict[Any, str] = {}
        self._arguments: dict[str, str] = {}

    def written(self, name: str) -> str:
        """Return the source of the function; ValueError if it cannot be written with functions of torch."""
        lines = list[str]()
        for node in self._nodes:
            call, made = self._call(node), self._name(node)
            lines.append(f"    {made} = {call}")
        results = ", ".join(map(self._text, self._returns))
        given = (f"{each}: {kind}" if kind else each for each, kind in self._arguments.items())
        return "\n".join([f"def {name}({', '.join(given)}):", *lines, f"    return {results}", ""])

    def _needed(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes that the results need: others only check something."""
        needed = {*self._returns}
        for node in reversed(nodes):
            if node in needed:
                term = self._layers.get(node)
                read = node.all_input_nodes if term is None else pytree.tree_leaves(term.args)
                needed.update(each for each in read if isinstance(each, Node))
        return [node for node in nodes if node in needed]

    def _name(self, key: Any, wanted: str | None = None) -> str:
        if key not in self._names:
            plain = re.sub(r"\W", "_", wanted or str(key), flags=re.ASCII).lower()
            plain = f"_{plain}" if plain[:1].isdigit() or keyword.iskeyword(plain) or not plain else plain
            taken = {*self._names.values(), "torch", "operator", "math", "fxlab"}
            self._names[key] = next(name for name in variants(plain) if name not in taken)
        return self._names[key]

    def _argument(self, key: Any, wanted: str, annotation: str = "") -> str:
        if key not in self._names:
            self._arguments[self._name(key, wanted)] = annotation
        return self._names[key]

    def _weight(self, path: str) -> str:
        return self._argument(("weight", path), "_".join(path.split(".")[-2:]), "torch.nn.Parameter")

    def _text(self, value: Any) -> str:
        if isinstance(value, Node):
            if value in self._nodes:
                return self._names[value]
            is_weight = isinstance(self._facts.attribute(value), torch.Tensor)
            if is_weight and value.op == "get_attr":
                return self._weight(str(value.target))
            result = known_result(value)
            is_tensor = result is None or hasattr(result, "dtype")
            return self._argument(value, value.name if is_tensor else f"size_{value.name}")
        if isinstance(value, slice):
            parts = (self._text(each) for each in (value.start, value.stop, value.step))
            return f"slice({', '.join(parts)})"
        if isinstance(value, tuple | list):
            inner = ", ".join(map(self._text, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        return self._constant(value)

    def _constant(self, value: Any) -> str:
        # The ``repr`` of a model's own class may be any Python.
        if value is None or value is ... or type(value) in (bool, int, str, torch.dtype, torch.layout):
            return "..." if value is ... else repr(value)
        if isinstance(value, float):
            number = float(value)
            return repr(number) if math.isfinite(number) else f"float({str(number)!r})"
        if isinstance(value, torch.device | torch.memory_format):
            return f"torch.{value!r}" if isinstance(value, torch.device) else str(value)
        raise ValueError(f"nodes: a pattern cannot hold {describe(value)}.")

    def _call(self, node: Node) -> str:
        if node in self._layers:
            term = self._layers[node]
            given = [self._text(term.args["self"])]
            given += [f"{key}={self._text(each)}" for key, each in term.args.items() if key != "self"]
            return f"{_LAYERS[term.name]}({', '.join(given)})"
        if node.op == "call_module":
            return self._module(node)
        target: Any = node.target
        if not all(
            type(key) is str and key.isidentifier() and not keyword.iskeyword(key) for key in node.kwargs
        ):
            raise ValueError(f"nodes: {node.name} is given an argument whose name is none of Python.")
        args = [self._text(each) for each in node.args]
        named = [f"{key}={self._text(each)}" for key, each in node.kwargs.items()]
        if node.op == "call_method" and not hasattr(torch.Tensor, str(target)):
            raise ValueError(f"nodes: {node.name} calls a method that tensors do not have.")
        if node.op == "call_method":
            return f"{args[0]}.{target}({', '.join([*args[1:], *named])})"
        if target in _INFIX and len(args) == 2:
            return f"{args[0]} {_INFIX[target]} {args[1]}"
        if target is operator.getitem:
            return f"{args[0]}[{self._index(node.args[1])}]"
        if target is getattr and str(node.args[1]).isidentifier():
            return f"{args[0]}.{node.args[1]}"
        called = str(getattr(target, "__name__", ""))
        if getattr(math, called, None) is target:
            return f"math.{called}({', '.join([*args, *named])})"
        if operator_of(node) is None:
            raise ValueError(f"nodes: {node.name} calls a function that is none of torch.")
        return f"{_function(target)}({', '.join([*args, *named])})"

    def _index(self, index: Any) -> str:
        """Return an index as Python writes it between brackets."""
        if isinstance(index, tuple) and len(index) > 1:
            return ", ".join(map(self._index, index))
        if isinstance(index, slice):
            ends = ["" if each is None else self._text(each) for each in (index.start, index.stop)]
            step = "" if index.step is None else f":{self._text(index.step)}"
            return f"{ends[0]}:{ends[1]}{step}"
        return self._text(index)

    def _module(self, node: Node) -> str:
        module = self._facts.module(node)
        called = None if module is None else function_of(type(module))
        if module is None or called is None or called.function is None:
            raise ValueError(f"nodes: {node.name} calls a module that is none of torch.nn.")
        given = [self._text(each) for each in (*node.args, *node.kwargs.values())]
        for name, default in list(called.parameters.items())[1:]:
            value = setting_of(module, name)
            if isinstance(value, torch.Tensor):
                given.append(f"{name}={self._weight(f'{node.target}.{name}')}")
            elif name == "training" or (value is not None and value != default and name != "inplace"):
                given.append(f"{name}={self._text(value)}")
        return f"{_function(called.function)}({', '.join(given)})"


def _function(function: Any) -> str:
    """Return the name of a function in the source."""
    name = str(getattr(function, "__name__", ""))
    if isinstance(function, OpOverload | OpOverloadPacket):
        return f"torch.ops.{function}"
    for prefix, owner in (("torch.nn.functional", functional), ("torch", torch), ("operator", operator)):
        if getattr(owner, name, None) is function:
            return f"{prefix}.{name}"
    return function_text(function)
