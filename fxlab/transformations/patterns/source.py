"""Sources of functions that cannot be imported, for the code of a session."""

import ast
import inspect
import math
import operator
import re
import sys
import textwrap
import types

import torch
from torch import nn
from torch.nn import functional

_KNOWN = {"math": math, "operator": operator, "torch": torch, "nn": nn, "F": functional}
"""Modules that a source may use, besides fxlab."""
_IMPORTS = dict.fromkeys(("math", "operator", "torch"), "import {}") | {
    "nn": "from torch import {}",
    "F": "from torch.nn import functional as {}",
}


def definition(function: object) -> str:
    """Return the source of a function that needs only known imports, else ``""``."""
    if not isinstance(function, types.FunctionType) or function.__closure__ is not None:
        return ""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        names = {each.id for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Name)}
    except (OSError, SyntaxError):
        return ""
    known, outer = _KNOWN | {"fxlab": sys.modules.get("fxlab")}, function.__globals__
    is_alone = all(known.get(name) is outer[name] for name in names if name in outer)
    return source if is_alone and source.startswith(f"def {function.__name__}(") else ""


def imports_of(text: str) -> list[str]:
    """Return the imports that a text needs besides fxlab."""
    return [line.format(name) for name, line in _IMPORTS.items() if re.search(rf"(?<![\w.]){name}\.", text)]
