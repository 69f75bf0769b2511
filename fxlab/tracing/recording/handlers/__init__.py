"""Handlers, one for each kind of call that a model makes while it is recorded."""
