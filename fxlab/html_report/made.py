"""When a report was made, and with which versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Iterable

import torch
from torch import fx

from fxlab._version import __version__
from fxlab.checks import described
from fxlab.node_info import class_name

NO_KERNEL = "Passes cannot be switched here: a report has no kernel."


def made_lines(graph_module: fx.GraphModule) -> list[str]:
    """Return the time, the versions of packages, and why nothing can be switched, for the reader of a report.

    ``SOURCE_DATE_EPOCH`` stands for the time, if it is set, so that the same session gives the same report.
    """
    packages = {class_name(node).partition(".")[0] for node in graph_module.graph.nodes} - {"torch"}
    versions = [
        ("fxlab", __version__),
        ("torch", torch.__version__),
        *_versions_of(sorted(packages)),
        ("Python", platform.python_version()),
    ]
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(_seconds()))
    return [f"Made {made} with {', '.join(f'{name} {version}' for name, version in versions)}.", NO_KERNEL]


def _seconds() -> float:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        return time.time()
    if not given.isascii() or not given.isdecimal():
        raise ValueError(f"SOURCE_DATE_EPOCH: expected seconds since 1970, got {described(given)}.")
    return int(given)


def _versions_of(packages: Iterable[str]) -> list[tuple[str, str]]:
    found = []
    for name in packages:
        # A class may be from a notebook, and the names in a graph are anybody's.
        try:
            found.append((name, importlib.metadata.version(name)))
        except (importlib.metadata.PackageNotFoundError, ValueError):
            continue
    return found
