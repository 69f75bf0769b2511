"""Progress and warnings of a command on standard error: a bar on a terminal, lines in a log if asked for."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from fxlab.base.units import with_unit
from fxlab.command_line.answer import visible


class Progress:
    """The steps of a command, of which the number is known.

    ``steps``: how many steps there will be. ``verbose``: whether to write a line for each step, with the
    seconds that it took.
    """

    def __init__(self, steps: int, *, verbose: bool) -> None:
        self._verbose = verbose
        # With None, tqdm shows a bar on a terminal only.
        hidden = True if verbose else None
        form = "{desc} {bar:30} {n_fmt}/{total_fmt} [{elapsed}]"
        self._bar = tqdm(total=steps, disable=hidden, leave=False, file=sys.stderr, bar_format=form)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    @contextmanager
    def step(self, words: str) -> Iterator[None]:
        """Show the words of a step while it is done."""
        self._bar.set_description_str(words)
        started = time.perf_counter()
        yield
        self._bar.update()
        if self._verbose:
            print(f"{words}: {with_unit(time.perf_counter() - started, 's')}", file=sys.stderr)


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
