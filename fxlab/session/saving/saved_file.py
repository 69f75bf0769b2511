"""The file of a session: its choices, and facts about the model they were made for, without weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from fxlab._version import __version__
from fxlab.base.checks import describe
from fxlab.base.words import all_listed
from fxlab.transformations.signature import digest

FORMAT = 1
MOST_BYTES = 50_000_000
"""The most bytes of a file that is read."""


def facts_of(original: GraphModule, transformed: GraphModule) -> dict[str, Any]:
    """Describe the model of a session by a few words and digests that are equal in every process."""
    tensors = sorted([*original.named_parameters(), *original.named_buffers()], key=lambda entry: entry[0])
    return {
        "made_with": {"fxlab": __version__, "torch": torch.__version__},
        "model": {
            "class": type(original).__name__,
            "parameters": digest([(name, tuple(t.shape), str(t.dtype)) for name, t in tensors]),
            "graph": _graph(original),
        },
        "transformed": _graph(transformed),
    }


def write(path: str | os.PathLike[str], facts: dict[str, Any], passes: list[dict[str, Any]]) -> Path:
    """Write a file: facts, and for each pass its name, signature, whether it is on and its exclusions."""
    file = Path(path)
    saved = {"format": FORMAT, **facts, "passes": passes}
    file.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
    return file


def read(path: Path) -> dict[str, Any]:
    """Return the contents of a file; every field is checked, as its origin is unknown.

    Raises OSError if it cannot be read; ValueError if it is no saved session.
    """
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path}: expected a saved session, got a file of {path.stat().st_size:,} bytes.")
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected a saved session, which is JSON, got: {error}") from error
    version = saved.get("format") if isinstance(saved, dict) else saved
    if not isinstance(saved, dict) or type(version) is not int or version != FORMAT:
        came = f"{describe(version):.80}"
        raise ValueError(f"{path}: expected a saved session of format {FORMAT}, got {came}.")
    for key, kind in (("made_with", dict), ("model", dict), ("passes", list), ("transformed", str)):
        if not isinstance(saved.get(key), kind):
            came = f"{describe(saved.get(key)):.80}"
            raise ValueError(f"{path}: {key}: expected a {kind.__name__}, got {came}.")
    for key in ("made_with", "model"):
        if not all(isinstance(value, str) for value in saved[key].values()):
            raise ValueError(f"{path}: {key}: expected strings, got {describe(saved[key])}.")
    for row in saved["passes"]:
        if not _is_row(row):
            raise ValueError(
                f"{path}: passes: expected a name, a signature, whether it is on and what is excluded, "
                f"got {describe(row)}."
            )
    names = [row["name"] for row in saved["passes"]]
    if len({*names}) < len(names):
        raise ValueError(f"{path}: passes: a name is there twice: {all_listed([*map(shown, names)])}.")
    return saved


def shown(text: str | None) -> str:
    """Return a text of the file, with control characters and changes of the writing direction escaped."""
    return str(text) if str(text).isprintable() else ascii(text)


def _graph(graph_module: GraphModule) -> str:
    return digest([node.format_node() for node in graph_module.graph.nodes])


def _is_row(row: object) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("name"), str)
        and isinstance(row.get("signature"), str)
        and isinstance(row.get("on"), bool)
        and isinstance(row.get("excluded"), list)
        and all(
            isinstance(candidate, list) and candidate and all(isinstance(name, str) for name in candidate)
            for candidate in row["excluded"]
        )
    )
