"""The story of compiled functions: compiles, recompiles, graph breaks, and why each happened."""
