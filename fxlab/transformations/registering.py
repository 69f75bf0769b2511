"""Passes that a process offers in all of its sessions."""

from __future__ import annotations

import functools
from typing import Any

from fxlab.transformations.as_pass import as_pass
from fxlab.transformations.registry import REGISTERED, available, installed


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
