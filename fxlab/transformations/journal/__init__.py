"""A record of every change to a graph module, and its reversal."""
