"""The Python code of a model while it runs: its lines, caches, threads, attributes and mode."""
