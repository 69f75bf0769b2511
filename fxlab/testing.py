"""Assertions for tests, where other libraries have them: ``fxlab.testing.assert_same``."""

from fxlab import assert_same, expect, expect_no_match
from fxlab.other_names import OF_FXLAB

__all__ = ["assert_same", "expect", "expect_no_match"]


def __getattr__(name: str) -> object:
    if OF_FXLAB.get(name) in __all__:
        return assert_same
    raise AttributeError(f"module 'fxlab.testing' has no attribute {name!r}. It has {', '.join(__all__)}.")
