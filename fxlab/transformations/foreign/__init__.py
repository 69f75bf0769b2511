"""Functions that know nothing of fxlab, as transformations."""
