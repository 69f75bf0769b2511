"""The Python files that a model is written in, and the names in them.

A name may stand for anything, also for something that raises when it is asked for an attribute, as parts of a
package that is not installed do. So files and classes are read by the methods of Python's own classes.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from torch import nn

from fxlab.models.python_read import classes_of
from fxlab.values.containers import is_a


def files_of(model: nn.Module) -> list[ModuleType]:
    """Return the Python modules in which the classes of a model's modules are written, without torch's."""
    names = {*map(file_of, classes_of(model))}
    files = [sys.modules.get(name) for name in sorted(names) if not is_torch(name)]
    return [file for file in files if is_a(file, ModuleType)]


def file_of(cls: type) -> str:
    """Return the name of the Python module that a class is written in, ``""`` if it does not say."""
    name = type.__getattribute__(cls, "__module__")
    return name if type(name) is str else ""


def is_torch(name: str) -> bool:
    """Tell whether a Python module is torch's, or Python's own."""
    return name.partition(".")[0] in ("torch", "builtins")


def names_in(owner: ModuleType | type) -> dict[str, Any]:
    """Return the values of the names in a Python module or a class."""
    read = type.__getattribute__ if is_a(owner, type) else object.__getattribute__
    return dict(read(owner, "__dict__"))
