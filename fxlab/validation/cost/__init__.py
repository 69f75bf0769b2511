"""What a model costs: time, memory and floating-point operations."""
