"""Fuse the number that a linear layer or a convolution is multiplied by into its weights."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.nn.modules.conv import _ConvNd

from fxlab.operators import computes
from fxlab.reasons import Reason, Refusal
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed
from fxlab.transformations.journal.module_fingerprint import carry_tensor, same_bits
from fxlab.transformations.rewriting.dialects import layer_call
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.new_modules import new_layer
from fxlab.transformations.rewriting.rewrite_pass import RewritePass
from fxlab.transformations.views.convolution import as_convolution
from fxlab.transformations.views.layer import Layer, computed_by
from fxlab.transformations.views.linear import as_linear

_CLASSES: tuple[type[nn.Module], ...] = (
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
_VIEWS = frozenset({"view", "transpose", "permute", "unsqueeze", "squeeze"})
"""Views that show each element once."""


@dataclass(frozen=True)
class ScaledLayer:
    """A layer whose result, or a view of it, is multiplied by a number."""

    layer: Layer[nn.Linear] | Layer[_ConvNd]
    product: Node
    views: tuple[Node, ...]
    """Between the two, last first."""
    scale: float

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The product, which would go."""
        return (self.product,)

    @cached_property
    def scaled(self) -> "Scaled":
        """The weights of the layer and the number."""
        return Scaled(self.layer.module, self.scale)


