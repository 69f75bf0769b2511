"""Values of nodes: run up to a node, statistics, histograms and slices."""
