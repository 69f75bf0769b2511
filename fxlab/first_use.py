"""Names of a package that are imported on first use, so that one of them does not cost all others."""

import ast
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import get_data
from typing import TYPE_CHECKING, Any

__all__ = ["found_in", "on_first_use", "pd"]


def on_first_use(package: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return the ``__all__`` of a package and its ``__getattr__``, by its imports for type checkers.

    The file of the package begins with ``if TYPE_CHECKING:`` and imports. None of the names may be that of a
    module of the package, since Python puts the module there as soon as it is imported.
    """
    # Not the file, which is no file in an archive.
    tree = ast.parse(get_data(package, "__init__.py") or b"")
    (block,) = (each for each in tree.body if isinstance(each, ast.If))
    home_of = dict[str, str]()
    for statement in (each for each in block.body if isinstance(each, ast.ImportFrom)):
        home = str(statement.module)
        for each in statement.names:
            names = import_module(home).__all__ if each.name == "*" else [each.name]
            home_of.update(dict.fromkeys(names, home))
    return sorted(home_of), found_in(package, home_of)


def found_in(
    package: str, home_of: Mapping[str, str], change: Callable[[Any], Any] = lambda value: value
) -> Callable[[str], Any]:
    """Return a ``__getattr__`` that imports names from their modules; ``change``: maps an imported value."""

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = change(getattr(import_module(home_of[name]), name))
        setattr(sys.modules[package], name, value)
        return value

    return find


class _Later:
    """A module that is imported when one of its attributes is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


if TYPE_CHECKING:
    import pandas as pd
else:
    pd = _Later("pandas")
    """pandas: many a process makes no table, and importing it takes as long as half of torch."""
