"""Outputs of models: their tensors, inputs to compare them on, and distances between them."""
