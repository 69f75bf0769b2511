"""GraphModule -> GraphModule: marked, exact, and reversible."""

from fxlab.transformations.change_truediv_to_mul_by_inverse import ChangeTrueDivToMulByInverse
from fxlab.transformations.compose import compose
from fxlab.transformations.deep_copy import DeepCopy
from fxlab.transformations.eliminate_common_subexpressions import EliminateCommonSubexpressions
from fxlab.transformations.fold_constants import FoldConstants
from fxlab.transformations.fuse_attention import FuseAttention
from fxlab.transformations.fuse_batch_norm_1d_in_conv_1d import FuseBatchNorm1dInConv1d
from fxlab.transformations.fuse_batch_norm_1d_in_linear import FuseBatchNorm1dInLinear
from fxlab.transformations.fuse_batch_norm_2d_in_conv_2d import FuseBatchNorm2dInConv2d
from fxlab.transformations.fuse_batch_norm_3d_in_conv_3d import FuseBatchNorm3dInConv3d
from fxlab.transformations.fuse_batch_norm_before_conv import FuseBatchNormBeforeConv
from fxlab.transformations.fuse_batch_norm_in_conv_transpose import FuseBatchNormInConvTranspose
from fxlab.transformations.fuse_bias_in_linear import FuseBiasInLinear
from fxlab.transformations.lint_and_recompile import LintAndRecompile
from fxlab.transformations.merge_linears import MergeLinears
from fxlab.transformations.registry import available, installed, offered
from fxlab.transformations.remove_dead_code import RemoveDeadCode
from fxlab.transformations.remove_identities import RemoveIdentities
from fxlab.transformations.rewrite_pass import RewritePass
from fxlab.transformations.transformation import ReversibleTransformation, Transformation

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
    "installed",
    "offered",
]
