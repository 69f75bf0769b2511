"""Values as a page receives them: plain JSON, nothing that a parser in a browser would trip over."""

import math
import numbers
from typing import Any

import numpy as np
import torch

LARGEST_INTEGER = 2**53 - 1
"""The largest integer that a browser's numbers hold exactly."""
LONGEST_TEXT = 2_000
LONGEST_CLASSES = 1_000
"""Of the names of the classes around a node."""


def to_json(value: object) -> Any:
    """Return a table's or a message's value as JSON.

    Numbers that JSON cannot hold become texts: ``"nan"``, ``"inf"``, ``"-inf"``, and the digits of huge
    integers. Anything without a JSON form becomes its ``str``.
    """
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, str):
        return clip(value)
    if isinstance(value, numbers.Integral):
        return int(value) if abs(int(value)) <= LARGEST_INTEGER else str(int(value))
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    if isinstance(value, torch.Size | tuple | list | set | frozenset):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    return clip(str(value))


def clip(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return a text that can be encoded, with its middle cut out where it is very long."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= longest:
        return text
    return f"{text[: longest * 2 // 3]} … {text[-longest // 4 :]}"
