"""The public API: what type checkers read, and what is imported when a name is first used."""

# Modules -------------------------------------------------------------------------------------------------
from fxlab import compiler as compiler
from fxlab import overlays as overlays
from fxlab import rewriting as rewriting
from fxlab import runs as runs
from fxlab import steps as steps
from fxlab import testing as testing

# Two models ----------------------------------------------------------------------------------------------
from fxlab.comparison.compare import assert_same as assert_same
from fxlab.comparison.compare import compare as compare
from fxlab.comparison.comparison import Comparison as Comparison
from fxlab.comparison.weights_table import compare_weights as compare_weights

# Onward --------------------------------------------------------------------------------------------------
from fxlab.deployment.as_backend import as_backend as as_backend
from fxlab.deployment.files import export as export

# Pictures ------------------------------------------------------------------------------------------------
from fxlab.drawing.drawing import draw as draw

# Models as graphs ----------------------------------------------------------------------------------------
from fxlab.front_desk.sources import load_model as load_model

# Tables --------------------------------------------------------------------------------------------------
from fxlab.graphs.code_diff import code_diff as code_diff
from fxlab.graphs.graph_diff import graph_diff as graph_diff
from fxlab.graphs.nodes import nodes as nodes
from fxlab.html_report.report import report as report
from fxlab.notebook import inspect as inspect

# Sessions ------------------------------------------------------------------------------------------------
from fxlab.session.errors import TransformationError as TransformationError
from fxlab.session.loading import load_session as load_session
from fxlab.session.session import Session as Session
from fxlab.steps.traced_step import trace_step as trace_step
from fxlab.tracing.dynamo.capture import Capture as Capture
from fxlab.tracing.exported.from_exported import from_exported as from_exported
from fxlab.tracing.inputs.example_inputs import example_inputs as example_inputs
from fxlab.tracing.report import TraceError as TraceError
from fxlab.tracing.report import TraceWarning as TraceWarning
from fxlab.tracing.symbolic_trace import symbolic_trace as symbolic_trace

# Passes --------------------------------------------------------------------------------------------------
# fmt: off
from fxlab.transformations.base import ReversibleTransformation as ReversibleTransformation
from fxlab.transformations.base import Transformation as Transformation
from fxlab.transformations.composition import compose as compose
from fxlab.transformations.foreign.from_callable import from_callable as from_callable
from fxlab.transformations.passes.activation_checkpointing import ActivationCheckpointing as ActivationCheckpointing
from fxlab.transformations.passes.change_true_div_to_mul_by_inverse import ChangeTrueDivToMulByInverse as ChangeTrueDivToMulByInverse
from fxlab.transformations.passes.deep_copy import DeepCopy as DeepCopy
from fxlab.transformations.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions as EliminateCommonSubexpressions
from fxlab.transformations.passes.fold_constants import FoldConstants as FoldConstants
from fxlab.transformations.passes.fuse_activation import FuseActivation as FuseActivation
from fxlab.transformations.passes.fuse_attention import FuseAttention as FuseAttention
from fxlab.transformations.passes.fuse_batch_norm import FuseBatchNorm1dInConv1d as FuseBatchNorm1dInConv1d
from fxlab.transformations.passes.fuse_batch_norm import FuseBatchNorm1dInLinear as FuseBatchNorm1dInLinear
from fxlab.transformations.passes.fuse_batch_norm import FuseBatchNorm2dInConv2d as FuseBatchNorm2dInConv2d
from fxlab.transformations.passes.fuse_batch_norm import FuseBatchNorm3dInConv3d as FuseBatchNorm3dInConv3d
from fxlab.transformations.passes.fuse_batch_norm import FuseBatchNormInConvTranspose as FuseBatchNormInConvTranspose
from fxlab.transformations.passes.fuse_bias_in_linear import FuseBiasInLinear as FuseBiasInLinear
from fxlab.transformations.passes.fuse_norms import FuseLayerNorm as FuseLayerNorm
from fxlab.transformations.passes.fuse_norms import FuseRMSNorm as FuseRMSNorm
from fxlab.transformations.passes.lint_and_recompile import LintAndRecompile as LintAndRecompile
from fxlab.transformations.passes.merge_linears import MergeLinears as MergeLinears
from fxlab.transformations.passes.remove_dead_code import RemoveDeadCode as RemoveDeadCode
from fxlab.transformations.passes.remove_identities import RemoveIdentities as RemoveIdentities
from fxlab.transformations.passes.remove_redundant_views import RemoveRedundantViews as RemoveRedundantViews
from fxlab.transformations.passes.remove_repeated_heads import RemoveRepeatedHeads as RemoveRepeatedHeads
from fxlab.transformations.patterns.from_pattern import from_pattern as from_pattern
from fxlab.transformations.registry import register as register

# fmt: on
# Verdicts and measurements -------------------------------------------------------------------------------
from fxlab.validation.cost.benchmark import benchmark as benchmark
from fxlab.validation.cost.memory import memory as memory
from fxlab.validation.cost.profile import profile as profile
from fxlab.validation.evaluation.evaluate import evaluate as evaluate
from fxlab.validation.nodes.bisect import bisect as bisect
from fxlab.validation.nodes.compare_nodes import compare_nodes as compare_nodes
from fxlab.validation.nodes.compare_nodes import first_divergence as first_divergence
from fxlab.validation.outputs.compare_outputs import compare_outputs as compare_outputs
from fxlab.validation.tensor_values.node_values import node_values as node_values
from fxlab.validation.verdicts.verdict import compare_stages as compare_stages
from fxlab.validation.verdicts.result import Verdict as Verdict
from fxlab.validation.verdicts.verdict import verdict as verdict

__version__: str
