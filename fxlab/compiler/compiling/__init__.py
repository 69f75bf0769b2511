"""Compiles a model with passes off and options changed, and keeps what was compiled."""
