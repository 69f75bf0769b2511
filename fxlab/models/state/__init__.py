"""The state of a model: its tensors, settings and the Python that it reads, kept and compared."""
