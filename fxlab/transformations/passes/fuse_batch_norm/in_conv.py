"""What the passes that fuse a batch norm into the convolution before it have in common."""

from fxlab.transformations.passes.fuse_batch_norm.folding import FuseBatchNorm, LayerAndNorm, why_no_batch


class FuseBatchNormInConv(FuseBatchNorm):
    """A pass that fuses batch norms into the convolutions before them."""

    def why_other(self, candidate: LayerAndNorm) -> str:
        """Refuse 1d batch norms of what may be a single sample."""
        return why_no_batch(candidate)
