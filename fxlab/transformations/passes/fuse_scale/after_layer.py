"""Layers whose result is multiplied by, or added to, the same for every input: a number, or one a channel."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from torch import nn
from torch.fx import Node

from fxlab.reasons import Reason, Refusal
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.passes.fuse_scale.operand import (
    AnyLayer,
    Operand,
    combined,
    erase_operand,
    is_view,
    moved,
)
from fxlab.transformations.rewriting.dtype_checks import refuse_autocast
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.views.channels import output_channels
from fxlab.transformations.views.convolution import as_convolution
from fxlab.transformations.views.linear import as_linear


@dataclass(frozen=True)
class AfterLayer:
    """A layer, and the node that its result, or a view of it, is combined with an operand by."""

    layer: AnyLayer
    node: Node
    views: tuple[Node, ...]
    """Between the two, last first."""
    operand: Operand
    misfit: Refusal | None = field(default=None, compare=False)
    """Why the operand is not one number for each channel."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The node that would go."""
        return (self.node,)

    def why_not_fused(self, facts: GraphFacts, parameter: str) -> Refusal | None:
        """Return why the operand cannot go into a parameter of the layer; ``None`` if it can.

        Parameters
        ----------
        facts
            What is known of the graph module.
        parameter
            The parameter whose gradients would be those of the operand: ``"weight"`` or ``"bias"``.
        """
        layer, operand = self.layer, self.operand
        if self.misfit is not None:
            return self.misfit
        for value in (layer.node, *self.views):
            if len(value.users) > 1:
                return Reason.OTHER_USERS(value=value.name)
        for value in (layer.node, *operand.nodes):
            if facts.writes.is_written(value):
                return Reason.WRITTEN_IN_PLACE(value=value.name)
        if not facts.writes.same_state(layer.node, self.node):
            return Reason.MODE_CHANGES_IN_BETWEEN(first=layer.node.name, last=self.node.name)
        return operand.why_not_into(layer, parameter, facts)

    def erase(self, edit: Editor, pass_name: str) -> tuple[Node, ...]:
        """Erase the node and what only it needed; return the nodes that compute something else now.

        Parameters
        ----------
        edit
            What changes the graph.
        pass_name
            The name of the pass, for the words of a graph that refuses autocast.
        """
        layer, node = self.layer, self.node
        edit.note_sources(self.operand.reading)
        last = self.views[0] if self.views else layer.node
        readers = tuple(node.users) if self.views else ()
        if self.operand.tensor is not None:
            refuse_autocast(layer.node, edit, pass_name, "where its result has another dtype")
        edit.erase(node, pass_on_to=last)
        erase_operand(self.operand, edit)
        return tuple(dict.fromkeys((layer.node, *readers)))


def after_layers(facts: GraphFacts, names: Collection[str]) -> Iterator[AfterLayer]:
    """Yield the nodes that combine the result of a layer with a number or a tensor of the model.

    Parameters
    ----------
    facts, names
        As for :func:`combined`; the value is the result of the layer.
    """
    found: set[Node] = set()
    for node, value, operand in combined(facts, names):
        views: list[Node] = []
        while is_view(value):
            views.append(value)
            value = value.args[0]  # type: ignore[assignment]
        layer = as_linear(value, facts) or as_convolution(value, facts)
        if layer is not None and node not in found:
            found.add(node)
            yield AfterLayer(layer, node, tuple(views), operand, _why_not_per_channel(layer, views, operand))


def _why_not_per_channel(layer: AnyLayer, views: list[Node], operand: Operand) -> Refusal | None:
    """Return why an operand does not have one number for each channel of a layer; ``None`` if it does."""
    if operand.tensor is None:
        return None
    channels = output_channels(layer.module)
    if reason := operand.why_not_of_channels(channels, layer.node):
        return reason
    is_linear = isinstance(layer.module, nn.Linear)
    at_least = 1 if is_linear else layer.module.weight.dim() - 1
    place: int | None = -at_least
    for view in reversed(views):
        if (value := view.meta.get("val")) is None or (before := view.args[0].meta.get("val")) is None:  # type: ignore[union-attr]
            return Reason.UNKNOWN_SHAPE(value=view.name)
        if place is not None:
            place = moved(place, view, tuple(before.shape), tuple(value.shape), channels)
        at_least = value.dim()
    if len(operand.shape) > at_least:
        known = layer.node.meta.get("val") if not views else None
        if known is None:
            return Reason.UNKNOWN_SHAPE(value=layer.node.name)
        if len(operand.shape) > known.dim():
            return operand.misfit(channels, layer.node)
    return None if operand.channel_places in ([], [place]) else operand.misfit(channels, layer.node)
