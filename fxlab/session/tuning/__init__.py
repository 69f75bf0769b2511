"""The stack of passes that is fastest on this machine, found by measuring."""
