"""What a transformation changed, and whether it matters, as tables."""
