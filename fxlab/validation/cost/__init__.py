"""Time, memory and floating-point operations."""
