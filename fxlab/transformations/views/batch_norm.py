"""Views of batch norms, in every dialect, for passes that fuse them and for authors."""

import operator

import torch
from torch import nn
from torch.fx import Node

from fxlab.base.torch_private import AnyBatchNorm
from fxlab.operators import argument, computed_by
from fxlab.operators.node_info import known_shape
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.views.layer import (
    Layer,
    layer_of_module,
    layer_of_tensors,
    made_of_tensors,
    tensor_shape,
    tensors_given,
)

_ATEN = torch.ops.aten
_RETURN_STATISTICS = (
    _ATEN._native_batch_norm_legit_no_training.default,
    _ATEN._native_batch_norm_legit.default,
    _ATEN.native_batch_norm.default,
)
"""Operators of decomposed batch norms: their first result is that of the layer."""
_STATISTICS = ("running_mean", "running_var")
_NORMS: dict[int, type[AnyBatchNorm]] = {4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
"""The classes by the dimensions of their inputs; others have ``nn.BatchNorm1d``."""


def as_batch_norm(node: Node, facts: GraphFacts) -> Layer[AnyBatchNorm] | None:
    """Return a call of a batch norm, in any dialect; ``None`` for any other node.

    Its module is in training mode if the call normalises by the batch.

    Examples
    --------
    >>> from fxlab import from_exported
    >>> model = nn.Sequential(nn.BatchNorm2d(3)).eval()
    >>> exported = from_exported(torch.export.export(model, (torch.ones(1, 3, 9, 9),)))
    >>> found = [as_batch_norm(node, GraphFacts(exported)) for node in exported.graph.nodes]
    >>> [(str(layer.node), layer.module.training) for layer in found if layer]
    [('batch_norm', False)]
    """
    if node.op == "call_module":
        return layer_of_module(node, facts, AnyBatchNorm)
    call, taken_from = node, None
    if node.target is operator.getitem and node.args[1] == 0 and isinstance(node.args[0], Node):
        call = taken_from = node.args[0]
        if call.target not in _RETURN_STATISTICS:
            return None
    elif computed_by(node) != "batch_norm":
        return None
    value = argument(call, "input")
    given = {name: argument(call, name) for name in ("weight", "bias", *_STATISTICS)}
    tensors = tensors_given(facts, **given)
    if not isinstance(value, Node) or not tensors:
        return None
    if any((one in tensors) != (other in tensors) for one, other in (("weight", "bias"), _STATISTICS)):
        return None
    eps, momentum = argument(call, "eps"), argument(call, "momentum")
    if not isinstance(eps, float | int):
        return None
    shapes = [known_shape(each) for each in (value, node)]
    dimensions = next((len(shape) for shape in shapes if shape is not None), 0)
    features = tensor_shape(next(iter(tensors.values())), facts)[0]
    module = made_of_tensors(
        _NORMS.get(dimensions, nn.BatchNorm1d),
        facts,
        tensors,
        buffers=_STATISTICS,
        training=_is_training(call),
        num_features=features,
        eps=eps,
        momentum=momentum,
        affine="weight" in tensors,
        track_running_stats="running_mean" in tensors,
    )
    return layer_of_tensors(node, value, module, tensors, facts, taken_from=taken_from)


def _is_training(call: Node) -> bool:
    if call.target is _ATEN._native_batch_norm_legit_no_training.default:
        return False
    return argument(call, "training") is not False
