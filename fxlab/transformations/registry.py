"""``fxlab.register`` and the passes on offer; other forms of a pass."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from torch.fx import GraphModule

from fxlab.base.checks import type_error
from fxlab.transformations import passes
from fxlab.transformations.base import Transformation
from fxlab.transformations.pass_names import Passes, no_such_pass

Pass: TypeAlias = Transformation | Callable[[GraphModule], Any] | str
"""A pass: a transformation, a function of a graph module, or the exact name of one on offer."""

_EXPECTED = "a transformation, its name, or a function of a graph module"


def available() -> list[type[Transformation]]:
    """Return the classes of fxlab's own passes that the inspector offers, in the order of their application.

    Examples
    --------
    >>> [pass_().name for pass_ in available()][:2]
    ['remove-dead-code', 'remove-identities']
    """
    return [getattr(passes, name) for name in passes.ORDER]


REGISTERED: dict[str, Transformation] = {}
"""Passes that :func:`fxlab.register` was given in this process, by name."""


def offered() -> Passes:
    """Return all passes that sessions offer by default, lowest in the stack first; see its ``table``."""
    return Passes([*(cls() for cls in available()), *REGISTERED.values()])


def as_pass(value: Any, argument: str) -> Transformation:
    """Return a given transformation, or make one.

    ``value``: a transformation; the exact name of an offered one; or a function of a graph module, as
    :func:`from_callable` takes it. Raises TypeError if it is none of these, ValueError if nothing has the
    name.
    """
    if isinstance(value, Transformation):
        return value
    if isinstance(value, str):
        known = offered()
        if value not in known.names:
            raise no_such_pass(value, known.names, argument)
        found: Transformation = known[value]
        return found
    if isinstance(value, type):
        advice = f"Call the class: {value.__name__}(). " if issubclass(value, Transformation) else ""
        raise type_error(argument, _EXPECTED, value, advice)
    if isinstance(value, tuple | list):
        advice = "Write each as an argument: *passes."
        if len(value) == 2 and all(map(inspect.isfunction, value)):
            advice = "Write fxlab.from_pattern(pattern, replacement, name=...)."
        raise type_error(argument, _EXPECTED, value, advice)
    from fxlab.transformations.foreign.from_callable import from_callable, is_pattern_matcher

    if isinstance(value, functools.partial):
        return from_callable(value, name=getattr(value.func, "__name__", None))
    if callable(value) or is_pattern_matcher(value):
        return from_callable(value)
    raise type_error(argument, _EXPECTED, value)


def register(pass_: Transformation) -> Transformation:
    """Offer a pass in every new session of this process.

    Parameters
    ----------
    pass_
        A transformation. It replaces a registered one of its name.

    Returns
    -------
    Transformation
        The pass.

    Raises
    ------
    TypeError
        If it is no transformation.
    ValueError
        If fxlab has one of its name.

    Examples
    --------
    >>> from fxlab.transformations import from_callable
    >>> def drop_nothing(graph_module):
    ...     return graph_module
    >>> drop_nothing = register(from_callable(drop_nothing))
    >>> offered()[-1] is drop_nothing
    True
    >>> REGISTERED.clear()
    """
    given: Any = pass_
    if not isinstance(given, Transformation):
        advice = "Make one of a function: fxlab.from_callable(function)." if callable(pass_) else ""
        raise type_error("pass_", "an fxlab.Transformation", given, advice)
    if any(pass_.name == cls().name for cls in available()):
        raise ValueError(
            f"pass_: there is a transformation {pass_.name!r} already. Give it another: pass_.named('other')."
        )
    REGISTERED[str(pass_.name)] = pass_
    return pass_
