"""A session's stack of passes as Python code that makes it again."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import sys
from collections.abc import Sequence
from typing import Any

import torch

from fxlab.base.first_use import stub_homes
from fxlab.transformations import RewritePass, Transformation
from fxlab.transformations.candidate_filter import Limit
from fxlab.transformations.patterns.pattern_pass import PatternPass
from fxlab.transformations.signature import arguments_of

_SESSION = """\
session = fxlab.Session(model, inputs, passes=passes)
for transformation in passes:
    session.apply(transformation)
"""


class CannotBeWrittenError(ValueError):
    """A value that cannot be written as code."""


class Imports:
    """The imports of generated code."""

    def __init__(self) -> None:
        self.needs_torch = False
        self._origins: dict[str, tuple[str, str]] = dict.fromkeys(("fxlab", "torch"), ("", ""))
        """A name in the code -> the module and the name in it that it is imported from."""

    def name_of(self, module: str, name: str) -> str:
        """Import a class or function, and return its name in the code."""
        outer, dot, rest = name.partition(".")
        alias, number = outer, 1
        origin = (module, outer)
        while self._origins.setdefault(alias, origin) != origin:
            number += 1
            alias = f"{outer}_{number}"
        return f"{alias}{dot}{rest}"

    @property
    def lines(self) -> list[str]:
        """The statements."""
        wanted = sorted((*origin, alias) for alias, origin in self._origins.items() if origin[0])
        # Not `import module`: a package may hold a function of its submodule's name.
        others = (
            f"from {module} import {name}" + (f" as {alias}" if alias != name else "")
            for module, name, alias in wanted
        )
        return ["import fxlab", *(["import torch"] if self.needs_torch else []), *others]


def stack_code(transformations: Sequence[Transformation]) -> str:
    """Return code that applies transformations to a ``model`` with ``inputs`` in a new session.

    A transformation that cannot be written as code, such as one with a lambda, becomes a failing assertion.
    """
    imports = Imports()
    passes: list[str] = []
    missing: list[str] = []
    for transformation in transformations:
        try:
            passes.append(constructed(transformation, imports))
        except CannotBeWrittenError as error:
            passes.append(f"missing_{len(missing) + 1}")
            # The words are a literal: a name from a model or a page must not become code.
            missing.append(f"raise NotImplementedError({f'{passes[-1]}: {error}'!r})")
    lines = [
        "# model and inputs are yours: what the session was made of.",
        *imports.lines,
        "",
        *missing,
        "passes = [",
        *(f"    {text}," for text in passes),
        "]",
        _SESSION,
    ]
    return "\n".join(lines)


def constructed(transformation: Transformation, imports: Imports) -> str:
    """Return a call that makes an equal transformation, which is checked by running it."""
    limit = getattr(transformation, "limited_to", None)
    if isinstance(transformation, RewritePass) and limit is not None:
        return _limited(transformation, limit, imports)
    if isinstance(transformation, PatternPass):
        return _from_pattern(transformation, imports)
    if "name" in vars(transformation) and (text := _named_otherwise(transformation, imports)):
        return text
    cls = type(transformation)
    known = arguments_of(transformation)
    given = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if name in known and not _is_default(known[name], parameter):
            given[name] = known[name]
    try:
        is_same = cls(**given).signature == transformation.signature
    except Exception:
        is_same = False
    if not is_same:
        raise CannotBeWrittenError(f"the arguments of {transformation.name} are not known; make it here")
    arguments = ", ".join(f"{name}={_written(value, imports)}" for name, value in given.items())
    return f"{_named(cls, imports)}({arguments})"


def _from_pattern(made: PatternPass, imports: Imports) -> str:
    patterns = [_written(each, imports) for each in made.patterns]
    given = [patterns[0] if len(patterns) == 1 else f"[{', '.join(patterns)}]"]
    given.append(_written(made.replacement, imports))
    conditions = (f"{words!r}: {_written(condition, imports)}" for words, condition in made.where.items())
    given += [f"where={{{', '.join(conditions)}}}"] if made.where else []
    given += [f"name={made.name!r}"]
    given += ["preserves_computation=True"] if made.preserves_computation else []
    return f"fxlab.from_pattern({', '.join(given)})"


def _limited(transformation: RewritePass[Any], limit: Limit, imports: Imports) -> str:
    """Return a call that makes a pass which excludes candidates."""
    whole = copy.copy(transformation)
    object.__setattr__(whole, "limited_to", None)
    text, again = constructed(whole, imports), whole
    for method, nodes in (("only", limit.only), ("exclude", limit.excluded)):
        if nodes:
            again = getattr(again, method)(*sorted(nodes), missing_ok=limit.missing_ok)
            names = ", ".join(map(repr, sorted(nodes)))
            text += f".{method}({names}{', missing_ok=True' if limit.missing_ok else ''})"
    if again.signature != transformation.signature:
        raise CannotBeWrittenError(f"what {transformation.name} excludes is not known; make it here")
    return text


def _named_otherwise(transformation: Transformation, imports: Imports) -> str:
    """Return a call that makes a transformation and names it; without a name if its class gives it."""
    whole = copy.copy(transformation)
    del vars(whole)["name"]
    try:
        text = constructed(whole, imports)
    except CannotBeWrittenError:
        return ""
    is_same = whole.named(transformation.name).signature == transformation.signature
    return f"{text}.named({transformation.name!r})" if is_same else ""


def _is_default(value: object, parameter: inspect.Parameter) -> bool:
    default = parameter.default
    return default is value or (
        default is not parameter.empty
        and type(default) is type(value)
        and isinstance(value, bool | int | float | str | tuple | None)
        and default == value
    )


def _written(value: Any, imports: Imports) -> str:
    if isinstance(value, Transformation):
        return constructed(value, imports)
    if isinstance(value, torch.dtype):
        imports.needs_torch = True
        return str(value)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        items = [_written(item, imports) for item in value]
        if isinstance(value, list):
            return f"[{', '.join(items)}]"
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if inspect.isclass(value) or inspect.isroutine(value):
        return _named(value, imports)
    text = repr(value)
    try:
        if ast.literal_eval(text) == value:
            return text
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    raise CannotBeWrittenError(f"a {type(value).__name__} has no code; make the transformation here")


def _named(value: Any, imports: Imports) -> str:
    """Return the name by which a class or a function is found, and note its import."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    found: Any = None
    if module:
        home = stub_homes("fxlab").get(name)
        if home is not None and getattr(sys.modules.get(home), name, None) is value:
            return f"fxlab.{name}"
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part, None)
    if found is not value:
        raise CannotBeWrittenError(f"{name or value!r} cannot be imported; make the transformation here")
    if module in ("__main__", "builtins"):
        return str(name)
    return imports.name_of(str(module), name)
