"""The passes. This is the table of their names: a pass is a file, a line here, and its place in the order.

The names are exported by :mod:`fxlab` and :mod:`fxlab.transformations`, which take them from here.
"""

from typing import TYPE_CHECKING

from fxlab.first_use import on_first_use

if TYPE_CHECKING:
    from fxlab.transformations.passes.activation_checkpointing import (
        ActivationCheckpointing as ActivationCheckpointing,
    )
    from fxlab.transformations.passes.change_true_div_to_mul_by_inverse import (
        ChangeTrueDivToMulByInverse as ChangeTrueDivToMulByInverse,
    )
    from fxlab.transformations.passes.deep_copy import DeepCopy as DeepCopy
    from fxlab.transformations.passes.eliminate_common_subexpressions import (
        EliminateCommonSubexpressions as EliminateCommonSubexpressions,
    )
    from fxlab.transformations.passes.fold_constants import FoldConstants as FoldConstants
    from fxlab.transformations.passes.fuse_activation import FuseActivation as FuseActivation
    from fxlab.transformations.passes.fuse_attention import FuseAttention as FuseAttention
    from fxlab.transformations.passes.fuse_batch_norm.in_conv import (
        FuseBatchNorm1dInConv1d as FuseBatchNorm1dInConv1d,
    )
    from fxlab.transformations.passes.fuse_batch_norm.in_conv import (
        FuseBatchNorm1dInLinear as FuseBatchNorm1dInLinear,
    )
    from fxlab.transformations.passes.fuse_batch_norm.in_conv import (
        FuseBatchNorm2dInConv2d as FuseBatchNorm2dInConv2d,
    )
    from fxlab.transformations.passes.fuse_batch_norm.in_conv import (
        FuseBatchNorm3dInConv3d as FuseBatchNorm3dInConv3d,
    )
    from fxlab.transformations.passes.fuse_batch_norm.in_conv import (
        FuseBatchNormInConvTranspose as FuseBatchNormInConvTranspose,
    )
    from fxlab.transformations.passes.fuse_bias_in_linear import FuseBiasInLinear as FuseBiasInLinear
    from fxlab.transformations.passes.fuse_norms import FuseLayerNorm as FuseLayerNorm
    from fxlab.transformations.passes.fuse_norms import FuseRMSNorm as FuseRMSNorm
    from fxlab.transformations.passes.lint_and_recompile import LintAndRecompile as LintAndRecompile
    from fxlab.transformations.passes.merge_linears import MergeLinears as MergeLinears
    from fxlab.transformations.passes.remove_dead_code import RemoveDeadCode as RemoveDeadCode
    from fxlab.transformations.passes.remove_identities import RemoveIdentities as RemoveIdentities
    from fxlab.transformations.passes.remove_redundant_views import (
        RemoveRedundantViews as RemoveRedundantViews,
    )
    from fxlab.transformations.passes.remove_repeated_heads import RemoveRepeatedHeads as RemoveRepeatedHeads
else:
    __all__, __getattr__ = on_first_use(__name__)

OFFERED = (
    "RemoveDeadCode", "RemoveIdentities", "FoldConstants", "EliminateCommonSubexpressions",
    "FuseBatchNorm2dInConv2d", "FuseBatchNorm1dInConv1d", "FuseBatchNorm3dInConv3d",
    "FuseBatchNormInConvTranspose", "FuseBatchNorm1dInLinear", "MergeLinears", "FuseBiasInLinear",
    "FuseAttention", "RemoveRepeatedHeads", "FuseRMSNorm", "FuseLayerNorm", "FuseActivation",
    "ChangeTrueDivToMulByInverse", "RemoveRedundantViews",
)  # fmt: skip
"""The names of those that sessions offer, in the order of their application."""
