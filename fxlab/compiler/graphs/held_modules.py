"""The modules that a compiled function or a graph of Dynamo reads, by name, for its session or record."""

import ast
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.fx import GraphModule

from fxlab.base.heard_calls import held_by_closure
from fxlab.compiler.graphs.python_function import owner_of, plain_function
from fxlab.compiler.story.story import function_name
from fxlab.models.graph_modules.parts import variants
from fxlab.tracing.dynamo.torch_private import origin_of
from fxlab.values.containers import namespace_of

_NAME = re.compile(r"\w+")


def holder_of(found: Mapping[str, nn.Module], code: types.CodeType | None) -> nn.Module:
    """Return a module that holds others under the names that a function has for them.

    A single module is returned itself. A module whose method the function is becomes the root, with the
    others next to its attributes. ``found``: by an expression such as ``G['net']`` or ``L['self'].model``,
    each module. ``code``: that of the function.
    """
    modules = {id(module): (expression, module) for expression, module in [*found.items()][::-1]}
    if len(modules) == 1:
        ((_, only),) = modules.values()
        return only
    name = function_name(code.co_name).partition(" ")[0] if code is not None else ""
    first = f"L[{code.co_varnames[0]!r}]" if code is not None and code.co_varnames else ""
    holder: nn.Module = type(name if name.isidentifier() else "Function", (nn.Module,), {})()
    for expression, module in sorted(modules.values(), key=lambda pair: pair[0] != first):
        if expression == first and hasattr(type(module), name):  # whose method it is
            holder._parameters.update(module._parameters)
            holder._buffers.update(module._buffers)
            holder._modules.update(module._modules)
            continue
        taken = {*holder._modules, *holder._parameters, *holder._buffers, *dir(nn.Module)}
        wishes = variants(_NAME.findall(expression)[-1])
        holder._modules[next(free for free in wishes if free not in taken)] = module
    return holder


def paths_of(found: Mapping[str, nn.Module], model: nn.Module) -> dict[str, str]:
    """Return where a model holds modules, by the expressions that a function has for them."""
    paths = {id(module): path for path, module in model.named_modules()}
    # The parts of a module whose method the function is are held by the model itself.
    return {expression: paths.get(id(module), "") for expression, module in found.items()}


def modules_read_by(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, nn.Module]:
    """Return the modules that a callable may read: its object's, those of closure and globals, arguments."""
    code_of = plain_function(function)
    owner = owner_of(function)
    values = [(f"L[{name!r}]", value) for name, value in given.items()]
    if owner is not None:
        values.append((f"L[{code_of.__code__.co_varnames[0]!r}]", owner))
    values += [(f"L[{name!r}]", value) for name, value in held_by_closure(code_of).items()]
    names = (name for name in code_of.__code__.co_names if name in code_of.__globals__)
    values += [(f"G[{name!r}]", code_of.__globals__[name]) for name in names]
    return {expression: module for one in values for expression, module in _modules_in(*one)}


def _modules_in(expression: str, value: Any) -> Iterator[tuple[str, nn.Module]]:
    held: Iterable[tuple[str, Any]] = ()
    if isinstance(value, nn.Module):
        held = [("", value)]
    elif isinstance(value, list | tuple | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        held = ((f"[{key!r}]", item) for key, item in items)
    elif not isinstance(value, type | types.ModuleType):
        held = ((f".{name}", item) for name, item in getattr(value, "__dict__", {}).items())
    yield from ((f"{expression}{step}", item) for step, item in held if isinstance(item, nn.Module))


_INSIDE = re.compile(r"\._(?:modules|parameters|buffers)\[")


def modules_read(output: Any, graph_module: GraphModule) -> dict[str, nn.Module]:
    """Return the outermost modules whose tensors a graph of Dynamo reads, by the function's expressions."""
    scope = {"L": getattr(output, "local_scope", None), "G": getattr(output, "global_scope", None)}
    found = {}
    for node in graph_module.graph.find_nodes(op="placeholder"):
        origin = origin_of(node)
        if origin is None or not (inside := _INSIDE.search(origin.text)):
            continue
        expression = origin.text[: inside.start()]
        module = _value_of(ast.parse(expression, mode="eval").body, scope)
        if isinstance(module, nn.Module):
            found[expression] = module
    return found


def _value_of(tree: ast.expr, scope: Mapping[str, Any]) -> Any:
    """Return the value of an expression of Dynamo; ``None`` if that would run foreign code."""
    if isinstance(tree, ast.Name):
        return scope.get(tree.id)
    if isinstance(tree, ast.Attribute):
        return namespace_of(_value_of(tree.value, scope)).get(tree.attr)
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.slice, ast.Constant):
        return None
    held, key = _value_of(tree.value, scope), tree.slice.value
    if type(held) in (list, tuple):
        held = dict(enumerate(held))
    return held.get(key) if isinstance(held, dict) else None
