"""The passes: each is one file, and one line in ``registry.py``."""
