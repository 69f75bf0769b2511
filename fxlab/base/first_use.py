"""Imports names of a package on first use, so that one does not cost all others: fxlab and its rooms ask."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import get_data
from typing import TYPE_CHECKING, Any

__all__ = ["import_first", "on_first_use", "pd", "stub_homes"]


def stub_homes(package: str) -> dict[str, str]:
    """Return the names that the stub of a package imports, and the module of each."""
    # Read through the loader, as the package may lie in an archive.
    return _homes(ast.parse(get_data(package, "__init__.pyi") or b"").body)


def on_first_use(package: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return the ``__all__`` of a package and its ``__getattr__``, by its imports for type checkers.

    The file of the package begins with ``if TYPE_CHECKING:`` and imports. None of the names may be that of a
    module of the package, since Python puts the module there as soon as it is imported.
    """
    tree = ast.parse(get_data(package, "__init__.py") or b"")
    (block,) = (each for each in tree.body if isinstance(each, ast.If))
    homes = _homes(block.body)

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_first(package, homes[name], name)

    return sorted(homes), find


def _homes(statements: list[ast.stmt]) -> dict[str, str]:
    homes = dict[str, str]()
    for statement in (each for each in statements if isinstance(each, ast.ImportFrom)):
        home = str(statement.module)
        for each in statement.names:
            names = import_module(home).__all__ if each.name == "*" else [each.name]
            homes.update(dict.fromkeys(names, home))
    return homes


def import_first(package: str, home: str, name: str) -> Any:
    """Return a name of a package from its module, and keep it in the package; a package has modules, too."""
    value = import_module(f"{home}.{name}") if home == package else getattr(import_module(home), name)
    setattr(sys.modules[package], name, value)
    return value


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
    """pandas, imported late: many processes make no table, and its import takes half as long as torch's."""
