"""One run of a model, recorded as a graph."""
