"""Fuse what the input of linear layers or convolutions is multiplied by into their weights."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn
from torch.fx import Node

from fxlab.node_info import known_shape
from fxlab.reasons import Reason, Refusal
from fxlab.torch_private import statically_known_true
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed_dtypes
from fxlab.transformations.analysis.node_shape import known_dtype
from fxlab.transformations.passes.fuse_scale.operand import (
    AnyLayer,
    FuseOperand,
    Operand,
    combined,
    erase_operand,
    is_view,
    moved,
)
from fxlab.transformations.passes.fuse_scale.scale import (
    Scaled,
    factor_text,
    why_not_rounded_alike,
    why_not_usable,
)
from fxlab.transformations.rewriting.dialects import change_layer
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.new_modules import new_layer
from fxlab.transformations.views.channels import input_channels
from fxlab.transformations.views.convolution import as_convolution
from fxlab.transformations.views.layer import computed_by
from fxlab.transformations.views.linear import as_linear


@dataclass(frozen=True)
class Reader:
    """A layer that reads a product, or a view of it."""

    layer: AnyLayer
    views: tuple[Node, ...]
    """Between the two, in the order of the graph."""


@dataclass(frozen=True)
class BeforeLayers:
    """A value that is multiplied by an operand, and the layers that read the product."""

    node: Node
    """The product."""
    value: Node
    operand: Operand
    readers: tuple[Reader, ...]
    has_other_readers: bool = field(default=False, compare=False)
    """Whether anything else reads the product, or a view of it."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The node that would go."""
        return (self.node,)

    def scaled(self) -> Iterator[tuple[AnyLayer, Scaled]]:
        """Yield each layer, and its parameters with the numbers."""
        divides = computed_by(self.node) == "div"
        for reader in self.readers:
            yield reader.layer, Scaled(reader.layer, self.operand, divides=divides, of_inputs=True)


@dataclass(frozen=True)
class FuseScaleBeforeLayer(FuseOperand[BeforeLayers]):
    """Fuse what the input of linear layers or convolutions is multiplied by into their weights.

    That is a number, or a tensor of the model with one number for each input channel, as the weight of an
    RMS norm is: ``linear(norm(x) * gamma)`` is the linear layer with each column of its weight multiplied.
    All that reads the product must be layers, as queries, keys and values are; views may stand in between.
    Biases stay the objects that they are. The result is equal up to rounding, and bit for bit for powers of
    two. Where the weights would lose bits because they get too small for their dtype, or a result is rounded
    to integers later on, the product stays, and where the shape or the dtype of what is multiplied is not
    known to be that of the product. A tensor of channels stays an attribute of the model, which nothing
    reads. The nodes of the layers are marked, and views that read another node now.

    Examples
    --------
    >>> import fxlab, torch
    >>> class Scaled(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.gamma, self.linear = nn.Parameter(torch.full((4,), 0.5)), nn.Linear(4, 4)
    ...
    ...     def forward(self, x):
    ...         return self.linear(x.tanh() * self.gamma)
    >>> model, fuse = Scaled(), FuseScaleBeforeLayer()
    >>> fused = fuse(fxlab.symbolic_trace(model, torch.ones(2, 4)))
    >>> [node.name for node in fused.graph.nodes if node.op.startswith("call")]
    ['tanh', 'linear']
    >>> bool((fused.linear.weight == model.linear.weight / 2).all())
    True
    >>> fuse(fused, reverse=True).linear.weight is model.linear.weight
    True
    """

    def match(self, facts: GraphFacts) -> Iterator[BeforeLayers]:
        """Yield the products and quotients that a layer reads."""
        found: set[Node] = set()
        for node, value, operand in combined(facts, ("mul", "div")):
            readers = list(_readers(node, (), facts))
            layers = tuple(reader for reader in readers if reader is not None)
            if layers and node not in found:
                found.add(node)
                yield BeforeLayers(node, value, operand, layers, len(layers) < len(readers))

    def refuse(self, candidate: BeforeLayers, facts: GraphFacts) -> Refusal | None:
        """Refuse what others read, what is written, and weights that cannot be replaced or get too small."""
        node, value, writes = candidate.node, candidate.value, facts.writes
        if candidate.has_other_readers:
            return Reason.OTHER_USERS(value=node.name)
        for reader in candidate.readers:
            if reason := _why_not_per_channel(candidate, reader):
                return reason
        for written in (node, *candidate.operand.nodes):
            if writes.is_written(written):
                return Reason.WRITTEN_IN_PLACE(value=written.name)
        end = facts.graph_module.graph.output_node()
        if writes.epoch(value, node)[0] != writes.epoch(value, end)[0]:
            return Reason.WRITTEN_IN_BETWEEN(value=value.name, first=node.name, last=end.name)
        for layer, scaled in candidate.scaled():
            if not writes.same_state(node, layer.node):
                return Reason.MODE_CHANGES_IN_BETWEEN(first=node.name, last=layer.node.name)
            if reason := why_not_usable(scaled.scale) or candidate.operand.why_not_into(
                layer, "weight", facts
            ):
                return reason
            if reason := why_not_rounded_alike(scaled, layer.node, facts):
                return reason
        return None

    def describe(self, candidate: BeforeLayers) -> str:
        """Name the number and the layers."""
        layers = ", ".join(reader.layer.node.name for reader in candidate.readers)
        return (
            f"its factor {factor_text(candidate.operand, candidate.node)} goes into the weights of {layers}"
        )

    def rewrite(self, candidate: BeforeLayers, edit: Editor) -> tuple[Node, ...]:
        """Put layers with the folded weights in place, and erase the product."""
        node = candidate.node
        edit.note_sources(candidate.operand.reading)
        for layer, scaled in candidate.scaled():
            bias = layer.module._parameters["bias"]
            fused = new_layer(scaled.folded()["weight"], bias, like=layer.module)
            fused._parameters["bias"] = bias
            tensors = edit.replace_layers([layer], fused, layer.path, {layer.path: scaled})
            change_layer(layer, layer.input, tensors, edit)
        changed = edit.read_instead(node, candidate.value)
        edit.erase(node)
        erase_operand(candidate.operand, edit)
        return tuple(dict.fromkeys((*(reader.layer.node for reader in candidate.readers), *changed)))


