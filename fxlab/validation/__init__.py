"""Compare transformed models with their originals, and report it as tables."""

from typing import TYPE_CHECKING

from fxlab.base.first_use import on_first_use

if TYPE_CHECKING:
    from fxlab.validation.cost.benchmark import Times as Times
    from fxlab.validation.cost.benchmark import benchmark as benchmark
    from fxlab.validation.cost.collectives import collectives as collectives
    from fxlab.validation.cost.memory import MemoryUse as MemoryUse
    from fxlab.validation.cost.memory import memory as memory
    from fxlab.validation.cost.profile import profile as profile
    from fxlab.validation.evaluation.evaluate import evaluate as evaluate
    from fxlab.validation.evaluation.evaluation import Evaluation as Evaluation
    from fxlab.validation.evaluation.evaluation import WorstBatch as WorstBatch
    from fxlab.validation.nodes.bisect import Bisection as Bisection
    from fxlab.validation.nodes.bisect import bisect as bisect
    from fxlab.validation.nodes.compare_nodes import Divergence as Divergence
    from fxlab.validation.nodes.compare_nodes import compare_nodes as compare_nodes
    from fxlab.validation.nodes.compare_nodes import first_divergence as first_divergence
    from fxlab.validation.outputs.compare_outputs import compare_outputs as compare_outputs
    from fxlab.validation.outputs.input_variants import Variants as Variants
    from fxlab.validation.outputs.input_variants import input_variants as input_variants
    from fxlab.validation.tensor_values.node_values import NodeValues as NodeValues
    from fxlab.validation.tensor_values.node_values import Slice as Slice
    from fxlab.validation.tensor_values.node_values import TensorValue as TensorValue
    from fxlab.validation.tensor_values.node_values import node_values as node_values
    from fxlab.validation.tensor_values.statistics import Histogram as Histogram
    from fxlab.validation.tensor_values.statistics import Statistics as Statistics
    from fxlab.validation.verdicts.judgement import Status as Status
    from fxlab.validation.verdicts.result import Verdict as Verdict
    from fxlab.validation.verdicts.verdict import Reference as Reference
    from fxlab.validation.verdicts.verdict import compare_stages as compare_stages
    from fxlab.validation.verdicts.verdict import verdict as verdict
else:
    __all__, __getattr__ = on_first_use(__name__)
