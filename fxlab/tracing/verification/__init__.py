"""Whether a trace computes what the model computes, on these inputs and on others."""
