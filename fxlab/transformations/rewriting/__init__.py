"""What a pass is written with: the loop over its candidates, and the editor that changes the graph."""
