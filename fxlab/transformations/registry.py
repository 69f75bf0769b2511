"""``fxlab.register`` and the passes on offer, found by name by sessions; functions taken as passes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from torch.fx import GraphModule

from fxlab.base.checks import type_error
from fxlab.base.first_use import pd
from fxlab.base.hints import nearest
from fxlab.transformations import passes
from fxlab.transformations.base import Transformation

if TYPE_CHECKING:
    _Tuple: TypeAlias = tuple[Transformation, ...]
else:
    _Tuple = tuple


_LISTED = 5


def no_such_pass(name: str, known: Iterable[str], argument: str = "pass_") -> ValueError:
    """Return the error for the name of a pass that is not on offer, with the nearest one that is."""
    names = [*known]
    if name == "all":
        return ValueError(f"{argument}: there is no pass 'all'. Give each: *session.passes.")
    words = {word for word in name.lower().replace("_", "-").split("-") if len(word) > 1}
    shared = {other: len(words & {*other.split("-")}) for other in names}
    most = max(shared.values(), default=0)
    near = nearest(name.lower(), names) or nearest(name, [n for n in names if most and shared[n] == most], 3)
    if not near and most:
        near = f" Did you mean {' or '.join(repr(n) for n in names if shared[n] == most)}?"
    offered = f"On offer: {', '.join(names) or 'none'}."
    if len(names) > _LISTED:
        offered = f"session.passes.names lists the {len(names)} on offer."
    return ValueError(f"{argument}: there is no pass {name!r}.{near} {offered}")


class Passes(_Tuple):
    """A tuple of passes that finds them by name, too: ``"merge-linears" in session.applied``."""

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(str(each.name) for each in self)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each, by its ``name``: its ``class``, with the package, and its ``description``."""
        rows = {
            str(each.name): (
                f"{type(each).__module__.partition('.')[0]}.{type(each).__name__}",
                " ".join(str(each.description).strip().split("\n\n")[0].split()),
            )
            for each in self
        }
        table = pd.DataFrame.from_dict(rows, orient="index", columns=["class", "description"])
        return table.rename_axis("name")

    def __contains__(self, wanted: object) -> bool:
        return wanted in self.names if isinstance(wanted, str) else tuple.__contains__(self, wanted)

    def __getitem__(self, place: Any) -> Any:
        """Return the pass of a name or at a place."""
        if not isinstance(place, str):
            return super().__getitem__(place)
        if place not in self.names:
            raise KeyError(str(no_such_pass(place, self.names)))
        return self[self.names.index(place)]

    def _repr_html_(self) -> str:
        return str(self.table.to_html())


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
    :func:`from_callable` takes it. Raises TypeError for other values, ValueError for an unknown name.
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
