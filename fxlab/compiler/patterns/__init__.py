"""Patterns of the compiler's passes: where each was tried, how far the match came, and what failed."""

from fxlab.compiler.patterns.attempt import Attempt, Outcome, Pattern
from fxlab.compiler.patterns.tables import Tried, attempts_at, near_misses, not_tried, patterns_table

__all__ = [
    "Attempt",
    "Outcome",
    "Pattern",
    "Tried",
    "attempts_at",
    "near_misses",
    "not_tried",
    "patterns_table",
]
