"""A pass that raised, as its card shows it: the line of its author, and the whole traceback on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxlab.author_frames import author_line, error_words, stretches
from fxlab.session import TransformationError
from fxlab.view_model.pass_state import describe_error, readable_name
from fxlab.view_model.protocol import PassError, Stretch
from fxlab.view_model.wire import clip

if TYPE_CHECKING:
    from fxlab.transformations import Transformation

_MOST_STRETCHES = 100
_LONGEST_STRETCH = 8_000


def failure_state(error: Exception, pressed: Transformation, below: int = 0) -> PassError:
    """Describe what went wrong when somebody pressed the switch of a pass.

    Another pass, above the one that was ``pressed``, may have raised. ``below``: the stage it is applied to.
    """
    cause = error.__cause__ if isinstance(error, TransformationError) and error.__cause__ else error
    line = error.line if isinstance(error, TransformationError) else author_line(error)
    # What the session itself refuses says so in words; that it is a ValueError tells nobody anything.
    is_refusal = cause is error and line is None
    words = describe_error(error) if is_refusal else error_words(cause)
    node = ""
    if isinstance(error, TransformationError) and error.pass_.name == pressed.name:
        node = error.node
    elif isinstance(error, TransformationError):
        words = f"{readable_name(error.pass_)} failed on what is left below it. {words}"
    return {
        "text": clip(words, 4_000),
        "place": line.place if line else "",
        "file": clip(f"{line.file}:{line.line}", 1_000) if line else "",
        "code": clip(line.code, 400) if line else "",
        "node": clip(node, 1_000),
        "stage": below,
        "traceback": [] if is_refusal else _traceback(cause),
    }


def _traceback(error: BaseException) -> list[Stretch]:
    return [
        {
            "hides": 0 if stretch.is_author else stretch.frames,
            "text": clip(stretch.text, _LONGEST_STRETCH),
        }
        for stretch in stretches(error)[-_MOST_STRETCHES:]
    ]
