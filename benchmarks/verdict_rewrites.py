"""Rewrites that are right, by fxlab, by others and by hand, for ``benchmarks.verdicts``."""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fxlab.graphs.graph_diff import graph_diff
from fxlab.models.graph_modules.copies import share_tensors_copy
from fxlab.transformations import available

Rewrite = Callable[[GraphModule], GraphModule]


def rewrites() -> dict[str, Rewrite]:
    """Return all of them by name; they are given a copy."""
    result: dict[str, Rewrite] = {f"fxlab {cls().name}": _apply(cls()) for cls in available()}
    result["torch fuse"] = _fused
    result["torch remove_dropout"] = _without_dropout
    replaced = {
        "silu as a product": (_calls(F.silu, nn.SiLU), _silu),
        "softmax as a quotient": (_calls(F.softmax, torch.softmax, "softmax", nn.Softmax), _softmax),
        "layer norm written out": (_calls(nn.LayerNorm, F.layer_norm), _layer_norm),
        "linear in two parts": (_calls(nn.Linear), _linear_in_parts),
        "linear as a product of its transpose": (_calls(nn.Linear), _linear_transposed),
        "linear for each half of the batch": (_calls(nn.Linear), _in_halves),
        "convolution for each half of the batch": (_calls(nn.Conv1d, nn.Conv2d, nn.Conv3d), _in_halves),
        "convolution as unfolding": (_calls(nn.Conv2d), _convolution),
        "batch norm as one product": (_calls(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _batch_norm),
        "attention written out": (_calls(F.scaled_dot_product_attention), _attention),
        "experts one by one": (_calls(torch._grouped_mm, F.grouped_mm), _grouped),
        "product by another order": (_calls(torch.matmul, operator.matmul), _matmul),
    }
    for name, (matches, target) in replaced.items():
        result[name] = partial(_replaced, matches=matches, target=target)  # type: ignore[arg-type]
    result["neurons in another order"] = _reordered
    result["scale moved into the next linear"] = _scale_moved
    return result


def correct_rewrites(graph: GraphModule) -> Iterator[tuple[str, GraphModule]]:
    """Yield each rewrite that changes a graph, with its name."""
    for name, rewrite in rewrites().items():
        changed = rewrite(share_tensors_copy(graph) if name.startswith("fxlab") else copy.deepcopy(graph))
        if len(graph_diff(graph, changed)):
            yield name, changed


def _apply(pass_: Any) -> Rewrite:
    return lambda graph: pass_(graph)


def _fused(graph: GraphModule) -> GraphModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch.fx.experimental.optimization import fuse

        # It traces what it is given anew, which not every graph can be.
        if not any(isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) for m in graph.modules()):
            return graph
        return fuse(graph, no_trace=True)


def _without_dropout(graph: GraphModule) -> GraphModule:
    for node in list(graph.graph.nodes):
        if node.op == "call_module" and isinstance(graph.get_submodule(node.target), nn.Dropout):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.recompile()
    return graph


def _calls(*targets: Any) -> Callable[[GraphModule, Node], bool]:
    def matches(graph: GraphModule, node: Node) -> bool:
        if node.op == "call_module":
            return type(graph.get_submodule(str(node.target))) in targets
        return node.target in targets

    return matches


def _replaced(
    graph: GraphModule, *, matches: Callable[[GraphModule, Node], bool], target: Callable[..., Any]
) -> GraphModule:
    """Call another function wherever a call matches; it is given the module, if a module was called."""
    for index, node in enumerate(list(graph.graph.nodes)):
        if not matches(graph, node):
            continue
        if node.op == "call_module":
            module = graph.get_submodule(str(node.target))
            name = f"rewritten_{index}"
            graph.add_submodule(name, _Calls(target, module))
            node.target = name
        else:
            node.op, node.target = "call_function", target
    graph.recompile()
    return graph


class _Calls(nn.Module):
    def __init__(self, function: Callable[..., Any], module: nn.Module) -> None:
        super().__init__()
        self.function, self.module = function, module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, module=self.module, **kwargs)


def _silu(x: torch.Tensor, inplace: bool = False, module: Any = None) -> torch.Tensor:
    return x * x.sigmoid()


def _softmax(x: torch.Tensor, dim: int = -1, module: Any = None, dtype: Any = None, **_: Any) -> torch.Tensor:
    dim = dim if module is None else module.dim
    wide = x.to(dtype or x.dtype).to(torch.promote_types(x.dtype, torch.float32))
    powers = (wide - wide.amax(dim, keepdim=True)).exp()
    return (powers / powers.sum(dim, keepdim=True)).to(dtype or x.dtype)


