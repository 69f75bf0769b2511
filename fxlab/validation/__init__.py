"""What a transformation changed, and whether it matters, as tables."""

from fxlab.validation.compare_outputs import compare_outputs
from fxlab.validation.transformed_nodes import transformed_nodes

__all__ = ["compare_outputs", "transformed_nodes"]
