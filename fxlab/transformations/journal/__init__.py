"""What was changed in a graph module, written down so that it can be taken back."""
