"""Entry points by which other installed packages add to fxlab."""

import contextlib
import functools
import os
import sys
from importlib.metadata import EntryPoint, entry_points


def entry_points_of(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, by name.

    Python reads a file of each installed package to find them, which takes longer than to switch a pass; so
    they are looked for again only after something was installed or removed.
    """
    places = []
    for folder in sys.path:
        with contextlib.suppress(OSError):
            places.append((folder, os.stat(folder or ".").st_mtime_ns))
    return _found(group, tuple(places))


@functools.lru_cache(maxsize=4)
def _found(group: str, places: tuple[tuple[str, int], ...]) -> list[EntryPoint]:
    return sorted(entry_points(group=group), key=lambda found: (found.name, found.value))
