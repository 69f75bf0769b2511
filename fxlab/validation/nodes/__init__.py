"""Two graphs run in step, node by node, and the node or pass from which values differ."""
