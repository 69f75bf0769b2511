"""Models that a text names, for sources and commands: an object in Python code, a configuration in a file."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fxlab.base.author_frames import placed_words
from fxlab.base.words import error_words

if TYPE_CHECKING:
    import torch

_NAME_IN_CODE = re.compile(r"(?P<code>.+\.py|[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*(\.[^\W\d]\w*)*)")
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "pytorch_model.bin.index.json")


def is_named_in_code(text: str) -> bool:
    """Whether a text is of the form ``package.module:name`` or ``file.py:name``."""
    return _NAME_IN_CODE.fullmatch(text) is not None


def made_in_code(text: str, seed: int, *, calls: bool = True) -> Any:
    """Import the code that a text names, and return the object there, or its result if it is called.

    ``text``: the module, looked for in the working directory first, or its file; after a colon, the name
    there. A class or a function is called without arguments; a module of ``torch`` is taken as it is.
    ``seed``: of the random numbers that are drawn when the code is imported, and when it is called.
    ``calls``: whether a class or a function is called. ValueError if the code raises or lacks the name.
    """
    import torch

    found = _NAME_IN_CODE.fullmatch(text)
    assert found is not None
    torch.manual_seed(seed)
    try:
        value: Any = _imported(found["code"])
        for part in found["name"].split("."):
            if not hasattr(value, part):
                raise _NotNamedError(f"{text}: there is no {part} in {found['code']}.")
            value = getattr(value, part)
        if isinstance(value, torch.nn.Module) or not callable(value) or not calls:
            return value
        torch.manual_seed(seed)
        return value()
    except _NotNamedError:
        raise
    except Exception as error:
        raise ValueError(f"{text}: {placed_words(error)}") from error


class _NotNamedError(ValueError):
    """The code is not where the text says."""


def _imported(code: str) -> ModuleType:
    """Import a module as a script in its folder would; its later imports are found as well."""
    file = Path(code) if code.endswith(".py") else None
    if file is not None and not file.is_file():
        raise _NotNamedError(f"{code}: there is no such file.")
    folder, name = (str(file.resolve().parent), file.stem) if file else (os.getcwd(), code)
    if folder not in sys.path and not sys.flags.safe_path:
        sys.path.insert(0, folder)
    module = importlib.import_module(name)
    origin = getattr(module, "__file__", None)
    if file is not None and (origin is None or not file.samefile(origin)):
        raise _NotNamedError(
            f"{code}: Python has another module {name}, {origin or 'its own'}. Rename the file."
        )
    return module


def configuration(path: Path) -> Any:
    """Read a configuration of transformers from ``config.json``, or the folder that has it."""
    from transformers import CONFIG_MAPPING

    file = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{error_words(error)} ({file})") from error
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise ValueError(f"{file}: expected a configuration of transformers, with a model_type.")
    if values["model_type"] not in CONFIG_MAPPING:
        raise ValueError(
            f"{file}: transformers has no architecture {values['model_type']!r}. A model with code of its "
            "own is loaded in Python and given to fxlab.Session."
        )
    try:
        return CONFIG_MAPPING[values["model_type"]].from_dict(values)
    except Exception as error:
        raise ValueError(f"{error_words(error)} ({file})") from error


def model_class(config: Any, name: str | None = None) -> Any:
    """Return the class of transformers with a name, or that a configuration names; else ``AutoModel``."""
    import transformers

    for each in [name] if name else getattr(config, "architectures", None) or ():
        cls = getattr(transformers, each, None)
        if isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel):
            return cls
    return transformers.AutoModel


def has_weights(path: Path) -> bool:
    """Whether a folder has weights and a configuration, in a form that transformers loads."""
    return path.is_dir() and any(any(path.glob(name)) for name in _WEIGHTS)


def built(cls: Any, config: Any, seed: int) -> Any:
    """Return a model with random weights in evaluation mode."""
    import torch
    from transformers import AutoModel

    build = AutoModel.from_config if cls is AutoModel else cls
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build(config).eval()


def pretrained(cls: Any, name: str, config: Any, dtype: torch.dtype | None = None) -> tuple[Any, str]:
    """Return a model with the weights of a folder or of the hub, and a warning, or "", of those it lacks."""
    model, found = cls.from_pretrained(name, config=config, dtype=dtype or "auto", output_loading_info=True)
    missing = sorted(found.get("missing_keys", ()))
    more = "" if len(missing) <= 3 else f" and {len(missing) - 3} more"
    words = f"the checkpoint has no {', '.join(missing[:3])}{more}; these weights are random."
    return model.eval(), words if missing else ""
