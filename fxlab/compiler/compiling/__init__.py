"""Compiles a model with passes off and options changed, and keeps the results."""
