"""The passes on offer, also from packages and this process, and other forms of a pass."""

import functools
import inspect
import os
import warnings
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassBase

from fxlab.checks import described, unexpected
from fxlab.other_names import spelt_alike
from fxlab.plugins import entry_points_of
from fxlab.transformations import passes
from fxlab.transformations.base import Transformation
from fxlab.transformations.pass_names import Passes, find_names, the_one

GROUP = "fxlab.transformations"
"""The group of entry points by which other packages offer transformations."""


def available() -> list[type[Transformation]]:
    """Return the classes of fxlab's own passes that the inspector offers, in the order of their application.

    Passes of other packages are in :func:`installed`.

    Examples
    --------
    >>> [pass_().name for pass_ in available()][:2]
    ['remove-dead-code', 'remove-identities']
    """
    return [getattr(passes, name) for name in passes.ORDER]


def installed() -> list[Transformation]:
    """Return the transformations that other installed packages offer, by the names of their entry points.

    A package offers a transformation, or a class that needs no arguments, by an entry point of the group
    ``fxlab.transformations``. Sessions and the inspector offer it above fxlab's own. One that cannot be
    loaded, that is no transformation, or whose name or signature is taken is left out, with a warning that
    names it.

    Examples
    --------
    In the ``pyproject.toml`` of a package::

        [project.entry-points."fxlab.transformations"]
        faster-gelu = "my_package.passes:FasterGelu"
    """
    offered: list[Transformation] = []
    taken = {text for cls in available() for own in [cls()] for text in (str(own.name), own.signature)}
    for entry_point in entry_points_of(GROUP):
        try:
            loaded = entry_point.load()
            is_class = isinstance(loaded, type) and issubclass(loaded, Transformation)
            made: Any = loaded() if is_class else loaded
            if not isinstance(made, Transformation):
                raise TypeError(f"expected an fxlab.Transformation or a class of one, got {described(made)}")
            names = {str(made.name), made.signature}
            if not taken.isdisjoint(names):
                raise ValueError(f"there is a transformation {made.name!r} already")
        except Exception as error:
            package = "" if entry_point.dist is None else f" of {entry_point.dist.name}"
            warnings.warn(
                f"The transformation {entry_point.name!r}{package} ({entry_point.value}) is left out: "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )
            continue
        offered.append(made)
        taken |= names
    return offered


REGISTERED: dict[str, Transformation] = {}
"""Passes that :func:`fxlab.register` was given in this process, by name."""


def offered() -> Passes:
    """Return all passes that sessions offer by default, lowest in the stack first; see its ``table``."""
    return Passes([*(cls() for cls in available()), *installed(), *REGISTERED.values()])


def as_pass(value: Any, argument: str) -> Transformation:
    """Return a given transformation, or make one.

    ``value``: a transformation, the name of an offered one, or its class; a function of a graph module, a
    ``functools.partial`` of one, or a pass of another project, as :func:`from_callable` takes it; or a
    pattern and its replacement in a tuple. Raises TypeError if it is none of these, or a class needs
    arguments.
    """
    if isinstance(value, Transformation):
        return value
    if isinstance(value, str):
        found = as_passes(value, argument)
        the_one([str(each.name) for each in found], value, argument)
        return found[0]
    if isinstance(value, type):
        if issubclass(value, torch.fx.Transformer):
            return _of_transformer(value)
        if issubclass(value, torch.nn.Module):
            raise unexpected(argument, "transformations or functions", value)
        try:
            return as_pass(value(), argument)
        except TypeError as error:
            raise TypeError(f"{argument}: no pass is made of {described(value)} ({error}).") from error
    from fxlab.transformations.foreign.from_callable import from_callable, is_pattern_matcher

    if isinstance(value, tuple) and len(value) == 2 and all(map(callable, value)):
        from fxlab.transformations.patterns.from_pattern import from_pattern

        return from_pattern(*value)
    if isinstance(value, functools.partial):
        return from_callable(value, name=getattr(value.func, "__name__", None))
    if callable(value) or is_pattern_matcher(value):
        return from_callable(value)
    raise unexpected(argument, "transformations, their names, or functions of a graph module", value)


def as_passes(value: Any, argument: str) -> list[Transformation]:
    """Return the pass of :func:`as_pass`; for a name that means several of one kind, all of them."""
    if not isinstance(value, str):
        return [as_pass(value, argument)]
    known = offered()
    names = find_names(value, known, argument)
    return [each for each in known if each.name in names]


def own_class(name: Any) -> type[Transformation] | None:
    """Return the class of a pass of fxlab that sessions do not offer by default, by name."""
    classes = (getattr(passes, each) for each in passes.__all__) if isinstance(name, str) else ()  # type: ignore[attr-defined]
    others = (each for each in classes if each not in available())
    return next((each for each in others if spelt_alike(name, each.__name__)), None)


_GRAPH_MODULES = "gm", "graph_module", "GraphModule", "fx.GraphModule", "torch.fx.GraphModule", GraphModule
"""Names and annotations of the argument of a pass."""


def is_pass(value: Any) -> bool:
    """Tell whether a value given as a model can only be a pass.

    A function is one if its first argument is named ``gm`` or ``graph_module``, or annotated as such.
    """
    if isinstance(value, type):
        return issubclass(value, Transformation | PassBase | torch.fx.Transformer)
    if isinstance(value, functools.partial):
        return is_pass(value.func)
    if not inspect.isroutine(value):
        return isinstance(value, Transformation | PassBase)
    try:
        first = next(iter(inspect.signature(value).parameters.values()), None)
    except (TypeError, ValueError):
        return False
    return first is not None and (first.name in _GRAPH_MODULES or first.annotation in _GRAPH_MODULES)


def passes_meant(value: Any, on_offer: Passes | None = None) -> list[Any]:
    """Return the passes that an argument can only be meant as: one, its name, or a list of them; or none.

    ``on_offer``: those that a name may be of; left out, those of every session.
    """
    if isinstance(value, list):
        found = [passes_meant(each, on_offer) for each in value if not isinstance(each, list)]
        return [one for each in found for one in each] if len(found) == len(value) and all(found) else []
    if not isinstance(value, str):
        return [value] if is_pass(value) else []
    known = offered() if on_offer is None else on_offer
    return [] if os.path.exists(value) else [*known.meant(value)]


def _of_transformer(cls: type[torch.fx.Transformer]) -> Transformation:
    """Return a pass that takes the result of a torch.fx Transformer."""
    from fxlab.transformations.foreign.from_callable import from_callable

    def transformed(graph_module: GraphModule) -> GraphModule:
        return cls(graph_module).transform()

    transformed.__doc__ = cls.__doc__
    return from_callable(transformed, name=cls.__name__)


def register(pass_: Any = None, *, name: str | None = None) -> Any:
    """Offer a pass in every new session of this process; a decorator.

    Parameters
    ----------
    pass_
        A transformation or its class, or a function of a graph module.
    name
        Its name; left out, that of the function or class. One of the same name is replaced.

    Returns
    -------
    Transformation
        The pass; a decorator, if ``pass_`` is left out or a name.

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
