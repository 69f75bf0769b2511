"""Graphs of the compiler as stages: flat, under the names and with the weights of the model."""
