"""Calls in one canonical form, whatever dialect they are written in."""
