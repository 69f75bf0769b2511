"""Compare two graphs without running them."""
