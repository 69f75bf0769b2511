"""A model that Python code makes, named as ``package.module:name`` or ``file.py:name``."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from fxlab.author_frames import author_line, error_words
from fxlab.command_line.exit_code import CommandError

_NAME_IN_CODE = re.compile(r"(?P<code>.+\.py|[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*(\.[^\W\d]\w*)*)")


def is_named_in_code(text: str) -> bool:
    """Whether a text is of the form ``package.module:name`` or ``file.py:name``."""
    return _NAME_IN_CODE.fullmatch(text) is not None


def made_in_code(text: str, seed: int, *, calls: bool = True) -> Any:
    """Import the code that a text names, and return the object there, or what it returns if it is called.

    ``text``: the module, looked for in the working directory first, or its file; after a colon, the name
    there. A class or a function is called without arguments; a module of ``torch`` is taken as it is.
    ``seed``: of the random numbers that are drawn when the code is imported, and when it is called.
    ``calls``: whether a class or a function is called. Raises CommandError if the code cannot be imported,
    has no such name, or raises.
    """
    import torch

    found = _NAME_IN_CODE.fullmatch(text)
    assert found is not None
    try:
        torch.manual_seed(seed)
        value: Any = _imported(found["code"])
        for part in found["name"].split("."):
            if not hasattr(value, part):
                raise CommandError(f"{text}: there is no {part} in {found['code']}.")
            value = getattr(value, part)
        if isinstance(value, torch.nn.Module) or not callable(value) or not calls:
            return value
        torch.manual_seed(seed)
        return value()
    except CommandError:
        raise
    except Exception as error:
        line = author_line(error)
        place = f" (at {line.place})" if line else ""
        raise CommandError(f"{text}: {error_words(error)}{place}") from error


def _imported(code: str) -> ModuleType:
    """Import a module as a script beside it would; what it imports later is found as well."""
    file = Path(code) if code.endswith(".py") else None
    if file is not None and not file.is_file():
        raise CommandError(f"{code}: there is no such file.")
    folder, name = (str(file.resolve().parent), file.stem) if file else (os.getcwd(), code)
    if folder not in sys.path and not sys.flags.safe_path:
        sys.path.insert(0, folder)
    module = importlib.import_module(name)
    origin = getattr(module, "__file__", None)
    if file is not None and (origin is None or not file.samefile(origin)):
        raise CommandError(
            f"{code}: Python has another module {name}, {origin or 'its own'}. Rename the file."
        )
    return module
