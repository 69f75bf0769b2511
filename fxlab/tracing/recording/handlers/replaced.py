"""Functions of torch exchanged for a while, where its modes do not show their calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Put something in the place of what a class or module itself holds under a name."""
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
