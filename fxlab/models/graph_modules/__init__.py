"""Graph modules: copied, pickled, and run by code that fxlab writes."""
