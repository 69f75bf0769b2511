"""Verdicts: bit-identical, the same up to rounding, or another function."""
