"""Views of convolutions, also transposed, in every dialect, for passes that fuse them and for authors."""

import re
from typing import Any

from torch import nn
from torch.fx import Node

from fxlab.base.torch_private import AnyConv, AnyConvTranspose
from fxlab.operators import argument, computed_by
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
