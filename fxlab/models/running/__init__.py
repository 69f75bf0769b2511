"""Runs of a model for a comparison: on the same inputs and random numbers, nothing left behind."""