class Scaled(nn.Module):
    """The very parameters of a layer, and the number that its result is multiplied by."""

    def __init__(self, layer: nn.Linear | _ConvNd, scale: float) -> None:
        super().__init__()
        self._parameters.update(layer._parameters)
        self.scale = scale

    def folded(self) -> dict[str, torch.Tensor]:
        """Return the parameters multiplied by the number, each rounded once."""
        with torch.no_grad():
            return {name: self._times(tensor, self.scale) for name, tensor in self.named_parameters()}

    def carry(self, replacement: nn.Module) -> None:
        """Take over what was written to the folded parameters since, and where they were moved."""
        now = dict(replacement.named_parameters())
        is_only_cast = all(
            same_bits(now[name], then.to(now[name].device, now[name].dtype))
            for name, then in self.folded().items()
        )
        for name, tensor in now.items():
            is_moved = self.get_parameter(name).detach().to(tensor.device, tensor.dtype)
            carry_tensor(self, name, is_moved if is_only_cast else self._times(tensor, 1 / self.scale))

    def _times(self, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        wide = torch.float32 if tensor.device.type == "mps" else torch.float64
        return (tensor.detach().to(wide) * factor).to(tensor.dtype)


@dataclass(frozen=True)
class FuseScale(RewritePass[ScaledLayer]):
    """Fuse the number that a linear layer or a convolution is multiplied by into its weights.

    ``linear(x) * 0.125`` is the linear layer with a weight and a bias of an eighth, as queries are scaled
    in Whisper and BART, and what blocks add in Granite. Views may stand between the two. The result is
    equal up to rounding, and bit for bit for powers of two. Where the weights would lose bits because they
    get too small for their dtype, or the result is rounded to integers later on, the product stays. The
    layer's node is marked, and the nodes that read a view of it now.

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

    def match(self, facts: GraphFacts) -> Iterator[ScaledLayer]:
        """Yield the products and quotients of a layer and a number."""
        for node in list(facts.graph_module.graph.nodes):
            found = _scaled(node, facts)
            if found is not None:
                yield found

    def refuse(self, candidate: ScaledLayer, facts: GraphFacts) -> Refusal | None:
        """Refuse what others read, what is written, and weights that cannot be replaced or get too small."""
        layer, product, scale = candidate.layer, candidate.product, candidate.scale
        if not math.isfinite(scale) or scale == 0 or not math.isfinite(1 / scale):
            return Reason.SCALE(scale=scale)
        for value in (layer.node, *candidate.views):
            if len(value.users) > 1:
                return Reason.OTHER_USERS(value=value.name)
        if facts.writes.is_written(layer.node):
            return Reason.WRITTEN_IN_PLACE(value=layer.node.name)
        if not facts.writes.same_state(layer.node, product):
            return Reason.MODE_CHANGES_IN_BETWEEN(first=layer.node.name, last=product.name)
        module_class = next((each for each in _CLASSES if isinstance(layer.module, each)), nn.Module)
        if reason := layer.why_not_replaceable(facts, module_class) or why_mixed(layer.module):
            return reason
        reader = facts.rounding_readers.get(product)
        if reader is not None and abs(math.frexp(scale)[0]) != 0.5:
            return Reason.ROUNDED_LATER(reader=reader.name)
        return _why_too_small_or_large(candidate)

    def describe(self, candidate: ScaledLayer) -> str:
        """Name the layer and the number."""
        return f"its factor {candidate.scale!r} goes into the weights of {candidate.layer.node.name}"

    def rewrite(self, candidate: ScaledLayer, edit: Editor) -> tuple[Node, ...]:
        """Put a layer with the folded weights in place, and erase the product."""
        layer, product = candidate.layer, candidate.product
        folded = candidate.scaled.folded()
        fused = new_layer(folded["weight"], folded.get("bias"), like=layer.module)
        seen_as: dict[str, nn.Module] = {layer.path: candidate.scaled}
        tensors = edit.replace_layers([layer], fused, layer.path, seen_as)
        if not layer.is_module:
            target, args, kwargs = layer_call(layer, layer.input, tensors, edit)
            edit.change(layer.node, target=target, args=args, kwargs=kwargs)
            edit.erase_tensors(layer)
        last = candidate.views[0] if candidate.views else layer.node
        readers = tuple(product.users) if candidate.views else ()
        edit.erase(product, pass_on_to=last)
        return tuple(dict.fromkeys((layer.node, *readers)))

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Divide weights that were trained since by the number; move what was moved."""
        for original in originals:
            if isinstance(original, Scaled):
                original.carry(replacement)


def _scaled(node: Node, facts: GraphFacts) -> ScaledLayer | None:
    name = computed_by(node)
    if name not in ("mul", "div") or len(node.args) != 2 or node.kwargs:
        return None
    value, number = node.args
    if name == "mul" and isinstance(number, Node):
        value, number = number, value
    if not isinstance(value, Node) or type(number) not in (int, float):
        return None
    scale = _factor(number, is_divisor=name == "div")
    views: list[Node] = []
    while computes(value) in _VIEWS and isinstance(value.args[0], Node) and _is_of_shape(value):
        views.append(value)
        value = value.args[0]
    layer = as_linear(value, facts) or as_convolution(value, facts)
    return None if layer is None else ScaledLayer(layer, node, tuple(views), scale)


def _factor(number: Any, *, is_divisor: bool) -> float:
    try:
        return 1 / float(number) if is_divisor else float(number)
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _is_of_shape(view: Node) -> bool:
    """Tell whether a view is one of sizes, and not of bits as another dtype."""
    return not any(isinstance(value, torch.dtype) for value in (*view.args, *view.kwargs.values()))


def _why_too_small_or_large(candidate: ScaledLayer) -> Refusal | None:
    """Return why the folded weights would not be those times the number, up to rounding."""
    parameters = dict(candidate.layer.module.named_parameters())
    for name, folded in candidate.scaled.folded().items():
        parameter, limits = parameters[name], torch.finfo(folded.dtype)
        dtype = str(folded.dtype).removeprefix("torch.")
        if parameter.is_meta:
            continue
        if not bool(folded.isfinite().all()):
            return Reason.NOT_FINITE(dtype=dtype)
        if abs(candidate.scale) > 1 and bool((folded.abs() > math.sqrt(limits.max)).any()):
            return Reason.SCALE(scale=candidate.scale)  # sums may overflow that did not before
        lost = (folded.abs() < limits.tiny) & (parameter.abs() >= limits.tiny)
        if bool(lost.any()):
            return Reason.NOT_NORMAL(number=f"a number in the folded {name}", dtype=dtype)
    return None
