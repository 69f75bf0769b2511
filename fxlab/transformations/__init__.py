"""GraphModule -> GraphModule: marked, exact, and reversible."""

from fxlab.transformations.base import ReversibleTransformation, Transformation
from fxlab.transformations.compose import compose
from fxlab.transformations.foreign.from_callable import from_callable
from fxlab.transformations.foreign.from_pattern import from_pattern
from fxlab.transformations.passes.change_true_div_to_mul_by_inverse import ChangeTrueDivToMulByInverse
from fxlab.transformations.passes.deep_copy import DeepCopy
from fxlab.transformations.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from fxlab.transformations.passes.fold_constants import FoldConstants
from fxlab.transformations.passes.fuse_attention import FuseAttention
from fxlab.transformations.passes.fuse_batch_norm.before_conv import FuseBatchNormBeforeConv
from fxlab.transformations.passes.fuse_batch_norm.in_conv import (
    FuseBatchNorm1dInConv1d,
    FuseBatchNorm2dInConv2d,
    FuseBatchNorm3dInConv3d,
    FuseBatchNormInConvTranspose,
)
from fxlab.transformations.passes.fuse_batch_norm.in_linear import FuseBatchNorm1dInLinear
from fxlab.transformations.passes.fuse_bias_in_linear import FuseBiasInLinear
from fxlab.transformations.passes.lint_and_recompile import LintAndRecompile
from fxlab.transformations.passes.merge_linears import MergeLinears
from fxlab.transformations.passes.remove_dead_code import RemoveDeadCode
from fxlab.transformations.passes.remove_identities import RemoveIdentities
from fxlab.transformations.registry import available, installed, offered
from fxlab.transformations.rewriting.rewrite_pass import RewritePass

__all__ = [
    "ChangeTrueDivToMulByInverse",
    "DeepCopy",
    "EliminateCommonSubexpressions",
    "FoldConstants",
    "FuseAttention",
    "FuseBatchNorm1dInConv1d",
    "FuseBatchNorm1dInLinear",
    "FuseBatchNorm2dInConv2d",
    "FuseBatchNorm3dInConv3d",
    "FuseBatchNormBeforeConv",
    "FuseBatchNormInConvTranspose",
    "FuseBiasInLinear",
    "LintAndRecompile",
    "MergeLinears",
    "RemoveDeadCode",
    "RemoveIdentities",
    "ReversibleTransformation",
    "RewritePass",
    "Transformation",
    "available",
    "compose",
    "from_callable",
    "from_pattern",
    "installed",
    "offered",
]
