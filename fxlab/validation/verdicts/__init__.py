"""Whether a model is the same, the same up to rounding, or another one."""
