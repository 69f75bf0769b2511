"""Writes calls in the dialect of a graph, and makes modules of existing tensors, for passes."""

import operator
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn
from torch.fx import Node
from torch.fx.node import Argument, Target

from fxlab.base.torch_private import AnyConv
from fxlab.operators import computed_by, is_aten, operator_of
from fxlab.transformations.rewriting.editor import Editor, place_of
from fxlab.transformations.views.layer import Layer
from fxlab.transformations.views.linear import TransposedLinear

_ATEN = torch.ops.aten
_DECOMPOSED = (_ATEN.addmm.default, _ATEN.mm.default)
_PRODUCTS = ("addmm", "mm")

Call = tuple[Target, tuple[Argument, ...], dict[str, Argument]]
"""The target, the arguments and the keyword arguments of a call."""


def layer_call(layer: Layer[Any], value: Node, tensors: Mapping[str, Node], edit: Editor) -> Call:
    """Return the call of a layer with given tensors, in the dialect of another layer.

    Parameters
    ----------
    layer
        The other layer.
    value
        The input of the call.
    tensors
        The nodes of its weight and, if it has one, its bias.
    edit
        Inserts a transposition of the weight, if the dialect has one.
    """
    if layer.inner and computed_by(layer.node) not in _PRODUCTS:  # a product of batches
        given = [tensors[name] for name in ("weight", "bias") if name in tensors]
        return _ATEN.linear.default, (value, *given), {}
    if computed_by(layer.node) not in _PRODUCTS:
        return _called_with(layer.node, {"input": value, "bias": None, **tensors})
    weight, bias = tensors["weight"], tensors.get("bias")
    for transposition in layer.inner:
        meta = place_of(weight)
        if isinstance(value_of := weight.meta.get("val"), torch.Tensor):
            with torch.no_grad():
                meta["val"] = value_of.t()
        weight = edit.insert_before(
            layer.node,
            "call_function",
            transposition.target,
            (weight, *transposition.args[1:]),
            name=f"{weight.name}_transposed",
            meta=meta,
        )
    with_bias, without = (
        (_ATEN.addmm.default, _ATEN.mm.default) if is_aten(layer.node) else (torch.addmm, torch.mm)
    )
    return (without, (value, weight), {}) if bias is None else (with_bias, (bias, value, weight), {})


def change_layer(layer: Layer[Any], value: Node, tensors: Mapping[str, Node], edit: Editor) -> None:
    """Make a layer read a value and the tensors of :meth:`Editor.replace_layers`."""
    if not layer.is_module:
        target, args, kwargs = layer_call(layer, value, tensors, edit)
        edit.change(layer.node, target=target, args=args, kwargs=kwargs)
        edit.erase_tensors(layer)
    elif value is not layer.input:
        edit.change(layer.node, args=(value,), kwargs={})


def slice_call(node: Node, value: Node, start: int, stop: int) -> Call:
    """Return the call that slices the last dimension of a value, in the dialect of ``node``."""
    if is_aten(node):
        return _ATEN.slice.Tensor, (value, -1, start, stop), {}
    index: Any = (Ellipsis, slice(start, stop))
    return operator.getitem, (value, index), {}


def contiguous_call(node: Node, value: Node) -> tuple[str, Target, tuple[Argument, ...], dict[str, Argument]]:
    """Return the op and the call that makes a value contiguous, in the dialect of ``node``."""
    if node.target in _DECOMPOSED:
        return "call_function", _ATEN.clone.default, (value,), {"memory_format": torch.contiguous_format}
    if is_aten(node):
        return "call_function", _ATEN.contiguous.default, (value,), {}
    return "call_method", "contiguous", (value,), {}


def pad_call(node: Node, value: Node) -> Call:
    """Return the call that appends a one to the last dimension of a value, in the dialect of ``node``."""
    if node.target in _DECOMPOSED:
        return _ATEN.constant_pad_nd.default, (value, [0, 1], 1.0), {}
    if is_aten(node):
        return _ATEN.pad.default, (value, [0, 1], "constant", 1.0), {}
    return nn.functional.pad, (value, (0, 1)), {"value": 1.0}


def _called_with(node: Node, given: Mapping[str, Node | None]) -> Call:
    """Return the call of a node with some arguments replaced, by the names of its schema."""
    called = operator_of(node)
    assert called is not None
    args, kwargs, names = list(node.args), dict(node.kwargs), list(called.parameters)
    for name, value in given.items():
        position = names.index(name)
        if position < len(args):
            args[position] = value
        elif name in kwargs or value is not None:
            kwargs[name] = value
    while args and args[-1] is None:  # nobody writes that there is no bias
        args.pop()
    return node.target, tuple(args), {name: value for name, value in kwargs.items() if value is not None}


L = TypeVar("L", bound=nn.Linear | AnyConv)


def new_layer(weight: torch.Tensor, bias: torch.Tensor | None, like: L) -> L:
    """Make a linear layer or a convolution of the class, geometry, mode and ``requires_grad`` of another.

    Parameters
    ----------
    weight
        Of as many dimensions as ``like.weight``; a linear layer may have other sizes.
    bias
        Of shape ``(out_features,)`` or ``(out_channels,)``, or ``None``.
    like
        The other layer.
    """
    layer = type(like).__new__(type(like))
    nn.Module.__init__(layer)
    if isinstance(layer, nn.Linear):
        sizes = weight.shape if isinstance(like, TransposedLinear) else reversed(weight.shape)
        layer.in_features, layer.out_features = sizes
    else:
        geometry = (*like.__constants__, "transposed", "_reversed_padding_repeated_twice")
        vars(layer).update({name: getattr(like, name) for name in geometry})
    layer._parameters["weight"] = nn.Parameter(weight, like.weight.requires_grad)
    layer._parameters["bias"] = None
    if bias is not None:
        source = like._parameters["bias"]
        trained = (like.weight if source is None else source).requires_grad
        layer._parameters["bias"] = nn.Parameter(bias, trained)
    layer.training = like.training
    return layer
