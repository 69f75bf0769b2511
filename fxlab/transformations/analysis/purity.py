"""Purity: no side effects, and equal results for equal inputs."""

import torch
from torch import nn
from torch.fx import Node

from fxlab.operators import why_not_pure
from fxlab.reasons import Reason, Refusal
from fxlab.transformations.analysis.aliasing_and_writes import written_inputs
from fxlab.transformations.analysis.dropout import DROPOUT_FUNCTIONS, DROPOUT_MODULES, called, why_drops
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_hooked, why_not_plain
from fxlab.transformations.analysis.node_shape import called_name

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


def why_impure(node: Node, facts: GraphFacts) -> Refusal | None:
    """Return why running a node may do more than compute its result; ``None`` if it is known not to.

    A node that is pure gives the same result whenever its inputs hold the same. What is not known to be pure
    is not: a function of somebody's own, or one that this module has not heard of.
    """
    if node.op in ("placeholder", "output"):
        return Reason.INPUT_OR_OUTPUT(kind="input" if node.op == "placeholder" else "output")
    if node.op == "get_attr":
        return None
    if written_inputs(node, facts.graph_module):
        return Reason.MAY_WRITE_INPUTS()
    if node.op == "call_module":
        return _why_module_is_impure(node, facts)
    return _why_call_is_impure(node)


def is_called_for_effect(node: Node) -> bool:
    """Tell whether a node has no result that could be used, such as a guard or an assertion."""
    if node.op == "call_module":
        owner = node.graph.owning_module
        return owner is not None and getattr(owner.get_submodule(str(node.target)), "_is_impure", False)
    return node.op == "call_function" and node.target in torch.fx.node._side_effectful_functions


def _why_module_is_impure(node: Node, facts: GraphFacts) -> Refusal | None:
    module = facts.module(node)
    if type(module) not in _PURE_MODULES or module is None:
        return Reason.MAY_HAVE_SIDE_EFFECTS(called=f"a {type(module).__name__}")
    if reason := why_not_plain(module, type(module)) or why_hooked(facts, module):
        return reason
    if module.training and isinstance(module, _STATISTICS):
        return Reason.WRITES_STATE(module="a batch norm in training mode", state="running statistics")
    if module.training and isinstance(module, DROPOUT_MODULES):
        return Reason.ACTIVE_DROPOUT(training=True)
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return Reason.WRITES_STATE(module="an embedding with max_norm", state="weight")
    return None


def is_pure_in_evaluation(node: Node, facts: GraphFacts) -> bool:
    """Tell whether a node calls a module that does more than compute its result in training mode."""
    return isinstance(facts.module(node), (*_STATISTICS, *DROPOUT_MODULES))


def _why_call_is_impure(node: Node) -> Refusal | None:
    if node.op == "call_function" and node.is_impure():
        return Reason.SIDE_EFFECTS(called=called_name(node) or node.target)
    if node.op == "call_function" and called(node) in DROPOUT_FUNCTIONS:
        return why_drops(node)
    return why_not_pure(node)
