"""Facts about graphs that need no run: what became of each node, and the difference of two graphs."""
