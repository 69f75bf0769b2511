"""A transformed model in use: by ``torch.compile``, or as a file."""
