"""A graph as a tree of module calls."""
