"""Words of messages, for every room: an exception, a count of things, a list of names."""

import itertools
from collections.abc import Collection


def error_words(error: BaseException) -> str:
    """Return an exception's message after its type, also of one whose own words raise."""
    try:
        words = str(error).strip()
    except Exception:
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def listed(names: Collection[str], most: int = 3) -> str:
    """Return names in words, of many the first and how many more there are: ``a, b, c and 2 more``."""
    shown = ", ".join(itertools.islice(names, most))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def all_listed(names: Collection[str]) -> str:
    """Return as many names as an error lists, in words: fifty; ``none`` if there are none."""
    return listed(names, 50) or "none"


_VOWELS = ("", *"aeiou")


def counted(count: int, word: str) -> str:
    """Return a count of something: ``1 node``, ``2,000 nodes``, ``2 identities``, ``3 softmaxes``."""
    if count == 1:
        return f"1 {word}"
    if word.endswith("y") and word[-2:-1] not in _VOWELS:
        return f"{count:,} {word[:-1]}ies"
    return f"{count:,} {word}{'es' if word.endswith(('s', 'x', 'z', 'ch', 'sh')) else 's'}"
