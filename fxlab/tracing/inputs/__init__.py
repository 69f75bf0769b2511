"""Example inputs for a model of transformers, made from its configuration."""
