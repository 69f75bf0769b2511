"""From a view to a picture: boxes, DOT, Graphviz's layout, SVG."""
