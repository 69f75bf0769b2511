"""Calls on fake tensors whose results are made here, and not by torch."""
