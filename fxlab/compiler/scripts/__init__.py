"""Compiles of unchanged scripts."""
