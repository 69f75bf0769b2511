"""The Python files that a model is written in."""

from __future__ import annotations

import sys
from types import ModuleType

from torch import nn


def files_of(model: nn.Module) -> list[ModuleType]:
    """Return the Python modules in which the classes of a model's modules are written, without torch's."""
    names = {cls.__module__ for module in model.modules() for cls in type(module).__mro__}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules and not is_torch(name)]


def is_torch(name: str) -> bool:
    """Tell whether a Python module is torch's, or Python's own."""
    return name.partition(".")[0] in ("torch", "builtins")
