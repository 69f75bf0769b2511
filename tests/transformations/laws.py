"""Laws are tests of random examples, which are counted."""

import functools
from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

EXAMPLES: Counter[str] = Counter()
"""How many examples each law has held for; those that were rejected while they were drawn do not count."""


LAWS: dict[str, tuple[tuple[st.SearchStrategy, ...], Callable[..., None]]] = {}
"""The laws by their names: what is drawn for each, beside a recipe, and the test."""


def law(*drawn: st.SearchStrategy) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test of random examples, as ``hypothesis.given`` does, that counts those it held for."""

    def make(test: Callable[..., None]) -> Callable[..., None]:
        LAWS[test.__name__] = drawn[1:], test

        @given(*drawn)
        @functools.wraps(test)
        def counted(*args, **example):
            test(*args, **example)
            EXAMPLES[test.__name__] += 1

        return counted

    return make
