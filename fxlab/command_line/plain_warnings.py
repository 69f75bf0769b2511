"""Warnings of a command: a line of words each, without the line of the library that gave it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from fxlab.command_line.answer import visible


@contextmanager
def plain_warnings(*, verbose: bool) -> Iterator[None]:
    """Show warnings in words; those of libraries about their own future only if that is asked for."""
    with warnings.catch_warnings():
        warnings.showwarning = _show
        warnings.simplefilter("default")
        if not verbose:
            for category in (DeprecationWarning, FutureWarning):
                warnings.simplefilter("ignore", category)
        yield


def _show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    print(visible(f"warning: {message}"), file=sys.stderr)
