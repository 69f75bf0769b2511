"""Exit codes that the commands of ``fxlab`` return."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager


class ExitCode(enum.IntEnum):
    """The exit status of ``fxlab``."""

    DONE = 0
    """Done; if models were compared, they are the same up to rounding."""
    DIFFERENT = 1
    """The model with the passes is a different function, or rounds worse."""
    FAULTY = 1
    """`fxlab doctor`: something that fxlab needs is not there or does not work."""
    BAD_USAGE = 2
    """An argument is wrong, or a file or model that it names is missing or cannot be taken."""
    NOT_TRACED = 3
    """The model could not be traced."""
    PASS_FAILED = 4
    """A pass raised."""
    NOT_COMPARED = 5
    """The models could not be run or compared on these inputs, or no output has an element to compare."""
    SCRIPT_FAILED = 6
    """`fxlab compile`: the script raised, or ended with another status than 0."""
    UNEXPECTED = 70
    """Something that fxlab did not foresee."""
    INTERRUPTED = 130
    """Ctrl-C."""


class CommandError(Exception):
    """The error that ends a command, in words for the person who gave it."""

    def __init__(self, message: str, code: ExitCode = ExitCode.BAD_USAGE) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def ends_with(code: ExitCode, *kinds: type[Exception], hint: str = "") -> Iterator[None]:
    """End the command with a code if one of these exceptions is raised, with its own words and a hint."""
    try:
        yield
    except CommandError:
        raise
    except kinds as error:
        words = str(error).strip() or type(error).__name__
        raise CommandError(f"{words} {hint}".strip(), code) from error
