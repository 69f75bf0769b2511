"""Sessions whose stages are those of torch's compiler."""
