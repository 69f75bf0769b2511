"""Patterns of torch's matcher as expressions of operators and inputs; all private parts are read here."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from fxlab.operators.node_info import function_text

_ANY, _UNNAMED = "Ignored", "Arg"
"""Parts that match any value: one that is ignored, and one that is passed on without a name."""


class _Operator:
    """Stands for an operator in a graph to look at."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name.rpartition(".")[2]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to run."""
        raise RuntimeError("The graph of a pattern cannot be run.")


def parts_of(pattern: Any) -> Iterator[Any]:
    """Yield the parts of a pattern, each once, inputs first."""
    seen: set[int] = set()

    def walk(part: Any) -> Iterator[Any]:
        if id(part) in seen or not _is_part(part):
            return
        seen.add(id(part))
        inner = [getattr(part, name, None) for name in ("pattern", "inner_pattern")]
        flat = getattr(part, "flat_args_kwargs", ((),))[0]
        for other in (*flat, *getattr(part, "outputs", ()), *inner):
            yield from walk(other)
        yield part

    yield from walk(pattern)


def is_operator(part: Any) -> bool:
    """Tell whether a part of a pattern matches a call; some that match any value have users too."""
    return hasattr(part, "users") and hasattr(part, "fns")


def names_of(pattern: Any) -> tuple[str, ...]:
    """Return the operators of a part of a pattern, any of which matches."""
    functions = [*getattr(pattern, "fns", ())]
    packets = {id(function) for function in functions if isinstance(function, torch._ops.OpOverloadPacket)}
    names = (
        function if isinstance(function, str) else function_text(function)
        for function in functions
        if id(getattr(function, "overloadpacket", None)) not in packets
    )
    return tuple(dict.fromkeys(names))


def written(pattern: Any) -> str:
    """Return a pattern as torch writes patterns."""
    try:
        run: Any = import_module("torch._inductor.pattern_matcher").PatternPrettyPrinter.run
        return str(getattr(run, "__wrapped__", run)(pattern))
    except Exception:  # some patterns have no such text
        return repr(pattern)


def graph_of(pattern: Any, title: str) -> GraphModule:
    """Return a pattern as a graph to look at: its inputs, operators and constants.

    A choice of operators becomes the first of them; a list of any length has one element; an ignored value is
    ``...``.
    """
    graph, made = Graph(), dict[int, Any]()
    inputs: dict[str, Node] = {}
    for part in parts_of(pattern):
        kind, name = type(part).__name__, getattr(part, "name", "argument")
        if kind == _ANY:
            made[id(part)] = ...
        elif kind == _UNNAMED or (hasattr(part, "name") and not hasattr(part, "fns")):
            # A name that comes twice is one value.
            known = None if kind == _UNNAMED else inputs.get(name)
            node = made[id(part)] = inputs[name] = known or graph.placeholder(name)
            node.target = node.name

    def value(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: value(one) for key, one in part.items()}
        if isinstance(part, list | tuple):
            return type(part)(map(value, part))
        if not _is_part(part):
            return part
        if id(part) not in made:
            made[id(part)] = called(part)
        return made[id(part)]

    def called(part: Any) -> Any:
        if hasattr(part, "outputs"):
            return tuple(value(one) for one in part.outputs)
        if hasattr(part, "inner_pattern"):
            return value(part.inner_pattern)
        if not hasattr(part, "fns"):
            return [value(part.pattern)]
        args, kwargs = (value(getattr(part, kind, empty)) for kind, empty in (("args", ()), ("kwargs", {})))
        target = next(iter(part.fns))
        if inspect.ismethod(target):  # a graph cannot import it by name
            target = _Operator(names_of(part)[0])
        op = "call_method" if part.op == "call_method" else "call_function"
        name = getattr(getattr(target, "overloadpacket", target), "__name__", None)
        return graph.create_node(op, target, tuple(args), kwargs, name)

    graph.output(value(pattern))
    return GraphModule(nn.Module(), graph, class_name=re.sub(r"\W+", "_", title).strip("_") or "Pattern")


def _is_part(value: Any) -> bool:
    return hasattr(value, "pattern_eq")
