"""Merge linear layers that read the same input."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.operators.node_info import known_shape, stack_entry
from fxlab.transformations.analysis.dtypes_and_sizes import with_last_size
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed
from fxlab.transformations.analysis.strides import needs_contiguous
from fxlab.transformations.journal.module_tree import carry_tensor, split_path
from fxlab.transformations.rewriting.dialects import Call, contiguous_call, layer_call, new_layer, slice_call
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import RewritePass
from fxlab.transformations.views.layer import Layer
from fxlab.transformations.views.linear import as_linear, output_dimension

_VIEWS = (torch.ops.aten.view.default, torch.ops.aten.expand.default)


@dataclass(frozen=True)
class LinearGroup:
    """Calls of linear layers that can be one call, in graph order; or a single call."""

    layers: tuple[Layer[nn.Linear], ...]
    contiguous: tuple[bool, ...]
    """Whether each result must be contiguous, as that of a linear layer is."""
    apart: str = ""
    """The difference of one call from the most similar other that reads the same input, in words."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The calls."""
        return tuple(layer.node for layer in self.layers)

    @property
    def linears(self) -> tuple[nn.Linear, ...]:
        """The layers that are called."""
        return tuple(layer.module for layer in self.layers)


@dataclass(frozen=True)
class MergeLinears(RewritePass[LinearGroup]):
    """Merge linear layers that read the same input into one bigger linear layer.

    The weights are stacked, and each layer becomes a slice of the merged result. Layers are merged if they
    agree in dtype, device, mode, presence of a bias and ``requires_grad``; the others stay as they are. The
    merged linear node is marked.

    Examples
    --------
    >>> class Attention(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.query, self.key = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    ...
    ...     def forward(self, x):
    ...         return self.query(x) @ self.key(x).transpose(-1, -2)
    >>> merge = MergeLinears()
    >>> merged = merge(torch.fx.symbolic_trace(Attention()))
    >>> merge.get_transformed_nodes(merged)
    [query_key_merged]
    >>> [name for name, _ in merge(merged, reverse=True).named_children()]
    ['query', 'key']
    """

    def match(self, facts: GraphFacts) -> Iterator[LinearGroup]:
        """Yield the linear layers that share an input, split into those that agree."""
        readers: dict[Hashable, list[Layer[nn.Linear]]] = defaultdict(list)
        for node in facts.graph_module.graph.nodes:
            if (layer := as_linear(node, facts)) is not None:
                readers[_value_read(layer.input)].append(layer)
        for layers in readers.values():
            if len(layers) < 2:
                continue
            groups: dict[_Agreement | Node, list[Layer[nn.Linear]]] = defaultdict(list)
            for layer in layers:
                groups[_agreement(facts, layer)].append(layer)
            for agreement, group in groups.items():
                if len(group) < 2:
                    yield LinearGroup(tuple(group), (), _apart(agreement, groups))
                    continue
                contiguous = (needs_contiguous(one.node, one.module.out_features, facts) for one in group)
                yield LinearGroup(tuple(group), tuple(contiguous))

    def refuse(self, candidate: LinearGroup, facts: GraphFacts) -> Refusal | None:
        """Refuse irreplaceable modules, and a layer that agrees with no other."""
        for layer in candidate.layers:
            if reason := _why_not_mergeable(facts, layer):
                return reason
        if len(candidate.layers) < 2:
            return Reason.NO_COMPATIBLE_LINEAR(why=candidate.apart)
        return None

    def describe(self, candidate: LinearGroup) -> str:
        """Name the layers that become one."""
        return f"one linear of {', '.join(node.name for node in candidate.nodes)}"

    def rewrite(self, candidate: LinearGroup, edit: Editor) -> Node:
        """Put one linear before the first, and slices of its result in place of each."""
        layers, first = candidate.layers, candidate.layers[0]
        paths = [layer.path for layer in layers]
        at = edit.free_path(split_path(paths[0])[0], _merged_name(paths))
        tensors = edit.replace_layers(layers, _merged(candidate.linears), at)
        call: Call = (at, (first.input,), {})
        if not first.is_module:
            call = layer_call(first, first.input, tensors, edit)
        op = "call_module" if first.is_module else "call_function"
        name, meta = split_path(at)[1], _merged_meta(candidate, at)
        merged = edit.insert_before(first.node, op, *call, name=name, meta=meta)
        bounds = accumulate((linear.out_features for linear in candidate.linears), initial=0)
        for layer, (start, stop), contiguous in zip(
            layers, pairwise(bounds), candidate.contiguous, strict=True
        ):
            _take_part(layer, merged, start, stop, contiguous, edit)
        for layer in layers:
            edit.erase_tensors(layer)
            value: object = layer.input
            while isinstance(value, Node) and value.target in _VIEWS and not value.users:
                unused, value = value, value.args[0]  # the same view once more
                edit.erase(unused)
        return merged

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Give each layer its rows of the merged weight and bias."""
        linears = [original for original in originals if isinstance(original, nn.Linear)]
        sizes = [linear.out_features for linear in linears]
        for name, parameter in replacement.named_parameters():
            dim = output_dimension(linears[0]) if name == "weight" else 0
            for linear, part in zip(linears, torch.split(parameter, sizes, dim), strict=True):
                carry_tensor(linear, name, part)


def _value_read(value: Node) -> Hashable:
    """Return a key that is equal for nodes of one value, such as the views that decomposed layers read."""
    if value.target not in _VIEWS:
        return value
    sizes: Any = value.args[1]
    of: Any = value.args[0]
    shape = known_shape(value)
    return _value_read(of) if shape is not None and shape == known_shape(of) else (_value_read(of), *sizes)


class _Agreement(NamedTuple):
    """The properties that linears must have in common to be merged."""

    form_of_call: object
    layout_of_weight: int
    dtype: torch.dtype
    device: torch.device
    input_features: int
    requires_grad: bool
    bias: bool | None
    """Whether its bias is trained, if it has one."""
    mode: bool
    writes_before: object


def _apart(
    agreement: _Agreement | Node, groups: Mapping[_Agreement | Node, Sequence[Layer[nn.Linear]]]
) -> str:
    """Return in words the most similar other linear, and its differences."""
    if isinstance(agreement, Node):
        return ""
    differences = [
        ([name for name, a, b in zip(_Agreement._fields, agreement, other, strict=True) if a != b], layers[0])
        for other, layers in groups.items()
        if isinstance(other, _Agreement) and other != agreement
    ]
    if not differences:
        return "none of the others can be merged"
    names, layer = min(differences, key=lambda found: len(found[0]))
    return f"{layer.node.name} differs in {', '.join(name.replace('_', ' ') for name in names)}"


def _agreement(facts: GraphFacts, layer: Layer[nn.Linear]) -> _Agreement | Node:
    """Return the properties that merged linears share; a linear that cannot be merged is on its own."""
    if _why_not_mergeable(facts, layer):
        return layer.node
    linear = layer.module
    bias = linear.bias
    return _Agreement(
        None if layer.is_module else layer.node.target,
        output_dimension(linear),
        linear.weight.dtype,
        linear.weight.device,
        linear.in_features,
        linear.weight.requires_grad,
        None if bias is None else bias.requires_grad,
        linear.training,
        facts.writes.epoch(layer.input, layer.node),
    )


def _why_not_mergeable(facts: GraphFacts, layer: Layer[nn.Linear]) -> Refusal | None:
    if reason := layer.why_not_replaceable(facts, nn.Linear):
        return reason
    linear = layer.module
    sizes = linear.out_features, linear.in_features
    if linear.weight.shape != (sizes[::-1] if output_dimension(linear) else sizes):
        return Reason.WEIGHT_SHAPE()
    return why_mixed(linear)


def _take_part(
    layer: Layer[nn.Linear], merged: Node, start: int, stop: int, contiguous: bool, edit: Editor
) -> None:
    """Replace the call of a layer by its slice of the merged result."""
    node = layer.node
    if not contiguous:
        target, args, kwargs = slice_call(node, merged, start, stop)
        edit.change(node, op="call_function", target=target, args=args, kwargs=kwargs)
        return
    op, target, _, kwargs = contiguous_call(node, merged)
    part_target, part_args, part_kwargs = slice_call(node, merged, start, stop)
    part = edit.insert_before(
        node, "call_function", part_target, part_args, part_kwargs, name=f"{node.name}_slice"
    )
    edit.change(node, op=op, target=target, args=(part,), kwargs=kwargs)


def _merged(linears: tuple[nn.Linear, ...]) -> nn.Linear:
    with torch.no_grad():
        weight = torch.cat(tuple(linear.weight for linear in linears), output_dimension(linears[0]))
        biases = tuple(linear.bias for linear in linears if linear.bias is not None)
        bias = torch.cat(biases) if biases else None
    return new_layer(weight, bias, like=linears[0])


def _merged_name(paths: list[str]) -> str:
    names = [split_path(path)[1] for path in paths]
    if len(names) > 4:
        names = [names[0], "and", str(len(names) - 1), "more"]
    name = "_".join([*names, "merged"])
    return name if name.isidentifier() else f"linear_{name}"


def _merged_meta(candidate: LinearGroup, at: str) -> dict[str, object]:
    """Return the place of the merged linear in the model and the known facts about its result."""
    first = candidate.nodes[0].meta
    meta = {key: first[key] for key in ("stack_trace",) if key in first}
    if stack := first.get("nn_module_stack"):
        outer = list(stack.items())
        if stack_entry(*outer[-1])[0] == candidate.layers[0].path:
            del outer[-1]
        meta["nn_module_stack"] = type(stack)([*outer, (at, (at, nn.Linear))])
    return meta | with_last_size(candidate.nodes[0], sum(linear.out_features for linear in candidate.linears))
