"""The Python files that a recorded model is written in, and the names in them.

A name may stand for anything, also for something that raises when it is asked for an attribute, as parts of a
package that is not installed do. So files and classes are read by the methods of Python's own classes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from fxlab.base.exchanged import Make, patched_functions
from fxlab.models.state.python_read import OF_OTHERS, classes_of
from fxlab.values.containers import is_a

PYTHONS = sys.stdlib_module_names - {"__main__"}


def files_of(model: nn.Module) -> list[ModuleType]:
    """Return the Python modules in which the classes of a model's modules are written, without torch's."""
    names = {*map(file_of, classes_of(model))}
    files = [sys.modules.get(name) for name in sorted(names) if package_of(name) not in ("torch", "builtins")]
    return [file for file in files if is_a(file, ModuleType)]


def files_around(model: nn.Module, *others: Any) -> list[ModuleType]:
    """Return the Python files that the code of a model can reach by names, as far as they know torch.

    These are the files of its classes, the files of the names that these import, and so on. ``others``: an
    optimizer or functions that run with it.
    """
    found: dict[int, ModuleType] = {}
    ahead = [*files_of(model), *(file for file in map(_written_in, others) if file is not None)]
    while ahead:
        file = ahead.pop()
        if id(file) not in found and (next_to := _next_to(file)) is not None:
            found[id(file)] = file
            ahead += next_to
    return list(found.values())


def _next_to(file: ModuleType) -> list[ModuleType] | None:
    """Return the files of the names that a file imports, ``None`` if it knows nothing of torch."""
    if not is_a(file, ModuleType) or is_apart(name := _name_in(file)):
        return None
    names = names_in(file)
    if name not in _IMPORTED or _IMPORTED[name][0] != len(names):
        files = {id(other): other for other in map(_written_in, names.values()) if other is not None}
        packages = {package_of(_name_in(other)) for other in files.values()}
        others = [other for other in files.values() if not is_apart(_name_in(other))]
        _IMPORTED[name] = len(names), others if "torch" in packages else None
    return _IMPORTED[name][1]


def knows_torch(name: str | None) -> bool:
    """Tell whether there is a file and it imports torch; of others nobody searches the caches."""
    return name is not None and (name not in sys.modules or _next_to(sys.modules[name]) is not None)


_IMPORTED: dict[str, tuple[int, list[ModuleType] | None]] = {}
"""The results of :func:`_next_to`, with the number of names that there were: a file changes little."""


def file_of(cls: type) -> str:
    """Return the name of the Python module that a class is written in, ``""`` if it does not say."""
    name = type.__getattribute__(cls, "__module__")
    return name if type(name) is str else ""


def names_in(owner: ModuleType | type) -> dict[str, Any]:
    """Return the values of the names in a Python module or a class."""
    read = type.__getattribute__ if is_a(owner, type) else object.__getattribute__
    return dict(read(owner, "__dict__"))


def exchanged_in(
    owners: Iterable[ModuleType], makes: Mapping[int, Make]
) -> Iterator[AbstractContextManager[None]]:
    """Exchange functions under all names that files have for them; ``makes`` by a function's identity."""
    for owner in owners:
        names = {name: makes[id(value)] for name, value in names_in(owner).items() if id(value) in makes}
        if names:
            yield patched_functions(owner, names)


def package_of(name: Any) -> str:
    """Return the package of a Python module's name."""
    return name.partition(".")[0] if type(name) is str else ""


def is_apart(name: str) -> bool:
    """Tell whether a file is torch's or Python's own, or fxlab's."""
    return package_of(name) in OF_OTHERS


def _name_in(file: ModuleType) -> str:
    name = names_in(file).get("__name__")
    return name if type(name) is str else "builtins"


def _written_in(value: Any) -> ModuleType | None:
    """Return the file that a value is, or in which it or its class is written."""
    if is_a(value, ModuleType):
        return value
    if is_a(value, FunctionType):
        name: Any = value.__module__
    else:
        name = file_of(value if is_a(value, type) else type(value))
    return sys.modules.get(name) if type(name) is str else None
