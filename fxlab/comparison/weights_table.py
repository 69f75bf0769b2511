"""``fxlab.compare_weights``: the weights of two models, or of files, as a table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch

from fxlab.base.first_use import pd
from fxlab.base.words import listed
from fxlab.comparison import weights
from fxlab.front_desk.sources import Model, module_of
from fxlab.models.state.tensor_state import named_tensors
from fxlab.models.weight_files import tensors_at

_PICKLED = ".pt", ".pth", ".bin", ".ckpt"


def compare_weights(
    reference: Model | Mapping[str, torch.Tensor], candidate: Model | Mapping[str, torch.Tensor]
) -> pd.DataFrame:
    """Find the counterpart of each parameter and buffer of a model in another; nothing is run.

    Values decide, and names where these leave a choice: one may be renamed, transposed, split or merged.

    Parameters
    ----------
    reference, candidate
        Models in any form that :func:`fxlab.compare` takes; their weights by name, as of ``state_dict()``; or
        the path of weights: a folder or file of safetensors, or a ``state_dict()`` that was saved.

    Returns
    -------
    pandas.DataFrame
        A row for each weight of the candidate, and for those of the reference that it does not have, indexed
        by ``weight``: ``reference`` (the names there), ``status`` and ``detail``.

    Examples
    --------
    >>> from torch import nn
    >>> linear, other = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> other.weight = linear.weight
    >>> compare_weights(linear, other)["status"].tolist()
    ['equal', 'other values']
    """
    return table_of(compared_weights(reference, candidate))


def compared_weights(reference: Any, candidate: Any) -> list[weights.Weight]:
    """Return the weights of the candidate, each with its counterpart in the reference."""
    return weights.find_weights(_held(reference, "reference"), _held(candidate, "candidate"))


def _held(given: Any, name: str) -> torch.nn.Module | Mapping[str, torch.Tensor]:
    """Return a model, or weights by name."""
    if is_weights(given):
        given = _read(Path(given), name)
    held = given if isinstance(given, Mapping) else module_of(given, name)
    tensors = held if isinstance(held, Mapping) else dict(named_tensors(held))
    if odd := [key for key, value in tensors.items() if not isinstance(value, torch.Tensor)]:
        raise TypeError(f"{name}: expected tensors by name, as of state_dict(), but {odd[0]!r} is none.")
    if without := [key for key, tensor in tensors.items() if tensor.is_meta]:
        raise ValueError(
            f"{name}: expected weights with numbers, but on the meta device are {listed(without)}. Give the "
            "path of the files that have them."
        )
    return held


def is_weights(given: object) -> bool:
    """Tell whether this is the path of weights, and not of a model."""
    if not isinstance(given, str | os.PathLike):
        return False
    return Path(given).suffix in (".safetensors", *_PICKLED) or Path(given).is_dir()


def _read(path: Path, name: str) -> Any:
    if path.suffix not in _PICKLED:
        return tensors_at(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zipfile(path))
        return found.get("state_dict", found) if isinstance(found, Mapping) else found
    except Exception as error:  # a file of another kind may make torch raise anything
        raise ValueError(f"{name}: {path} holds no weights that torch.load can read: {error}") from error


def table_of(found: Iterable[weights.Weight]) -> pd.DataFrame:
    """Return that table."""
    rows = [(each.candidate, ", ".join(each.reference), each.status, each.detail) for each in found]
    return pd.DataFrame(rows, columns=["weight", "reference", "status", "detail"]).set_index("weight")
