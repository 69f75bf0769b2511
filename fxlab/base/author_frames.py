"""Lines and frames of an author's code in an exception, apart from fxlab's and torch's, for messages."""

import functools
import importlib.util
import itertools
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from fxlab.base.words import error_words

_FXLAB = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PYTHON = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED = sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]
_PACKAGES = os.sep + "site-packages" + os.sep
_CELL = re.compile(r"ipykernel_\d+[/\\]\d+\.py$|^<ipython-input-")
"""How Jupyter names the files of cells."""
_MOST_FRAMES = 40
"""Frames shown of one stretch of a traceback: a recursion has thousands."""


@dataclass(frozen=True)
class AuthorLine:
    """The line of an author's code that an exception came through."""

    file: str
    line: int
    code: str
    """The source line; empty where it cannot be read."""

    @property
    def place(self) -> str:
        """The file without its folders, and the line."""
        if _CELL.search(self.file):
            return f"line {self.line} of a notebook cell"
        return f"{os.path.basename(self.file)}:{self.line}"


@dataclass(frozen=True)
class FrameGroup:
    """Consecutive frames of a traceback that are either all of an author's code, or all of others'."""

    frames: int
    """How many; none where it is words, such as those of the exception."""
    is_author: bool
    text: str


def author_line(error: BaseException) -> AuthorLine | None:
    """Return the innermost line of an author's code that fxlab has called and an exception came through."""
    summary = [*traceback.extract_tb(error.__traceback__)]
    called = itertools.dropwhile(lambda frame: not frame.filename.startswith(_FXLAB), summary)
    found = [frame for frame in called if is_author_code(frame.filename)]
    if not found:
        return None
    return AuthorLine(found[-1].filename, found[-1].lineno or 0, (found[-1].line or "").strip())


def local_values(error: BaseException) -> dict[str, object]:
    """Return the local variables of the innermost frame of an author that an exception came through."""
    found: dict[str, object] = {}
    inner = error.__traceback__
    while inner is not None:
        if is_author_code(inner.tb_frame.f_code.co_filename):
            found = dict(inner.tb_frame.f_locals)
        inner = inner.tb_next
    return found


def is_author_code(filename: str) -> bool:
    """Tell whether a file is neither fxlab's, torch's nor Python's own; other packages have authors too."""
    if filename.startswith((_FXLAB, *_torch(), "<frozen ", "<eval_with_key>")):
        return False
    return not filename.startswith(_PYTHON) or _PACKAGES in filename


def is_installed(filename: str) -> bool:
    """Tell whether a file is of an installed package, and not of a person's own code."""
    return filename.startswith(_INSTALLED)


def levels_to_author() -> int:
    """Return the ``stacklevel`` with which a warning names the line outside of fxlab that called it."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FXLAB):
        frame, level = frame.f_back, level + 1
    return level


def from_author_on(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception from the first frame of an author on; all if there is none."""
    inner = error.__traceback__
    while inner is not None and not is_author_code(inner.tb_frame.f_code.co_filename):
        inner = inner.tb_next
    return inner or error.__traceback__


def placed_words(error: BaseException) -> str:
    """Return an exception in words, with the author's line that it came through."""
    line = author_line(error)
    return error_words(error) + (f" ({line.place})" if line else "")


def stretches(error: BaseException) -> list[FrameGroup]:
    """Return the traceback of an exception and of those it was raised from, the outermost call first."""
    found = []
    for raised, words in _chain(error):
        found += [FrameGroup(0, True, words)] if words else []
        frames = traceback.extract_tb(raised.__traceback__)
        for is_author, group in itertools.groupby(frames, lambda frame: is_author_code(frame.filename)):
            shown = same = [*group]
            if len(same) > _MOST_FRAMES:
                shown = same[: _MOST_FRAMES // 2] + same[-_MOST_FRAMES // 2 :]
            text = "".join(traceback.StackSummary.from_list(shown).format()).rstrip("\n")
            found.append(FrameGroup(len(same), is_author, text))
        found.append(FrameGroup(0, True, error_words(raised)))
    return found


def _chain(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """Yield the exceptions that led to one, the first that was raised first, and how each is tied to it."""
    chain, seen = [], set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        seen.add(id(now))
        cause = now.__cause__
        before = cause if cause is not None or now.__suppress_context__ else now.__context__
        words = "While the exception above was handled, another was raised:"
        if before is None or id(before) in seen:
            words = ""
        elif cause is not None:
            words = "The exception above was the direct cause of this one:"
        chain.append((now, words))
        now = before
    return reversed(chain)


@functools.cache
def _torch() -> tuple[str, ...]:
    """Return the folder of torch, without importing it."""
    spec = importlib.util.find_spec("torch")
    folders = spec.submodule_search_locations if spec else None
    return tuple(os.path.abspath(folder) + os.sep for folder in folders or ())
