"""Fake tensors in place of inputs, parameters and results: shapes without data, and sizes as symbols."""
