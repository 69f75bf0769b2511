"""Fuse the bias of linear layers into their weight."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.fx import Node

from fxlab.base.reasons import Reason, Refusal
from fxlab.transformations.analysis.dtypes_and_sizes import with_last_size
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed
from fxlab.transformations.journal.module_tree import carry_tensor
from fxlab.transformations.rewriting.dialects import change_layer, new_layer, pad_call
from fxlab.transformations.rewriting.editor import Editor, insert_call
from fxlab.transformations.rewriting.rewrite_pass import RewritePass
from fxlab.transformations.views.layer import Layer
from fxlab.transformations.views.linear import as_linear, output_dimension


@dataclass(frozen=True)
class FuseBiasInLinear(RewritePass[Layer[nn.Linear]]):
    """Fuse the bias of linear layers into their weight: a one is appended to the input.

    ``x @ W.T + b`` becomes ``[x, 1] @ [W, b].T``: the weight gains a column, the input gains a last entry
    of one. The linear node is marked; reversal removes the node that pads its input.

    Examples
    --------
    >>> fuse = FuseBiasInLinear()
    >>> fused = fuse(torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(3, 2))))
    >>> fused.get_submodule("0")
    Linear(in_features=4, out_features=2, bias=False)
    >>> fuse(fused, reverse=True).get_submodule("0")
    Linear(in_features=3, out_features=2, bias=True)
    """

    def match(self, facts: GraphFacts) -> Iterator[Layer[nn.Linear]]:
        """Yield the calls of linear layers that have a bias."""
        for node in facts.graph_module.graph.nodes:
            layer = as_linear(node, facts)
            if layer is not None and layer.module.bias is not None:
                yield layer

    def refuse(self, candidate: Layer[nn.Linear], facts: GraphFacts) -> Refusal | None:
        """Refuse irreplaceable modules, and a weight and a bias that cannot be one parameter."""
        linear = candidate.module
        if reason := candidate.why_not_replaceable(facts, nn.Linear) or why_mixed(linear):
            return reason
        if linear.weight.requires_grad != linear.bias.requires_grad:
            trained = "weight" if linear.weight.requires_grad else "bias"
            return Reason.TRAINED_IN_PART(parameter=trained)
        return None

    def describe(self, candidate: Layer[nn.Linear]) -> str:
        """Tell the size that the weight will have."""
        return f"its bias becomes column {candidate.module.in_features} of its weight"

    def rewrite(self, candidate: Layer[nn.Linear], edit: Editor) -> Node:
        """Pad the input with a one, which the new column of the weight multiplies."""
        layer, node, linear = candidate, candidate.node, candidate.module
        with torch.no_grad():
            out = output_dimension(linear)
            weight = torch.cat([linear.weight, linear.bias.unsqueeze(1 - out)], dim=1 - out)
        tensors = edit.replace_layers([layer], new_layer(weight, None, like=linear), layer.path)
        target, args, kwargs = pad_call(node, layer.input)
        meta = with_last_size(layer.input, layer.module.in_features + 1)
        padded = insert_call(edit, node, "input_and_one", target, args, kwargs, meta)
        change_layer(layer, padded, tensors, edit)
        return node

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Give the layer its weight and its bias back from the columns."""
        weight = replacement.get_parameter("weight")
        for original in originals:
            if isinstance(original, nn.Linear):
                features, size = 1 - output_dimension(original), original.in_features
                carry_tensor(original, "weight", weight.narrow(features, 0, size))
                carry_tensor(original, "bias", weight.select(features, size))
