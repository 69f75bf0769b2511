"""Analyses of a graph before it is changed: writes, aliases, purity, rounding, bounds."""
