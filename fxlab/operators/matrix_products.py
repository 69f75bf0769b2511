"""Operators that are known to multiply no matrices: counts of floating-point operations leave them out."""

from functools import lru_cache

import torch

from fxlab.base.torch_private import OpOverload
from fxlab.operators.operator import one_name
from fxlab.operators.results import FILLED, INTEGERS, MOVES, STEPS

# Older torches have no tag for reductions; less is known with them.
_TAG_NAMES = ("pointwise", "reduction", "view_copy", "inplace_view")
_TAGS = {getattr(torch.Tag, name) for name in _TAG_NAMES if hasattr(torch.Tag, name)}
TORCH_NAMESPACES = ("aten", "prims", "prim", "_c10d_functional")
"""The namespaces of torch's operators that graphs call."""
_FAMILIES = (
    *("adaptive_avg_pool", "adaptive_max_pool", "avg_pool", "max_pool", "max_unpool", "fractional_max_pool"),
    *("upsample_", "grid_sampler_", "reflection_pad", "replication_pad", "constant_pad_nd", "pixel_"),
    *("index_", "scatter", "masked_", "unique", "embedding", "nll_loss", "binary_cross_entropy", "assert_"),
    *("quantize_per_", "rand", "empty", "nan", "cum", "logcumsumexp", "hist"),
)
"""Prefixes of families of such operators."""
_NAMES_TEXT = """
    softmax log_softmax safe_softmax batch_norm cudnn_batch_norm miopen_batch_norm layer_norm group_norm
    renorm weight_norm_interface median mode trace allclose sort topk kthvalue searchsorted bucketize
    col2im im2col copy resize item local_scalar_dense nonzero_static to_copy to_dense lift
    cat stack reshape repeat_interleave put select_scatter diagonal_scatter as_strided_scatter
    full fill zero scalar_tensor arange linspace logspace eye complex polar
    dropout fused_dropout bernoulli normal uniform exponential multinomial poisson glu rrelu_with_noise
    mse_loss smooth_l1_loss huber_loss functional_assert_async
    nested_tensor_from_mask pack_padded_sequence amp_foreach_non_finite_check_and_unscale
    thnn_fused_lstm_cell thnn_fused_gru_cell make_per_tensor_quantized_tensor dequantize
"""
_MOVES = {name.strip("_") for name in MOVES}
_NAMES = frozenset(_NAMES_TEXT.split()) | _MOVES | FILLED.keys() | INTEGERS | STEPS


def multiplies_no_matrices(overload: OpOverload) -> bool:
    """Tell whether an operator is known to make no products of matrices, convolutions or the like."""
    if overload.namespace not in TORCH_NAMESPACES:
        return False
    if _TAGS.intersection(overload.tags) or overload.is_view:
        return True
    name = _plain_name(overload._opname)
    return name in _NAMES or name in _tagged_names() or name.startswith(_FAMILIES)


def _plain_name(name: str) -> str:
    name = name.removeprefix("_foreach_").strip("_").removeprefix("native_").removeprefix("new_")
    for end in ("_legit_no_training", "_legit", "_with_indices", "_like"):
        name = name.removesuffix(end)
    return one_name(name)


@lru_cache(maxsize=1)
def _tagged_names() -> frozenset[str]:
    """The names of operators that torch has tagged; it does not tag all in-place and ``out`` variants."""
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten)]
    overloads = [
        getattr(packet, name or "default")
        for packet in packets
        if isinstance(packet, torch._ops.OpOverloadPacket)
        for name in packet._overload_names
    ]
    return frozenset(o._opname.strip("_") for o in overloads if _TAGS.intersection(o.tags))
