"""Compare a trace with the model, on these inputs and on others."""
