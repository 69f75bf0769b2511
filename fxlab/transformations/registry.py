"""The passes that the inspector offers: fxlab's own, and those of other packages that are installed."""

import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fxlab.transformations import passes
from fxlab.transformations.base import Transformation
from fxlab.transformations.named_passes import Passes

GROUP = "fxlab.transformations"
"""The group of entry points by which other packages offer transformations."""


def available() -> list[type[Transformation]]:
    """Return the classes of fxlab's own passes that the inspector offers, in the order of their application.

    What other packages offer is in :func:`installed`.

    Examples
    --------
    >>> [pass_().name for pass_ in available()][:2]
    ['remove-dead-code', 'remove-identities']
    """
    return [getattr(passes, name) for name in passes.OFFERED]


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
    taken: set[str] = {name for cls in available() for name in _names(cls())}
    for entry_point in sorted(entry_points(group=GROUP), key=lambda found: (found.name, found.value)):
        try:
            transformation = _loaded(entry_point)
            names = set(_names(transformation))
            if not taken.isdisjoint(names):
                raise ValueError(f"there is a transformation {transformation.name!r} already")
        except Exception as error:
            _warn(entry_point, error)
            continue
        offered.append(transformation)
        taken |= names
    return offered


REGISTERED: dict[str, Transformation] = {}
"""Those that :func:`fxlab.register` was given in this process, by name."""


def offered() -> Passes:
    """Return all passes that sessions offer by default, lowest in the stack first; see its ``table``."""
    return Passes([*(cls() for cls in available()), *installed(), *REGISTERED.values()])


def _loaded(entry_point: EntryPoint) -> Transformation:
    loaded: Any = entry_point.load()
    if isinstance(loaded, type) and issubclass(loaded, Transformation):
        loaded = loaded()
    if not isinstance(loaded, Transformation):
        what = f"the class {loaded.__name__}" if isinstance(loaded, type) else f"a {type(loaded).__name__}"
        raise TypeError(f"expected an fxlab.Transformation or a class of one, got {what}")
    return loaded


def _names(transformation: Transformation) -> Iterator[str]:
    """Yield what a session knows a transformation by."""
    yield str(transformation.name)
    yield transformation.signature


def _warn(entry_point: EntryPoint, error: Exception) -> None:
    package = "" if entry_point.dist is None else f" of {entry_point.dist.name}"
    warnings.warn(
        f"The transformation {entry_point.name!r}{package} ({entry_point.value}) is left out: "
        f"{type(error).__name__}: {error}",
        stacklevel=3,
    )
