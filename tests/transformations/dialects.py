"""The graph of a module in another dialect: layers as functions or operators that are given their tensors."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

DIALECTS = ("modules", "functions", "aten", "core aten")
_ATEN = torch.ops.aten


def in_dialect(gm: fx.GraphModule, dialect: str) -> fx.GraphModule:
    """Write the calls of layers in a dialect, and return a module that holds what they are given.

    Calls that no operator makes alike stay: of modules with hooks, parametrizations, or in training mode.
    """
    if dialect == "modules":
        return gm
    graph = gm.graph
    for node in list(graph.find_nodes(op="call_module")):
        module = gm.get_submodule(node.target)
        write = _WRITERS.get(type(module))
        if write is None or module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
            continue
        if len(node.args) + len(node.kwargs) != 1:
            continue
        with graph.inserting_before(node):
            tensors = {
                name: graph.get_attr(f"{node.target}.{name}") if value is not None else None
                for name, value in (*module._parameters.items(), *module._buffers.items())
            }
            result = write(graph, node.all_input_nodes[0], module, tensors, dialect)
        if result is not None:
            result.meta = dict(node.meta)
            node.replace_all_uses_with(result)
            graph.erase_node(node)
    result = fx.GraphModule(gm, graph)
    modes = {path: module.training for path, module in gm.named_modules(remove_duplicate=False)}
    for path, module in result.named_modules(remove_duplicate=False):
        module.training = modes[path]
    return result


def _linear(graph: fx.Graph, x: fx.Node, module: nn.Linear, tensors: dict[str, Any], dialect: str) -> fx.Node:
    weight, bias = tensors["weight"], tensors["bias"]
    value = x.meta.get("val", x.meta.get("tensor_meta"))
    if dialect == "core aten" and value is not None and len(value.shape) == 2:
        transposed = graph.call_function(_ATEN.permute.default, (weight, [1, 0]))
        if bias is None:
            return graph.call_function(_ATEN.mm.default, (x, transposed))
        return graph.call_function(_ATEN.addmm.default, (bias, x, transposed))
    given = (x, weight) if bias is None else (x, weight, bias)
    return graph.call_function(F.linear if dialect == "functions" else _ATEN.linear.default, given)


def _conv(
    graph: fx.Graph, x: fx.Node, module: _ConvNd, tensors: dict[str, Any], dialect: str
) -> fx.Node | None:
    if module.padding_mode != "zeros":
        return None
    dimensions = module.weight.dim() - 2
    weight, bias = tensors["weight"], tensors["bias"]
    stride, padding, dilation = (
        value if isinstance(value, str) else list(value)
        for value in (module.stride, module.padding, module.dilation)
    )
    is_transposed = isinstance(module, _ConvTransposeNd)
    output_padding = list(module.output_padding)
    is_core = dialect == "core aten" and not isinstance(padding, str)
    if is_core and not module.weight.is_complex():  # which is taken apart before
        args = (x, weight, bias, stride, padding, dilation, is_transposed, output_padding, module.groups)
        return graph.call_function(_ATEN.convolution.default, args)
    if is_transposed:
        args = (x, weight, bias, stride, padding, output_padding, module.groups, dilation)
    else:
        args = (x, weight, bias, stride, padding, dilation, module.groups)
    name = f"conv{'_transpose' if is_transposed else ''}{dimensions}d"
    if dialect == "functions":
        return graph.call_function(
            getattr(F, name), args[:2], dict(zip(_REST[is_transposed], args[2:], strict=True))
        )
    overload = "padding" if isinstance(padding, str) else "default"
    if is_transposed and dimensions > 1:
        overload = "input"
    return graph.call_function(getattr(getattr(_ATEN, name), overload), args)


_REST = {
    False: ("bias", "stride", "padding", "dilation", "groups"),
    True: ("bias", "stride", "padding", "output_padding", "groups", "dilation"),
}


def _batch_norm(
    graph: fx.Graph, x: fx.Node, module: _BatchNorm, tensors: dict[str, Any], dialect: str
) -> fx.Node | None:
    if module.training or module.running_mean is None:
        return None
    weight, bias, mean, variance = (
        tensors[name] for name in ("weight", "bias", "running_mean", "running_var")
    )
    if dialect == "functions":
        return graph.call_function(
            F.batch_norm, (x, mean, variance, weight, bias, False, module.momentum, module.eps)
        )
    args = (x, weight, bias, mean, variance)
    if dialect == "aten":
        return graph.call_function(
            _ATEN.batch_norm.default, (*args, False, module.momentum, module.eps, True)
        )
    both = graph.call_function(
        _ATEN._native_batch_norm_legit_no_training.default, (*args, module.momentum, module.eps)
    )
    return graph.call_function(operator.getitem, (both, 0))


def _dropout(
    graph: fx.Graph, x: fx.Node, module: nn.Dropout, tensors: dict[str, Any], dialect: str
) -> fx.Node | None:
    if module.training or module.inplace:
        return None
    if dialect == "functions":
        return graph.call_function(F.dropout, (x, module.p, False))
    return graph.call_function(_ATEN.dropout.default, (x, module.p, False))


_WRITERS: dict[type[nn.Module], Callable[..., fx.Node | None]] = {
    nn.Linear: _linear,
    nn.Conv1d: _conv,
    nn.Conv2d: _conv,
    nn.Conv3d: _conv,
    nn.ConvTranspose1d: _conv,
    nn.ConvTranspose2d: _conv,
    nn.ConvTranspose3d: _conv,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.BatchNorm3d: _batch_norm,
    nn.Dropout: _dropout,
}
