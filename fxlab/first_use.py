"""Names of a package that are imported on first use, so that one of them does not cost all others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_first_use(
    package: str, homes: Mapping[str, str], change: Callable[[Any], Any] = lambda value: value
) -> tuple[list[str], Callable[[str], Any]]:
    """Return the ``__all__`` of a package and its ``__getattr__``, which imports a name when asked for it.

    ``homes``: module of the package -> the names that it has, separated by blanks. None may be that of a
    module of the package, since Python puts the module there as soon as anybody imports it. ``change``: what
    a name stands for here, of what it is there.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = change(getattr(import_module(f"{package}.{home_of[name]}"), name))
        setattr(sys.modules[package], name, value)
        return value

    return sorted(home_of), find
