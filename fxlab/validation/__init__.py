"""Compare transformed models with their originals, and report it as tables."""

from fxlab.validation.bisect import Bisection, bisect
from fxlab.validation.compare_nodes import Divergence, compare_nodes, first_divergence
from fxlab.validation.compare_stages import compare_stages
from fxlab.validation.cost.benchmark import benchmark
from fxlab.validation.cost.profile import profile
from fxlab.validation.evaluation.evaluate import evaluate
from fxlab.validation.evaluation.evaluation import Evaluation, WorstBatch
from fxlab.validation.graphs.changes_made import Changes, changes_made
from fxlab.validation.graphs.code_diff import CodeDiff, code_diff
from fxlab.validation.graphs.graph_diff import graph_diff
from fxlab.validation.graphs.nodes import nodes
from fxlab.validation.graphs.nodes_by_stage import NodeAtStage, nodes_by_stage
from fxlab.validation.graphs.transformed_nodes import transformed_nodes
from fxlab.validation.outputs.compare_outputs import compare_outputs
from fxlab.validation.outputs.input_variants import Variants, input_variants
from fxlab.validation.tensor_values.node_values import NodeValues, TensorValue, node_values
from fxlab.validation.tensor_values.slices import Slice
from fxlab.validation.tensor_values.statistics import Histogram, Statistics
from fxlab.validation.verdicts.comparison import Verdict
from fxlab.validation.verdicts.judgement import Status
from fxlab.validation.verdicts.verdict import Reference, verdict

__all__ = [
    "Bisection",
    "Changes",
    "CodeDiff",
    "Divergence",
    "Evaluation",
    "Histogram",
    "NodeAtStage",
    "NodeValues",
    "Reference",
    "Slice",
    "Statistics",
    "Status",
    "TensorValue",
    "Variants",
    "Verdict",
    "WorstBatch",
    "benchmark",
    "bisect",
    "changes_made",
    "code_diff",
    "compare_nodes",
    "compare_outputs",
    "compare_stages",
    "evaluate",
    "first_divergence",
    "graph_diff",
    "input_variants",
    "node_values",
    "nodes",
    "nodes_by_stage",
    "profile",
    "transformed_nodes",
    "verdict",
]
