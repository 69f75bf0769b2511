"""Texts that the model's Python makes of symbolic sizes, which a graph cannot make again.

A message or a line of a log may say anything. In what the model returns, or gives to a call, a text has to be
that of the sizes with which the graph runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sympy

from fxlab.tracing.shapes.condition_text import condition_text
from fxlab.tracing.torch_private import SymNode
from fxlab.values.nested import texts_inside

_MARK = "\u2063"
"""What texts of symbolic sizes end in; it is not seen where one is shown."""


@contextmanager
def size_texts_marked(names: Mapping[sympy.Symbol, str]) -> Iterator[None]:
    """Let texts of symbolic sizes be told from others, and say the sizes' names: ``f"{len(x)} rows"``."""
    node: Any = SymNode
    before = node.str
    node.str = lambda number: f"{condition_text(number.expr, names)}{_MARK}"
    try:
        yield
    finally:
        node.str = before


def size_text_in(value: Any) -> str:
    """Return the first text of a symbolic size that is inside a value, or a key in it; ``""`` if none is."""
    return next((without_marks(text) for text in texts_inside(value) if _MARK in text), "")


def without_marks(text: str) -> str:
    """Return a text as it is shown."""
    return text.replace(_MARK, "")
