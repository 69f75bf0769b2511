"""Runs that were recorded: of any model, on any device, as fingerprints in a file."""
