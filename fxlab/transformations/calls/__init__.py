"""Calls in one canonical form for all dialects."""
