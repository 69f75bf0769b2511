"""Listeners that cannot break what they listen to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from fxlab.author_frames import error_words


class Guarded:
    """Calls a listener until it raises, which is a remark, and then returns ``answers`` for it."""

    def __init__(self, listener: Any, remarks: list[str], answers: Mapping[str, Any]) -> None:
        self._listener, self._remarks, self._answers = listener, remarks, answers
        self._has_raised = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self._call, getattr(self._listener, name), self._answers.get(name))

    def _call(self, method: Callable[..., Any], answer: Any, *args: Any, **kwargs: Any) -> Any:
        if self._has_raised:
            return answer
        try:
            result = method(*args, **kwargs)
        except Exception as error:
            self._has_raised = True
            self._remarks.append(f"Nothing was recorded any more when this was raised: {error_words(error)}")
            return answer
        return functools.partial(self._call, result, None) if callable(result) else result
