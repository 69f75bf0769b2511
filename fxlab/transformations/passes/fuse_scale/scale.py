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
from fxlab.transformations.passes.fuse_scale.after_layer import (
    AfterLayer,
    FuseAfterLayer,
    Fused,
    after_layers,
)
from fxlab.transformations.rewriting.dialects import change_layer
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.new_modules import new_layer
from fxlab.transformations.views.channels import per_output, precise
from fxlab.transformations.views.layer import computed_by


class Scaled(Fused):
    """The very parameters of a layer, and the numbers that its channels are multiplied by."""

    def __init__(self, candidate: AfterLayer) -> None:
        super().__init__(candidate)
        self.scale, self.divides = _scale(candidate), computed_by(candidate.node) == "div"
        self.places = per_output(candidate.layer.module, torch.arange(self.channels))
        """The channel that each row, or column, of the weight belongs to."""

    def folded(self) -> dict[str, torch.Tensor]:
        """Return the parameters multiplied by the numbers, each rounded once."""
        named = {name: tensor for name, tensor in self.named_parameters() if name != "operand"}
        with torch.no_grad():
            return {
                name: (precise(tensor) * self._of(name, tensor, self.scale)).to(tensor.dtype)
                for name, tensor in named.items()
            }

    def carry(self, replacement: nn.Module) -> bool:
        """Take over what was written to the folded parameters since, and where they were moved.

        The numbers may have been written as well; tell whether weights can be divided by them.
        """
        now = dict(replacement.named_parameters())
        is_only_cast = not self.is_written and all(
            same_bits(now[name], then.to(now[name].device, now[name].dtype))
            for name, then in self.folded().items()
        )
        values = self.values_now()
        scale = 1 / values if self.divides else values
        if not bool(_usable(scale).all()):
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
class FuseScale(FuseAfterLayer):
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
        scale = _scale(candidate)
        usable = _usable(scale)
        if not bool(usable.all()):
            return Reason.SCALE(scale=float(scale[~usable][0]))
        if reason := candidate.why_not_fused(facts, "weight"):
            return reason
        reader = facts.rounding_readers.get(candidate.node)
        if reader is not None and not bool((torch.frexp(scale).mantissa.abs() == 0.5).all()):
            return Reason.ROUNDED_LATER(reader=reader.name)
        return _why_too_small_or_large(candidate, scale)

    def describe(self, candidate: AfterLayer) -> str:
        """Name the layer and the number."""
        return f"its factor {_factor_text(candidate)} goes into the weights of {candidate.layer.node.name}"

    def rewrite(self, candidate: AfterLayer, edit: Editor) -> tuple[Node, ...]:
        """Put a layer with the folded weights in place, and erase the product."""
        layer = candidate.layer
        scaled = Scaled(candidate)
        folded = scaled.folded()
        fused = new_layer(folded["weight"], folded.get("bias"), like=layer.module)
        tensors = edit.replace_layers([layer], fused, layer.path, {layer.path: scaled})
        change_layer(layer, layer.input, tensors, edit)
        return candidate.erase(edit, type(self).__name__)


def _usable(scale: torch.Tensor) -> torch.Tensor:
    """Return of each number whether it can be multiplied and divided by."""
    return scale.isfinite() & (scale != 0) & (1 / scale).isfinite()


def _scale(candidate: AfterLayer) -> torch.Tensor:
    """Return the factors of the channels of a layer."""
    values = candidate.values
    return 1 / values if computed_by(candidate.node) == "div" else values


def _factor_text(candidate: AfterLayer) -> str:
    if candidate.operand.tensor is None:
        return repr(float(_scale(candidate)[0]))
    return f"1 / {candidate.operand.name}" if computed_by(candidate.node) == "div" else candidate.operand.name


def _why_too_small_or_large(candidate: AfterLayer, scale: torch.Tensor) -> Refusal | None:
    """Return why the folded weights would not be those times the number, up to rounding."""
    parameters = dict(candidate.layer.module.named_parameters())
    for name, folded in Scaled(candidate).folded().items():
        parameter, limits = parameters[name], torch.finfo(folded.dtype)
        dtype = str(folded.dtype).removeprefix("torch.")
        if parameter.is_meta:
            continue
        if not bool(folded.isfinite().all()):
            return Reason.NOT_FINITE(dtype=dtype)
        largest = float(scale.abs().max())
        if largest > 1 and bool((folded.abs() > math.sqrt(limits.max)).any()):
            return Reason.SCALE(scale=largest)  # sums may overflow that did not before
        lost = (folded.abs() < limits.tiny) & (parameter.abs() >= limits.tiny)
        if bool(lost.any()):
            return Reason.NOT_NORMAL(number=f"a number in the folded {name}", dtype=dtype)
    return None
