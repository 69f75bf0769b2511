"""Whether a node does nothing but compute its result, and the same one from the same inputs."""

import torch
from torch import nn
from torch.fx import Node

from fxlab.transformations.dropout import DROPOUT_FUNCTIONS, DROPOUT_MODULES, argument, called, why_drops
from fxlab.transformations.graph_facts import GraphFacts
from fxlab.transformations.module_safety import why_hooked, why_not_plain
from fxlab.transformations.node_shape import called_name
from fxlab.transformations.writes import is_of_torch, written_inputs

_PURE_TEXT = """
    add sub rsub mul multiply truediv div divide true_divide floordiv floor_divide mod remainder fmod pow
    neg negative pos abs absolute sign exp expm1 exp2 log log2 log10 log1p sqrt rsqrt square reciprocal sin
    cos tan asin acos atan atan2 sinh cosh tanh erf erfc sigmoid floor ceil round trunc frac clamp clip
    clamp_min clamp_max maximum minimum max min amax amin argmax argmin sum mean var std prod norm all any
    cumsum cumprod logsumexp sort argsort topk median
    matmul bmm mm mv addmm baddbmm dot outer einsum linear bilinear conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d scaled_dot_product_attention
    relu relu6 gelu silu mish elu celu selu leaky_relu softplus softsign logsigmoid hardswish hardtanh
    hardsigmoid softmax log_softmax softmin glu layer_norm group_norm rms_norm batch_norm normalize
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d interpolate pad unfold
    fold pixel_shuffle pixel_unshuffle one_hot embedding l1_loss mse_loss cross_entropy
    eq ne lt le gt ge and_ or_ xor invert inv not_ logical_and logical_or logical_not logical_xor
    bitwise_and bitwise_or bitwise_not bitwise_xor isnan isinf isfinite where masked_fill is_ is_not
    cat concat concatenate stack hstack vstack tril triu diag diagonal repeat repeat_interleave tile roll
    flip gather index_select take_along_dim lerp addcmul addcdiv
    zeros ones full arange linspace tensor scalar_tensor zeros_like ones_like full_like new_zeros new_ones
    new_full new_tensor eye clone
    view view_as reshape reshape_as flatten unflatten transpose permute t adjoint swapaxes swapdims movedim
    moveaxis unsqueeze squeeze expand expand_as broadcast_to contiguous select narrow chunk split
    tensor_split unbind detach alias
    to type type_as float double half bfloat16 long int short bool
    getitem __getitem__ size dim ndimension numel nelement stride item len __len__ is_floating_point
    is_complex is_contiguous tuple slice sym_int sym_float sym_max sym_min sym_sqrt sym_not sym_sum
"""
_PURE = frozenset(_PURE_TEXT.split())
"""The functions and methods of torch, ``operator``, ``builtins`` and ``math`` that only compute, by name."""

_PURE_ATTRIBUTES = frozenset(
    {
        "shape",
        "ndim",
        "dtype",
        "device",
        "layout",
        "requires_grad",
        "itemsize",
        "nbytes",
        "T",
        "mT",
        "H",
        "mH",
    }
    | {"real", "imag", "is_cuda", "is_meta"}
)
_PURE_MODULES: frozenset[type[nn.Module]] = frozenset(
    {
        *(nn.Linear, nn.Bilinear, nn.Identity, nn.Flatten, nn.Unflatten, nn.Embedding),
        *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
        *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm),
        *(nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.CELU, nn.SELU, nn.LeakyReLU, nn.PReLU),
        *(nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Softsign, nn.Hardswish, nn.Hardtanh, nn.Hardsigmoid, nn.GLU),
        *(nn.Softmax, nn.LogSoftmax, nn.PixelShuffle, nn.Upsample, nn.ZeroPad2d),
        *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
        *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool2d),
        *DROPOUT_MODULES,
    }
)
_STATISTICS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def why_impure(node: Node, facts: GraphFacts) -> str:
    """Return why running a node may do more than compute its result; empty if it is known not to.

    A node that is pure gives the same result whenever its inputs hold the same. What is not known to be pure
    is not: a function of somebody's own, or one that this module has not heard of.
    """
    if node.op in ("placeholder", "output"):
        return f"it is an {'input' if node.op == 'placeholder' else 'output'} of the graph"
    if node.op == "get_attr":
        return ""
    if written_inputs(node, facts.graph_module):
        return "it may write what it reads"
    if node.op == "call_module":
        return _why_module_is_impure(node, facts)
    return _why_call_is_impure(node)


def _why_module_is_impure(node: Node, facts: GraphFacts) -> str:
    module = facts.module(node)
    if type(module) not in _PURE_MODULES or module is None:
        return f"a {type(module).__name__} may do more than compute its result"
    if reason := why_not_plain(module, type(module)) or why_hooked(facts, module):
        return reason
    if module.training and isinstance(module, _STATISTICS):
        return "a batch norm in training mode writes its running statistics"
    if module.training and isinstance(module, DROPOUT_MODULES):
        return "a dropout in training mode draws random numbers"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "an embedding with max_norm writes its weight"
    return ""


def is_pure_in_evaluation(node: Node, facts: GraphFacts) -> bool:
    """Tell whether a node calls a module that does more than compute its result in training mode."""
    return isinstance(facts.module(node), (*_STATISTICS, *DROPOUT_MODULES))


def _why_call_is_impure(node: Node) -> str:
    if node.op == "call_function" and node.is_impure():
        return f"{called_name(node) or node.target} has side effects"
    if isinstance(node.target, torch._ops.OpOverload):
        is_torchs = node.target.namespace in ("aten", "prims")
        return "" if is_torchs else f"{node.target} may do more than compute its result"
    if node.op == "call_function" and not is_of_torch(node.target):
        return f"{called_name(node) or node.target} may do more than compute its result"
    if node.target is getattr:
        attribute = node.args[1] if len(node.args) > 1 else None
        return "" if attribute in _PURE_ATTRIBUTES else f"reading {attribute} may have side effects"
    if node.op == "call_function" and called(node) in DROPOUT_FUNCTIONS:
        return why_drops(node)
    name = called_name(node)
    if name not in _PURE:
        return f"{name} is not known to do nothing but compute its result"
    return _why_call_has_state(node, name)


def _why_call_has_state(node: Node, name: str) -> str:
    if name == "scaled_dot_product_attention" and argument(node, 4, "dropout_p", 0.0) != 0:
        return "it draws random numbers"
    return ""
