"""Tools to write a pass: the loop over its candidates, and the editor that changes the graph."""
