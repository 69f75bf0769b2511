"""The passes that the inspector offers."""

from fxlab.transformations.change_truediv_to_mul_by_inverse import ChangeTrueDivToMulByInverse
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
from fxlab.transformations.merge_linears import MergeLinears
from fxlab.transformations.remove_dead_code import RemoveDeadCode
from fxlab.transformations.remove_identities import RemoveIdentities
from fxlab.transformations.transformation import Transformation

_PASSES: tuple[type[Transformation], ...] = (
    RemoveDeadCode,
    RemoveIdentities,
    FoldConstants,
    EliminateCommonSubexpressions,
    FuseBatchNorm2dInConv2d,
    FuseBatchNorm1dInConv1d,
    FuseBatchNorm3dInConv3d,
    FuseBatchNormInConvTranspose,
    FuseBatchNormBeforeConv,
    FuseBatchNorm1dInLinear,
    MergeLinears,
    FuseBiasInLinear,
    FuseAttention,
    ChangeTrueDivToMulByInverse,
)


def available() -> list[type[Transformation]]:
    """Return the classes of the passes that the inspector offers, in the order in which they are applied.

    Examples
    --------
    >>> [pass_().name for pass_ in available()][:2]
    ['remove-dead-code', 'remove-identities']
    """
    return list(_PASSES)
