"""The passes: a file for each, and here the order in which sessions offer them.

Their names, and the file of each, are those of ``fxlab/__init__.pyi``; each is imported on first use.
"""

from typing import Any

from fxlab.base.first_use import import_first, stub_homes

_HOMES = {name: home for name, home in stub_homes("fxlab").items() if home.startswith(f"{__name__}.")}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_first(__name__, _HOMES[name], name)


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
