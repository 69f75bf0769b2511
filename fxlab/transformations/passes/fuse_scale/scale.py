"""Fuse what a linear layer or a convolution is multiplied by into its weights."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.fx import Node

from fxlab.reasons import Reason, Refusal
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.journal.module_fingerprint import carry_tensor, same_bits
from fxlab.transformations.passes.fuse_scale.after_layer import AfterLayer, after_layers
from fxlab.transformations.passes.fuse_scale.operand import AnyLayer, Fused, FuseOperand, Operand
from fxlab.transformations.rewriting.dialects import change_layer
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.new_modules import new_layer
from fxlab.transformations.views.channels import (
    input_channels,
    output_channels,
    per_input,
    per_output,
    precise,
)
from fxlab.transformations.views.layer import computed_by


class Scaled(Fused):
    """The very parameters of a layer, and the numbers that its channels are multiplied by.

    Parameters
    ----------
    layer, operand
        The layer and the numbers.
    divides
        Whether the channels are divided by them.
    of_inputs
        Whether these are the channels of its input, which the bias does not see.
    """

    def __init__(self, layer: AnyLayer, operand: Operand, *, divides: bool, of_inputs: bool = False) -> None:
        count = input_channels if of_inputs else output_channels
        super().__init__(layer, operand, count(layer.module))
        self.divides = divides
        self.scale = scale_of(self.values_then, divides=divides)
        self.scaled = ("weight",) if of_inputs else ("weight", "bias")
        each = torch.arange(self.channels)
        self.places = (per_input if of_inputs else per_output)(layer.module, each)
        """The channel that each number of the weight, or each row or column, belongs to."""

    def folded(self) -> dict[str, torch.Tensor]:
        """Return the parameters multiplied by the numbers, each rounded once."""
        named = {name: tensor for name, tensor in self.named_parameters() if name in self.scaled}
        with torch.no_grad():
            return {
                name: (precise(tensor) * self._of(name, tensor, self.scale)).to(tensor.dtype)
                for name, tensor in named.items()
            }

    def carry(self, replacement: nn.Module) -> bool:
        """Take over what was written to the folded parameters since, and where they were moved.

        The numbers may have been written as well; tell whether weights can be divided by them.
        """
        now = {name: tensor for name, tensor in replacement.named_parameters() if name in self.scaled}
        for name, tensor in replacement.named_parameters():
            if name not in now:
                carry_tensor(self, name, tensor)
        is_only_cast = not self.is_written and all(
            same_bits(now[name], then.to(now[name].device, now[name].dtype))
            for name, then in self.folded().items()
        )
        scale = scale_of(self.values_now(), divides=self.divides)
        if not bool(is_usable(scale).all()):
            return False
        for name, tensor in now.items():
            if is_only_cast:
                value = self.get_parameter(name).detach().to(tensor.device, tensor.dtype)
            else:
                value = (precise(tensor) / self._of(name, tensor, scale)).to(tensor.dtype)
            carry_tensor(self, name, value)
        return True

    def _of(self, name: str, tensor: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """Return the factors of a parameter."""
        wide = precise(tensor.new_empty(()))
        placed = scale[self.places.to(scale.device)] if name == "weight" else scale
        return placed.to(wide.device, wide.dtype)


@dataclass(frozen=True)
class FuseScale(FuseOperand[AfterLayer]):
    """Fuse what a linear layer or a convolution is multiplied by into its weights.

    That is a number, or a tensor of the model with one number for each channel: ``linear(x) * 0.125`` is the
    linear layer with a weight and a bias of an eighth, as queries are scaled in Whisper and BART, and
    ``gamma * linear(x)`` scales each row of the weight, as the layer scale of ConvNeXt, DINOv2 and CaiT does
    (Touvron et al. 2021). Views may stand between the two. The result is equal up to rounding, and bit for
    bit for powers of two. Where the weights would lose bits because they get too small for their dtype, or
    the result is rounded to integers later on, the product stays. A tensor that scaled channels stays an
    attribute of the model, which nothing reads; the graph refuses to run under autocast then, where
    the product had the dtype of that tensor. The layer's node is marked, and the nodes that read a view of
    it now.

    Examples
    --------
    >>> class Query(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = torch.nn.Linear(4, 4)
    ...
    ...     def forward(self, x):
    ...         return self.linear(x) * 0.5
    >>> model, fuse = Query(), FuseScale()
    >>> fused = fuse(torch.fx.symbolic_trace(model))
    >>> [node.name for node in fused.graph.nodes]
    ['x', 'linear', 'output']
    >>> bool((fused.linear.weight == model.linear.weight / 2).all())
    True
    >>> fuse(fused, reverse=True).linear.weight is model.linear.weight
    True
    """

    def match(self, facts: GraphFacts) -> Iterator[AfterLayer]:
        """Yield the products and quotients of a layer and a number, or a tensor of the model."""
        return after_layers(facts, ("mul", "div"))

    def refuse(self, candidate: AfterLayer, facts: GraphFacts) -> Refusal | None:
        """Refuse what others read, what is written, and weights that cannot be replaced or get too small."""
        if candidate.misfit is not None:
            return candidate.misfit
        if reason := why_not_usable(_scaled(candidate).scale):
            return reason
        if reason := candidate.why_not_fused(facts, "weight"):
            return reason
        return why_not_rounded_alike(_scaled(candidate), candidate.node, facts)

    def describe(self, candidate: AfterLayer) -> str:
        """Name the layer and the number."""
        factor = factor_text(candidate.operand, candidate.node)
        return f"its factor {factor} goes into the weights of {candidate.layer.node.name}"

    def rewrite(self, candidate: AfterLayer, edit: Editor) -> tuple[Node, ...]:
        """Put a layer with the folded weights in place, and erase the product."""
        layer = candidate.layer
        scaled = _scaled(candidate)
        folded = scaled.folded()
        fused = new_layer(folded["weight"], folded.get("bias"), like=layer.module)
        tensors = edit.replace_layers([layer], fused, layer.path, {layer.path: scaled})
        change_layer(layer, layer.input, tensors, edit)
        return candidate.erase(edit, type(self).__name__)


def _scaled(candidate: AfterLayer) -> Scaled:
    return Scaled(candidate.layer, candidate.operand, divides=computed_by(candidate.node) == "div")


def scale_of(values: torch.Tensor, *, divides: bool) -> torch.Tensor:
    """Return the factors that numbers are."""
    return 1 / values if divides else values


def is_usable(scale: torch.Tensor) -> torch.Tensor:
    """Return of each number whether it can be multiplied and divided by."""
    return scale.isfinite() & (scale != 0) & (1 / scale).isfinite()


def why_not_usable(scale: torch.Tensor) -> Refusal | None:
    """Return why weights cannot be multiplied by numbers and divided again; ``None`` if they can."""
    usable = is_usable(scale)
    return None if bool(usable.all()) else Reason.SCALE(scale=float(scale[~usable][0]))


def factor_text(operand: Operand, node: Node) -> str:
    """Return the factor that a product or quotient multiplies by."""
    divides = computed_by(node) == "div"
    if operand.tensor is None:
        return repr(float(scale_of(operand.values.reshape(-1)[0], divides=divides)))
    return f"1 / {operand.name}" if divides else operand.name


def why_not_rounded_alike(scaled: Scaled, result: Node, facts: GraphFacts) -> Refusal | None:
    """Return why a result with the folded weights would not be the same up to rounding."""
    reader = facts.rounding_readers.get(result)
    if reader is not None and not bool((torch.frexp(scaled.scale).mantissa.abs() == 0.5).all()):
        return Reason.ROUNDED_LATER(reader=reader.name)
    parameters = dict(scaled.named_parameters())
    for name, folded in scaled.folded().items():
        parameter, limits = parameters[name], torch.finfo(folded.dtype)
        dtype = str(folded.dtype).removeprefix("torch.")
        if parameter.is_meta:
            continue
        if not bool(folded.isfinite().all()):
            return Reason.NOT_FINITE(dtype=dtype)
        largest = float(scaled.scale.abs().max())
        if largest > 1 and bool((folded.abs() > math.sqrt(limits.max)).any()):
            return Reason.SCALE(scale=largest)  # sums may overflow that did not before
        lost = (folded.abs() < limits.tiny) & (parameter.abs() >= limits.tiny)
        if bool(lost.any()):
            return Reason.NOT_NORMAL(number=f"a number in the folded {name}", dtype=dtype)
    return None
