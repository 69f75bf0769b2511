"""Everything that a pass is written with, in one place: see :doc:`transformations`.

>>> from fxlab.rewriting import RewritePass, new_layer, why_not_replaceable
"""

from fxlab.base.reasons import Reason, Refusal
from fxlab.graphs.nodes import transformed_nodes
from fxlab.operators import operator_called, operator_of
from fxlab.operators.node_info import only_input
from fxlab.transformations.analysis.aliasing_and_writes import Writes, may_return_view
from fxlab.transformations.analysis.dtypes_and_sizes import known_dtype
from fxlab.transformations.analysis.graph_analysis import GraphFacts, rounding_readers
from fxlab.transformations.analysis.module_safety import (
    why_hooked,
    why_mixed,
    why_not_plain,
    why_not_replaceable,
)
from fxlab.transformations.analysis.purity import why_impure
from fxlab.transformations.analysis.value_bounds import largest_magnitude
from fxlab.transformations.marks import marks
from fxlab.transformations.patterns.from_pattern import find_matches
from fxlab.transformations.patterns.match import Match
from fxlab.transformations.patterns.pattern import either
from fxlab.transformations.rewriting.autocast import casts_to_autocast_dtype
from fxlab.transformations.rewriting.dialects import layer_call, new_layer
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import Candidate, CandidatePass, RewritePass
from fxlab.transformations.views.batch_norm import as_batch_norm
from fxlab.transformations.views.convolution import as_convolution
from fxlab.transformations.views.layer import Layer
from fxlab.transformations.views.linear import as_linear

__all__ = [
    "Candidate", "CandidatePass", "Editor", "GraphFacts", "Layer", "Match", "Reason", "Refusal",
    "RewritePass", "Writes", "as_batch_norm", "as_convolution", "as_linear", "casts_to_autocast_dtype",
    "either", "find_matches", "known_dtype", "largest_magnitude", "layer_call", "marks", "may_return_view",
    "new_layer", "only_input", "operator_called", "operator_of", "rounding_readers",
    "transformed_nodes", "why_hooked", "why_impure", "why_mixed", "why_not_plain", "why_not_replaceable",
]  # fmt: skip
