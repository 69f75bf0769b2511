"""Changes of a compile to each graph, pass by pass, and the graphs as they stood."""
