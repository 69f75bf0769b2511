"""Layers whose result is multiplied by, or added to, the same for every input: a number, or one a channel."""

import math
import operator
from abc import abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.modules.conv import _ConvNd

from fxlab.operators import computes, reshapes
from fxlab.reasons import Reason, Refusal
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed
from fxlab.transformations.journal.module_fingerprint import same_bits
from fxlab.transformations.rewriting.dtype_checks import refuse_autocast
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import RewritePass
from fxlab.transformations.views.channels import output_channels, precise
from fxlab.transformations.views.convolution import as_convolution
from fxlab.transformations.views.layer import Layer, computed_by
from fxlab.transformations.views.linear import as_linear
from fxlab.transformations.views.permutation import permutation

_CLASSES: tuple[type[nn.Module], ...] = (
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
_KEEPS_ALL = (None, Ellipsis, slice(None))
"""What an index may be made of that shows all elements."""


@dataclass(frozen=True)
class Operand:
    """A number, or a tensor of the model."""

    name: str
    values: torch.Tensor
    """A number of shape ``()``, or all numbers of the tensor in a row, in double precision."""
    shape: tuple[int, ...] = ()
    """The shape in which the tensor is given."""
    tensor: torch.Tensor | None = None
    """The tensor of the model, the very object; ``None`` for a number."""
    nodes: tuple[Node, ...] = ()
    """The reading of the tensor, and its views, last first."""

    @property
    def is_trained(self) -> bool:
        """Whether it requires gradients."""
        return self.tensor is not None and self.tensor.requires_grad

    @property
    def reading(self) -> tuple[Node, ...]:
        """The node that reads the tensor; none for a number."""
        return self.nodes[-1:]


@dataclass(frozen=True)
class AfterLayer:
    """A layer, and the node that its result, or a view of it, is combined with an operand by."""

    layer: Layer[nn.Linear] | Layer[_ConvNd]
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

    @property
    def values(self) -> torch.Tensor:
        """The numbers for the channels of the layer, of shape ``(channels,)``, in double precision."""
        return self.operand.values.reshape(-1).expand(output_channels(self.layer.module))

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
        module_class = next((each for each in _CLASSES if isinstance(layer.module, each)), nn.Module)
        if reason := layer.why_not_replaceable(facts, module_class) or why_mixed(layer.module):
            return reason
        return self._why_operand_differs(parameter)

    def _why_operand_differs(self, parameter: str) -> Refusal | None:
        layer, tensor = self.layer, self.operand.tensor
        if tensor is None:
            return None
        dtypes = {layer.module.weight.dtype, tensor.dtype}
        if len(dtypes) > 1:
            names = sorted(str(each).removeprefix("torch.") for each in dtypes)
            return Reason.MIXED_DTYPES(dtypes=", ".join(names))
        devices = {layer.module.weight.device, tensor.device}
        if len(devices) > 1:
            return Reason.MIXED_DEVICES(devices=", ".join(sorted(map(str, devices))))
        fused = layer.module._parameters[parameter]
        if self.operand.is_trained and fused is not None and not fused.requires_grad:
            return Reason.ONLY_OPERAND_TRAINED(
                value=self.operand.name, parameter=parameter, layer=layer.node.name
            )
        return None

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
        for value in self.operand.nodes:
            if not value.users and value.op != "placeholder":
                edit.erase(value)
        return tuple(dict.fromkeys((layer.node, *readers)))


class Fused(nn.Module):
    """The very parameters of a layer and the operand, as they go on in what has taken their place."""

    def __init__(self, candidate: AfterLayer) -> None:
        super().__init__()
        self._parameters.update(candidate.layer.module._parameters)
        tensor = candidate.operand.tensor
        held = self._parameters if isinstance(tensor, nn.Parameter) else self._buffers
        held["operand"] = tensor  # type: ignore[assignment]
        self.values, self.channels = candidate.operand.values, candidate.values.numel()

    @property
    def operand(self) -> torch.Tensor | None:
        """The tensor as it is now; ``None`` for a number."""
        return self._parameters.get("operand", self._buffers.get("operand"))

    @property
    def is_written(self) -> bool:
        """Whether other numbers were written into the operand since."""
        tensor = self.operand
        if tensor is None or tensor.is_meta:
            return False
        then = self.values.to(tensor.device, tensor.dtype)
        return not same_bits(tensor.detach().reshape(-1), then)

    def values_now(self) -> torch.Tensor:
        """Return the operand's numbers for the channels, those of now where it was written."""
        values = self.values if self.operand is None or not self.is_written else precise(self.operand)
        return values.reshape(-1).expand(self.channels)

    @abstractmethod
    def carry(self, replacement: nn.Module) -> bool:
        """Take over what was written to the new parameters since, and where they were moved.

        The operand may have been written as well; tell whether it can be taken out of them.
        """


class FuseAfterLayer(RewritePass[AfterLayer]):
    """A pass that fuses what the result of a layer is combined with into its parameters."""

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Take the operand out of parameters that were trained since; move what was moved."""
        for original in originals:
            if isinstance(original, Fused) and not original.carry(replacement):
                super().update_originals(replacement, originals)


def after_layers(facts: GraphFacts, names: Collection[str]) -> Iterator[AfterLayer]:
    """Yield the nodes that combine the result of a layer with a number or a tensor of the model.

    Parameters
    ----------
    facts
        What is known of the graph module.
    names
        Names of operators of two arguments. Of those that are not symmetric, ``div`` and ``sub``, the first
        is the layer's.
    """
    for node in list(facts.graph_module.graph.nodes):
        name = computed_by(node)
        if name not in names or len(node.args) != 2 or node.kwargs:
            continue
        pairs = [node.args, node.args[::-1]] if name in ("mul", "add") else [node.args]
        found = (_found(node, value, other, facts) for value, other in pairs)
        yield from [each for each in found if each is not None][:1]


def _found(node: Node, value: Any, other: Any, facts: GraphFacts) -> AfterLayer | None:
    operand = _operand(other, facts)
    if not isinstance(value, Node) or operand is None or isinstance(facts.attribute(value), torch.Tensor):
        return None
    views: list[Node] = []
    while _shows_each_once(value) and isinstance(value.args[0], Node):
        views.append(value)
        value = value.args[0]
    layer = as_linear(value, facts) or as_convolution(value, facts)
    if layer is None:
        return None
    return AfterLayer(layer, node, tuple(views), operand, _why_not_per_channel(layer, views, operand))


def _operand(value: Any, facts: GraphFacts) -> Operand | None:
    if type(value) in (int, float):
        try:
            return Operand(repr(value), torch.tensor(float(value), dtype=torch.float64))
        except OverflowError:
            return Operand(repr(value), torch.tensor(math.inf, dtype=torch.float64))
    nodes: list[Node] = []
    while isinstance(value, Node) and _shows_tensor(value):
        nodes.append(value)
        value = value.args[0]
    tensor = facts.attribute(value) if isinstance(value, Node) else None
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        return None
    nodes.append(value)
    shape = _shape_of(nodes, tensor)
    if shape is None:
        return None
    has_data = type(tensor) in (torch.Tensor, nn.Parameter) and not tensor.is_meta
    values = precise(tensor).reshape(-1) if has_data else torch.empty(0)
    name = str((facts.reading(value) or value).target)
    return Operand(name, values, shape, tensor, tuple(nodes))


def _shows_tensor(node: Node) -> bool:
    """Tell whether a node may show a tensor of the model in another shape."""
    if not node.args or not isinstance(node.args[0], Node) or len(node.all_input_nodes) != 1:
        return False
    if node.target is operator.getitem:
        index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
        return all(any(each is known or each == known for known in _KEEPS_ALL) for each in index)
    return bool(computed_by(node)) and _shows_each_once(node)


def _shape_of(nodes: list[Node], tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the shape in which a tensor is shown; ``None`` if that fails, or moves its numbers."""
    shown: Any = torch.empty(tensor.shape, device="meta")
    for node in reversed(nodes[:-1]):
        target: Any = getattr(torch.Tensor, str(node.target)) if node.op == "call_method" else node.target
        if computes(node) in ("transpose", "permute") and sum(size != 1 for size in shown.shape) > 1:
            return None
        try:
            shown = target(shown, *node.args[1:], **node.kwargs)
        except Exception:  # whatever the graph raises as well
            return None
    return tuple(shown.shape)


def _why_not_per_channel(
    layer: Layer[nn.Linear] | Layer[_ConvNd], views: list[Node], operand: Operand
) -> Refusal | None:
    """Return why an operand does not have one number for each channel of a layer; ``None`` if it does."""
    if operand.tensor is None:
        return None
    channels = output_channels(layer.module)
    count = math.prod(operand.shape)
    others = [place - len(operand.shape) for place, size in enumerate(operand.shape) if size != 1]
    misfit = Reason.NOT_PER_CHANNEL(
        value=operand.name, shape=operand.shape, channels=channels, layer=layer.node.name
    )
    if operand.values.numel() != count:
        return Reason.NO_DATA(attribute=operand.name)
    if count not in (1, channels) or len(others) > 1:
        return misfit
    is_linear = isinstance(layer.module, nn.Linear)
    at_least = 1 if is_linear else layer.module.weight.dim() - 1
    place: int | None = -at_least
    for view in reversed(views):
        if (value := view.meta.get("val")) is None or (before := view.args[0].meta.get("val")) is None:  # type: ignore[union-attr]
            return Reason.UNKNOWN_SHAPE(value=view.name)
        if place is not None:
            place = _moved(place, view, tuple(before.shape), tuple(value.shape), channels)
        at_least = value.dim()
    if len(operand.shape) > at_least:
        known = layer.node.meta.get("val") if not views else None
        if known is None:
            return Reason.UNKNOWN_SHAPE(value=layer.node.name)
        if len(operand.shape) > known.dim():
            return misfit
    return None if count == 1 or others == [place] else misfit


def _moved(
    place: int, view: Node, before: tuple[Any, ...], shape: tuple[Any, ...], channels: int
) -> int | None:
    """Return where a dimension is in a view, counted from the last; ``None`` if it is none there."""
    order = permutation(view)
    if order is not None:
        return order.index(len(before) + place) - len(shape)
    if not reshapes(view):
        return None
    rest = math.prod(before[len(before) + place + 1 :])
    for moved in range(-1, -len(shape) - 1, -1):
        behind = math.prod(shape[len(shape) + moved + 1 :])
        if type(shape[moved]) is int and shape[moved] == channels and statically_known_true(behind == rest):
            return moved
    return None


def _shows_each_once(node: Node) -> bool:
    """Tell whether a call returns each element of its first argument once, in another shape or order."""
    return reshapes(node) or computes(node) in ("transpose", "permute")