def _readers(value: Node, views: tuple[Node, ...], facts: GraphFacts) -> Iterator[Reader | None]:
    """Yield the layers that read a value, or a view of it; ``None`` for each other node that does."""
    for user in value.users:
        layer = as_linear(user, facts) or as_convolution(user, facts)
        if layer is not None and layer.input is value:
            yield Reader(layer, views)
        elif layer is None and is_view(user) and user.args[0] is value and user.users:
            yield from _readers(user, (*views, user), facts)
        else:
            yield None


def _why_not_per_channel(candidate: BeforeLayers, reader: Reader) -> Refusal | None:
    """Return why an operand is not one number for each input channel of a layer; ``None`` if it is.

    What is multiplied must have the dtype and the shape of the product, which the layer is given otherwise.
    """
    value, operand, layer = candidate.value, candidate.operand, reader.layer
    channels = input_channels(layer.module)
    if reason := operand.why_not_of_channels(channels, layer.node):
        return reason
    shape, dtype = known_shape(value), known_dtype(value)
    if shape is None:
        return Reason.UNKNOWN_SHAPE(value=value.name)
    if dtype is None:
        return Reason.UNKNOWN_DTYPE(value=value.name)
    if reason := why_mixed_dtypes((dtype, layer.module.weight.dtype)):
        return reason
    if len(operand.shape) > len(shape):
        return operand.misfit(channels, layer.node)
    for start in operand.channel_places:
        if not statically_known_true(shape[start] == channels):
            return operand.misfit(channels, layer.node)
        place: int | None = start
        for view in reader.views:
            after = known_shape(view)
            if after is None:
                return Reason.UNKNOWN_SHAPE(value=view.name)
            place = None if place is None else moved(place, view, shape, after, channels)
            shape = after
        if place != (-1 if isinstance(layer.module, nn.Linear) else 1 - layer.module.weight.dim()):
            return operand.misfit(channels, layer.node)
    return None
