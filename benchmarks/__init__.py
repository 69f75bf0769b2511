"""Speed as ratios to named peers, measured in one run: ``python -m benchmarks``."""