def _layer_norm(
    x: torch.Tensor,
    shape: Any = None,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    module: Any = None,
) -> torch.Tensor:
    if module is not None:
        shape, weight, bias, eps = module.normalized_shape, module.weight, module.bias, module.eps
    dims = tuple(range(-len(shape), 0))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    centred = wide - wide.mean(dims, keepdim=True)
    result = centred * (centred.square().mean(dims, keepdim=True) + eps).rsqrt()
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias).to(x.dtype)


def _linear_in_parts(x: torch.Tensor, module: Any) -> torch.Tensor:
    half = x.shape[-1] // 2
    first = F.linear(x[..., :half], module.weight[:, :half], module.bias)
    return first + F.linear(x[..., half:], module.weight[:, half:])


def _linear_transposed(x: torch.Tensor, module: Any) -> torch.Tensor:
    y = (module.weight @ x.transpose(-1, -2)).transpose(-1, -2) if x.dim() > 1 else module.weight @ x
    return y if module.bias is None else y + module.bias


def _in_halves(x: torch.Tensor, module: Any) -> torch.Tensor:
    half = max(1, x.shape[0] // 2)
    return torch.cat([module(part) for part in x.split(half)])


def _convolution(x: torch.Tensor, module: Any) -> torch.Tensor:
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        return module(x)
    k, groups = module.kernel_size, module.groups
    columns = F.unfold(x, k, module.dilation, module.padding, module.stride)
    columns = columns.view(x.shape[0], groups, -1, columns.shape[-1])
    y = module.weight.view(groups, -1, columns.shape[2]) @ columns
    sizes = [
        (x.shape[2 + i] + 2 * module.padding[i] - module.dilation[i] * (k[i] - 1) - 1) // module.stride[i] + 1
        for i in (0, 1)
    ]
    y = y.reshape(x.shape[0], -1, *sizes)
    return y if module.bias is None else y + module.bias[:, None, None]


def _batch_norm(x: torch.Tensor, module: Any) -> torch.Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    mean, variance, weight, bias = (
        t.to(wide) for t in (module.running_mean, module.running_var, module.weight, module.bias)
    )
    scale = weight * (variance + module.eps).rsqrt()
    shape = (1, -1, *[1] * (x.dim() - 2))
    return (x * scale.view(shape) + (bias - mean * scale).view(shape)).to(x.dtype)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v = (tensor.to(wide) for tensor in (query, key, value))
    if enable_gqa:
        k, v = (tensor.repeat_interleave(q.shape[-3] // tensor.shape[-3], -3) for tensor in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return (scores.softmax(-1) @ v).to(query.dtype)


def _grouped(x: torch.Tensor, experts: torch.Tensor, offs: torch.Tensor, **_: Any) -> torch.Tensor:
    starts = [0, *offs.tolist()]
    parts = [x[a:b] @ expert for a, b, expert in zip(starts, starts[1:], experts, strict=False)]
    return torch.cat([*parts, x.new_zeros(x.shape[0] - starts[-1], experts.shape[-1])])


def _matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dim() < 2 or b.dim() < 2:
        return a @ b
    return (b.transpose(-1, -2) @ a.transpose(-1, -2)).transpose(-1, -2)


_POINTWISE = (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Dropout)


def _pairs(graph: GraphModule) -> Iterator[tuple[nn.Linear, nn.Linear, list[Node]]]:
    """Yield two linears where the second alone reads the first, with the pointwise modules in between."""
    for node in graph.graph.nodes:
        if node.op != "call_module" or type(graph.get_submodule(node.target)) is not nn.Linear:
            continue
        between, last = [], node
        while len(last.users) == 1:
            last = next(iter(last.users))
            if last.op != "call_module":
                break
            module = graph.get_submodule(last.target)
            if type(module) is nn.Linear:
                yield graph.get_submodule(node.target), module, between
                break
            if type(module) not in _POINTWISE:
                break
            between.append(last)


def _reordered(graph: GraphModule) -> GraphModule:
    """Put the neurons between two linears in another order: values move, sums are taken otherwise."""
    for index, (first, second, _) in enumerate(list(_pairs(graph))):
        order = torch.randperm(first.out_features, generator=torch.Generator().manual_seed(index))
        first.weight = nn.Parameter(first.weight[order])
        if first.bias is not None:
            first.bias = nn.Parameter(first.bias[order])
        second.weight = nn.Parameter(second.weight[:, order])
    return graph


def _scale_moved(graph: GraphModule) -> GraphModule:
    """Multiply one linear and divide the next by no power of two, where a ReLU is between."""
    for first, second, between in list(_pairs(graph)):
        if all(isinstance(graph.get_submodule(str(node.target)), nn.ReLU | nn.Dropout) for node in between):
            for tensor in filter(lambda t: t is not None, (first.weight, first.bias)):
                tensor.data = (tensor.double() * 1.7).to(tensor.dtype)
            second.weight.data = (second.weight.double() / 1.7).to(second.weight.dtype)
    return graph
