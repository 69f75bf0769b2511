"""The passes: a file for each, and here the table of their names and their order.

The names are exported by :mod:`fxlab` and :mod:`fxlab.transformations`, which take them from here.
"""

from typing import TYPE_CHECKING

from fxlab.base.first_use import on_first_use

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

ORDER = {
    "RemoveDeadCode": "first: no other pass has to look at nodes that nobody reads",
    "RemoveIdentities": "before fusions: an inactive dropout stands between nodes that they look for",
    "FoldConstants": "before fusions: they take weights, and not the arithmetic that makes them",
    "EliminateCommonSubexpressions": "before MergeLinears: equal inputs of linears become one input",
    "FuseBatchNorm2dInConv2d": "no other pass looks at convolutions, so it may stand anywhere",
    "FuseBatchNorm1dInConv1d": "as for two dimensions",
    "FuseBatchNorm3dInConv3d": "as for two dimensions",
    "FuseBatchNormInConvTranspose": "as for two dimensions",
    "FuseBatchNorm1dInLinear": "before MergeLinears: a norm of one linear does not fold into a merged one",
    "MergeLinears": "before FuseBiasInLinear: linears that each pad their input no longer share it",
    "FuseBiasInLinear": "behind MergeLinears: one input is padded for all",
    "FuseAttention": "before RemoveRepeatedHeads, which looks at the fused call",
    "RemoveRepeatedHeads": "behind FuseAttention, and before its repeated views are removed",
    "FuseRMSNorm": "before divisions become products: a mean may be written as a division by a constant",
    "FuseLayerNorm": "as for RMS norms; neither of the two matches the other's pattern",
    "FuseActivation": "before divisions become products: gelu divides by a constant",
    "ChangeTrueDivToMulByInverse": "behind the fusions, whose patterns have divisions",
    "RemoveRedundantViews": "last: attention is recognised by views that it removes",
}
"""The passes that sessions offer, lowest in the stack first, each with the reason for its place."""
