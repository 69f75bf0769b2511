"""What the metadata of a node says about where it comes from."""

from __future__ import annotations

import linecache
import re
from typing import Any

import torch
from torch import fx, nn

from fxlab.values.nested import ObjectParts, tensors_inside
from fxlab.values.tensors import known_number
from fxlab.view_model.wire import clip

_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]*)$', re.M)
_PUBLIC_MODULES = {"_operator": "operator", "builtins": "", "torch._C._nn": "torch.nn.functional"}
_OF_TORCH = "_VariableFunctionsClass."
"""How Python knows functions such as ``torch.cat``."""
MOST_FRAMES = 40
CONTEXT_LINES = 3


def target_text(node: fx.Node) -> str:
    """Return a node's target as the generated code would name it."""
    if isinstance(node.target, str):
        return node.target
    module = str(getattr(node.target, "__module__", "") or "")
    name = str(
        getattr(node.target, "__qualname__", "") or getattr(node.target, "__name__", "") or node.target
    )
    module, name = _PUBLIC_MODULES.get(module, module), name.removeprefix(_OF_TORCH)
    return f"{module}.{name}" if module else name


def module_path_of(node: fx.Node) -> str:
    """Return the path of the module in whose forward the node was recorded; ``""`` if unknown."""
    return _stack(node)[-1][0] if _stack(node) else ""


def class_name_of(node: fx.Node) -> str:
    """Return the qualified class of that module; ``""`` if unknown."""
    if not _stack(node):
        return ""
    found = _stack(node)[-1][1]
    return f"{found.__module__}.{found.__qualname__}" if isinstance(found, type) else str(found)


def class_names_of(node: fx.Node, called: nn.Module | None = None) -> str:
    """Return the bare names of the classes around a node, and of that of the module that it calls."""
    classes = [found.__qualname__ if isinstance(found, type) else str(found) for _, found in _stack(node)]
    if called is not None:
        classes.append(type(called).__qualname__)
    return clip(" ".join(dict.fromkeys(name.rpartition(".")[2] for name in classes)), 1_000)


def value_rows(node: fx.Node) -> list[tuple[str, str]]:
    """Return shape and dtype of each tensor in a node's result, as traced."""
    value = node.meta.get("val", node.meta.get("tensor_meta"))
    return [] if value is None else _value_rows(value)


def frames_of(node: fx.Node) -> list[dict[str, Any]]:
    """Return the source lines that made a node, the innermost first."""
    text = str(node.meta.get("stack_trace") or "")
    frames = []
    for found in list(_FRAME.finditer(text))[-MOST_FRAMES:]:
        code = text[found.end() :].lstrip("\n").split("\n", 1)[0].strip()
        line = int(found["line"])
        code = "" if code.startswith("File ") else code
        frames.append({"file": found["file"], "line": line, "function": found["function"], "code": code})
    return frames[::-1]


def excerpt(file: str, line: int) -> list[dict[str, Any]]:
    """Return the lines of Python source around a line, or nothing if they cannot be read."""
    if not file.endswith(".py"):
        return []
    lines = linecache.getlines(file)
    if not 0 < line <= len(lines):
        return []
    first = max(1, line - CONTEXT_LINES)
    window = lines[first - 1 : line + CONTEXT_LINES]
    return [{"line": first + i, "text": text.rstrip("\n")[:300]} for i, text in enumerate(window)]


def _stack(node: fx.Node) -> list[tuple[str, Any]]:
    stack = node.meta.get("nn_module_stack") or {}
    entries = stack.values() if isinstance(stack, dict) else ()
    return [(str(e[0]), e[1]) for e in entries if isinstance(e, tuple) and len(e) == 2 and e[0]]


def _value_rows(value: Any) -> list[tuple[str, str]]:
    shape = getattr(value, "shape", None)
    if shape is not None:
        sizes = ", ".join(str(known_number(size)) for size in shape)
        return [(f"({sizes})", str(getattr(value, "dtype", "")))]
    if isinstance(value, list | tuple):
        return [row for item in value for row in _value_rows(item)][:50]
    if isinstance(value, ObjectParts):
        return [row for _, tensor in tensors_inside(value) for row in _value_rows(tensor)][:50]
    if isinstance(value, dict):
        return [row for item in value.values() for row in _value_rows(item)][:50]
    if isinstance(value, bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
        return [(str(known_number(value)), type(value).__name__)]
    return [] if value is None else [("", type(value).__name__)]
