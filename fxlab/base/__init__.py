"""Checks, errors, units, results and private names of torch: what every room above reads."""
