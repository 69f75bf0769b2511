"""What a transformation changed, and whether it matters, as tables."""

from fxlab.validation.compare_outputs import compare_outputs
from fxlab.validation.judgement import Status
from fxlab.validation.transformed_nodes import transformed_nodes
from fxlab.validation.verdict import Verdict, verdict

__all__ = ["Status", "Verdict", "compare_outputs", "transformed_nodes", "verdict"]
