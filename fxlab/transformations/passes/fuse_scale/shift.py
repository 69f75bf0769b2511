"""Fuse what is added to the result of a linear layer or a convolution into its bias."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.fx import Node

from fxlab.reasons import Reason, Refusal
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.journal.module_fingerprint import carry_tensor, same_bits
from fxlab.transformations.passes.fuse_scale.after_layer import AfterLayer, after_layers
from fxlab.transformations.passes.fuse_scale.operand import Fused, FuseOperand
from fxlab.transformations.rewriting.dialects import change_layer
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.new_modules import new_layer
from fxlab.transformations.views.channels import output_channels, precise
from fxlab.transformations.views.layer import computed_by


class Shifted(Fused):
    """The very parameters of a layer, and the numbers that are added to its channels."""

    def __init__(self, candidate: AfterLayer) -> None:
        super().__init__(candidate.layer, candidate.operand, output_channels(candidate.layer.module))
        self.negated = computed_by(candidate.node) == "sub"
        self.shift = self._shift(self.values_then).to(candidate.layer.module.weight.device)
        self.dtype = candidate.layer.module.weight.dtype

    def folded(self) -> torch.Tensor:
        """Return the bias with the numbers added, rounded once."""
        bias = self._parameters["bias"]
        with torch.no_grad():
            total = self.shift if bias is None else precise(bias) + self.shift.to(precise(bias))
        return total.to(self.dtype)

    def carry(self, replacement: nn.Module) -> bool:
        """Take over what was written to the new bias since; tell whether there was a place for it."""
        weight, now = replacement.get_parameter("weight"), replacement.get_parameter("bias")
        is_only_cast = not self.is_written and same_bits(now, self.folded().to(now.device, now.dtype))
        carry_tensor(self, "weight", weight)
        bias, added = self._parameters["bias"], self._parameters.get("operand")
        if bias is not None:
            value = precise(now) - self._shift(self.values_now()).to(precise(now))
            carry_tensor(self, "bias", (bias if is_only_cast else value).to(now.device, now.dtype))
        elif added is not None and not is_only_cast and added.numel() == now.numel():
            value = -precise(now) if self.negated else precise(now)
            carry_tensor(self, "operand", value.to(now.dtype).reshape(added.shape))
        return is_only_cast or bias is not None or (added is not None and added.numel() == now.numel())

    def _shift(self, values: torch.Tensor) -> torch.Tensor:
        return -values if self.negated else values


@dataclass(frozen=True)
class FuseShift(FuseOperand[AfterLayer]):
    """Fuse what is added to the result of a linear layer or a convolution into its bias.

    That is a number, or a tensor of the model with one number for each channel, as heads that keep their bias
    beside a layer without one add it. The layer gets a bias where it has none; its weight stays the object
    that it is. Views may stand between the two. The result is equal up to rounding, as the two are added
    before the product is. Where it is rounded to integers later on, the sum stays. A tensor that was added
    stays an attribute of the model, which nothing reads; the graph refuses to run under autocast then,
    where the sum had the dtype of that tensor. The layer's node is marked, and the nodes that read a view
    of it now.

    Examples
    --------
    >>> class Head(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = torch.nn.Linear(4, 2, bias=False)
    ...         self.bias = torch.nn.Parameter(torch.ones(2))
    ...
    ...     def forward(self, x):
    ...         return self.linear(x) + self.bias
    >>> fuse = FuseShift()
    >>> fused = fuse(torch.fx.symbolic_trace(Head()))
    >>> fused.linear
    Linear(in_features=4, out_features=2, bias=True)
    >>> fuse(fused, reverse=True).linear
    Linear(in_features=4, out_features=2, bias=False)
    """

    def match(self, facts: GraphFacts) -> Iterator[AfterLayer]:
        """Yield the sums and differences of a layer and a number, or a tensor of the model."""
        return after_layers(facts, ("add", "sub"))

    def refuse(self, candidate: AfterLayer, facts: GraphFacts) -> Refusal | None:
        """Refuse what others read, what is written, and layers that cannot be replaced."""
        if reason := candidate.why_not_fused(facts, "bias"):
            return reason
        if (reader := facts.rounding_readers.get(candidate.node)) is not None:
            return Reason.ROUNDED_LATER(reader=reader.name)
        bias = Shifted(candidate).folded()
        if not bias.is_meta and not bool(bias.isfinite().all()):
            return Reason.NOT_FINITE(dtype=str(bias.dtype).removeprefix("torch."))
        return None

    def describe(self, candidate: AfterLayer) -> str:
        """Name the layer and what is added."""
        return f"{candidate.operand.name} goes into the bias of {candidate.layer.node.name}"

    def rewrite(self, candidate: AfterLayer, edit: Editor) -> tuple[Node, ...]:
        """Put a layer with the new bias in place, and erase the sum."""
        layer = candidate.layer
        shifted, old = Shifted(candidate), layer.module._parameters["bias"]
        fused = new_layer(layer.module.weight, shifted.folded(), like=layer.module)
        fused._parameters["weight"] = layer.module._parameters["weight"]
        if old is None:
            fused.get_parameter("bias").requires_grad_(candidate.operand.is_trained)
        tensors = edit.replace_layers([layer], fused, layer.path, {layer.path: shifted})
        change_layer(layer, layer.input, tensors, edit)
        return candidate.erase(edit, type(self).__name__)
