"""Two graphs of any origin, aligned by the values that their nodes compute."""
