"""Patterns of the compiler's passes: where each was tried, how far the match came, and why it failed."""

from fxlab.transformations.inductor_patterns.tables import (
    Attempt,
    Pattern,
    PatternAttempts,
    attempts_at,
    attempts_table,
    near_misses,
    not_tried,
    told,
)

__all__ = [
    "Attempt", "Pattern", "PatternAttempts", "attempts_at", "attempts_table", "near_misses",
    "not_tried", "told",
]  # fmt: skip
