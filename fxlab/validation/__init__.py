"""What a transformation changed, and whether it matters, as tables."""

from fxlab.validation.benchmark import benchmark
from fxlab.validation.bisect import Bisection, bisect
from fxlab.validation.compare_nodes import Divergence, compare_nodes, first_divergence
from fxlab.validation.compare_on_variants import compare_on_variants
from fxlab.validation.compare_outputs import compare_outputs
from fxlab.validation.compare_stages import compare_stages
from fxlab.validation.comparison import Verdict
from fxlab.validation.graph_diff import graph_diff, unmarked_changes
from fxlab.validation.input_variants import Variants, input_variants
from fxlab.validation.judgement import Status
from fxlab.validation.nodes_by_stage import NodeAtStage, nodes_by_stage
from fxlab.validation.plots import plot_benchmark, plot_node_differences
from fxlab.validation.profile import profile
from fxlab.validation.transformed_nodes import transformed_nodes
from fxlab.validation.verdict import Reference, verdict

__all__ = [
    "Bisection",
    "Divergence",
    "NodeAtStage",
    "Reference",
    "Status",
    "Variants",
    "Verdict",
    "benchmark",
    "bisect",
    "compare_nodes",
    "compare_on_variants",
    "compare_outputs",
    "compare_stages",
    "first_divergence",
    "graph_diff",
    "input_variants",
    "nodes_by_stage",
    "plot_benchmark",
    "plot_node_differences",
    "profile",
    "transformed_nodes",
    "unmarked_changes",
    "verdict",
]
