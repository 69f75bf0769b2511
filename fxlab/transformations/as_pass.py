"""Whatever people take for a pass as a transformation; passes that a process offers in all sessions."""

from __future__ import annotations

import functools
from typing import Any

from fxlab.checks import described
from fxlab.transformations.base import Transformation
from fxlab.transformations.pass_names import find_name
from fxlab.transformations.registry import REGISTERED, available, installed


def as_pass(value: Any, argument: str) -> Transformation:
    """Return a transformation as it is, or make one.

    ``value``: a transformation, the name of an offered one, or its class; a function of a graph module, a
    ``functools.partial`` of one, or a pass of another project, as :func:`from_callable` takes it; or a
    pattern and its replacement in a tuple. Raises TypeError if it is none of these, or a class needs
    arguments.
    """
    if isinstance(value, Transformation):
        return value
    if isinstance(value, str):
        from fxlab.transformations.registry import offered

        known = {str(pass_.name): pass_ for pass_ in offered()}
        return known[find_name(value, list(known), argument)]
    if isinstance(value, type):
        if not issubclass(value, Transformation):
            raise TypeError(f"{argument}: expected transformations or functions, got {described(value)}.")
        try:
            return value()
        except TypeError as error:
            raise TypeError(
                f"{argument}: {value.__name__} needs arguments ({error}). Make one of it."
            ) from error
    from fxlab.transformations.foreign.from_callable import from_callable, is_pattern_matcher

    if isinstance(value, tuple) and len(value) == 2 and all(map(callable, value)):
        from fxlab.transformations.patterns.from_pattern import from_pattern

        return from_pattern(*value)
    if isinstance(value, functools.partial):
        return from_callable(value, name=getattr(value.func, "__name__", None))
    if callable(value) or is_pattern_matcher(value):
        return from_callable(value)
    raise TypeError(
        f"{argument}: expected transformations, their names, or functions of a graph module, "
        f"got {described(value)}."
    )


def register(pass_: Any = None, *, name: str | None = None) -> Any:
    """Let every session that is made from now on in this process offer a pass; a decorator.

    Parameters
    ----------
    pass_
        A transformation or its class, or a function of a graph module.
    name
        Its name; left out, that of the function or class. One of the same name is replaced.

    Returns
    -------
    Transformation
        The pass; a function that takes it, if ``pass_`` is left out or a name.

    Raises
    ------
    TypeError
        If it is no pass.
    ValueError
        If fxlab or an installed package offers one of its name.

    Examples
    --------
    >>> from fxlab.transformations.registry import offered
    >>> @register
    ... def drop_nothing(graph_module):
    ...     return graph_module
    >>> offered()[-1] is drop_nothing
    True
    >>> REGISTERED.clear()
    """
    if pass_ is None or isinstance(pass_, str):
        return functools.partial(register, name=name or pass_)
    made = as_pass(pass_, "pass_")
    made = made if name is None else made.named(name)
    if any(made.name == other.name for other in (*(cls() for cls in available()), *installed())):
        raise ValueError(f"name: there is a transformation {made.name!r} already. Give it another name.")
    REGISTERED[str(made.name)] = made
    return made
