"""The modules that a compiled function reads, as one module with their names, for sessions and records."""

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from fxlab.base.checks import type_error
from fxlab.base.heard_calls import held_by_closure
from fxlab.compiler.story.story import function_name
from fxlab.models.graph_modules.parts import variants

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


def plain_function(function: Callable[..., Any]) -> types.FunctionType:
    """Return the Python function that an object calls; ``TypeError`` if it is not written in Python."""
    known: Any = getattr(function, "__func__", function)
    if not isinstance(known, types.FunctionType):
        known = vars(type(known)).get("__call__")
    if not isinstance(known, types.FunctionType):
        raise type_error("model", "a module or a function of Python", function)
    return known


def owner_of(function: Callable[..., Any]) -> Any:
    """Return the object whose method a callable is, or that is called; ``None`` for a function."""
    return getattr(function, "__self__", None if plain_function(function) is function else function)


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
