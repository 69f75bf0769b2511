"""Views of convolutions, also transposed, and of batch norms, in every dialect, for passes that fuse both."""

import operator
import re
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from fxlab.base.torch_private import AnyBatchNorm, AnyConv, AnyConvTranspose
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

_CLASSES: dict[tuple[bool, int], type[AnyConv]] = {
    (False, 1): nn.Conv1d, (False, 2): nn.Conv2d, (False, 3): nn.Conv3d, (True, 1): nn.ConvTranspose1d,
    (True, 2): nn.ConvTranspose2d, (True, 3): nn.ConvTranspose3d,
}  # fmt: skip
_NAME = re.compile(r"conv(?P<transposed>_transpose)?(?P<dimensions>[123])d|convolution")


def as_convolution(node: Node, facts: GraphFacts) -> Layer[AnyConv] | None:
    """Return a call of a convolution, in any dialect; ``None`` for any other node.

    A call that reads tensors can only pad with zeros. Its weight is a parameter or buffer of the model, or an
    input of the graph, and then it cannot be replaced.

    Examples
    --------
    >>> import torch
    >>> from fxlab import from_exported
    >>> model = nn.Conv2d(3, 8, 3, stride=2, bias=False)
    >>> exported = from_exported(torch.export.export(nn.Sequential(model), (torch.ones(1, 3, 9, 9),)))
    >>> found = [as_convolution(node, GraphFacts(exported)) for node in exported.graph.nodes]
    >>> [(str(layer.node), layer.module) for layer in found if layer]
    [('conv2d', Conv2d(3, 8, kernel_size=(3, 3), stride=(2, 2), bias=False))]
    """
    if node.op == "call_module":
        layer = layer_of_module(node, facts, AnyConv)
        return layer or _transposed_to_a_size(node, facts)
    name = _NAME.fullmatch(computed_by(node))
    if name is None:
        return None
    value = argument(node, "input")
    tensors = tensors_given(facts, weight=argument(node, "weight"), bias=argument(node, "bias"))
    if not isinstance(value, Node) or tensors is None or "weight" not in tensors:
        return None
    shape = tensor_shape(tensors["weight"], facts)
    transposed = argument(node, "transposed") if name[0] == "convolution" else bool(name["transposed"])
    dimensions = len(shape) - 2
    module_class = _CLASSES.get((transposed, dimensions))
    settings = _settings(node, dimensions)
    if module_class is None or settings is None or name["dimensions"] not in (None, str(dimensions)):
        return None
    first, second = shape[0], shape[1] * settings["groups"]
    module = made_of_tensors(
        module_class,
        facts,
        tensors,
        in_channels=first if transposed else second,
        out_channels=second if transposed else first,
        kernel_size=tuple(shape[2:]),
        transposed=transposed,
        padding_mode="zeros",
        _reversed_padding_repeated_twice=_padding_twice(settings["padding"], shape[2:], settings),
        **settings,
    )
    return layer_of_tensors(node, value, module, tensors, facts)


def _transposed_to_a_size(node: Node, facts: GraphFacts) -> Layer[AnyConv] | None:
    """Return a call of a transposed convolution with a given size of its result."""
    module = facts.module(node)
    value = node.args[0] if node.args else node.kwargs.get("input")
    if not isinstance(module, AnyConvTranspose) or not isinstance(value, Node):
        return None
    return Layer(node, value, module, str(node.target))


def _settings(node: Node, dimensions: int) -> dict[str, Any] | None:
    """Return the geometry of a call, as in a module; ``None`` if a part of it is computed."""
    settings: dict[str, Any] = {}
    for name, missing in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0)):
        given = argument(node, name)
        if name == "padding" and isinstance(given, str):
            settings[name] = given
            continue
        sizes = [missing] if given is None else list(given) if isinstance(given, list | tuple) else [given]
        sizes = sizes * dimensions if len(sizes) == 1 else sizes
        if len(sizes) != dimensions or not all(type(size) is int for size in sizes):
            return None
        settings[name] = tuple(sizes)
    settings["groups"] = argument(node, "groups")
    return settings if type(settings["groups"]) is int else None


def _padding_twice(padding: Any, kernel: Any, settings: dict[str, Any]) -> list[int]:
    """Return the padding of each side, the last dimension first, as convolutions of ``torch.nn`` keep it."""
    if padding == "valid":
        return [0] * 2 * len(kernel)
    if padding == "same":
        totals = [d * (size - 1) for d, size in zip(settings["dilation"], kernel, strict=True)]
        return [side for total in reversed(totals) for side in (total // 2, total - total // 2)]
    return [size for size in reversed(padding) for _ in range(2)]


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
