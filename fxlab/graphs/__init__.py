"""Facts about graphs that need no run: the counterparts of each node, and the difference of two graphs."""
