"""What a compile has done to each graph, pass by pass, and the graphs as they stood."""
