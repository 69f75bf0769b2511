"""Numbers and tensors of the model that values are combined with, and what holds them once fused."""

import math
import operator
from abc import abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
from torch import nn
from torch.fx import Node

from fxlab.operators import computes, reshapes
from fxlab.reasons import Reason, Refusal
from fxlab.torch_private import AnyConv, statically_known_true
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed, why_mixed_tensors
from fxlab.transformations.journal.module_fingerprint import same_bits
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.rewriting.rewrite_pass import Candidate, RewritePass
from fxlab.transformations.views.channels import precise
from fxlab.transformations.views.layer import Layer, computed_by
from fxlab.transformations.views.permutation import permutation

AnyLayer: TypeAlias = Layer[nn.Linear] | Layer[AnyConv]
C = TypeVar("C", bound=Candidate)

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

    @property
    def channel_places(self) -> list[int]:
        """The dimensions that hold more than one number, counted from the last."""
        return [place - len(self.shape) for place, size in enumerate(self.shape) if size != 1]

    def why_not_of_channels(self, channels: int, layer: Node) -> Refusal | None:
        """Return why a tensor does not hold one number, or one for each channel; ``None`` if it does."""
        count = math.prod(self.shape)
        if self.tensor is not None and self.values.numel() != count:
            return Reason.NO_DATA(attribute=self.name)
        if count not in (1, channels) or len(self.channel_places) > 1:
            return self.misfit(channels, layer)
        return None

    def misfit(self, channels: int, layer: Node) -> Refusal:
        """Return the reason that the numbers are not those of the channels of a layer."""
        return Reason.NOT_PER_CHANNEL(value=self.name, shape=self.shape, channels=channels, layer=layer.name)

    def why_not_into(self, layer: AnyLayer, parameter: str, facts: GraphFacts) -> Refusal | None:
        """Return why the numbers cannot go into a parameter of a layer; ``None`` if they can.

        Parameters
        ----------
        layer
            The layer.
        parameter
            The parameter whose gradients would be those of the operand: ``"weight"`` or ``"bias"``.
        facts
            What is known of the graph module.
        """
        module_class = next((each for each in _CLASSES if isinstance(layer.module, each)), nn.Module)
        if reason := layer.why_not_replaceable(facts, module_class) or why_mixed(layer.module):
            return reason
        if self.tensor is None:
            return None
        if reason := why_mixed_tensors((layer.module.weight, self.tensor)):
            return reason
        fused = layer.module._parameters[parameter]
        if self.is_trained and fused is not None and not fused.requires_grad:
            return Reason.ONLY_OPERAND_TRAINED(value=self.name, parameter=parameter, layer=layer.node.name)
        return None


class Fused(nn.Module):
    """The very parameters of a layer and the operand, as they go on in what has taken their place."""

    def __init__(self, layer: AnyLayer, operand: Operand, channels: int) -> None:
        super().__init__()
        self._parameters.update(layer.module._parameters)
        held = self._parameters if isinstance(operand.tensor, nn.Parameter) else self._buffers
        held["operand"] = operand.tensor  # type: ignore[assignment]
        self.values, self.channels = operand.values, channels

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

    @property
    def values_then(self) -> torch.Tensor:
        """The operand's numbers for the channels, of shape ``(channels,)``, when it was fused."""
        return self.values.reshape(-1).expand(self.channels)

    def values_now(self) -> torch.Tensor:
        """Return the operand's numbers for the channels, those of now where it was written."""
        values = self.values if self.operand is None or not self.is_written else precise(self.operand)
        return values.reshape(-1).expand(self.channels)

    @abstractmethod
    def carry(self, replacement: nn.Module) -> bool:
        """Take over what was written to the new parameters since, and where they were moved.

        The operand may have been written as well; tell whether it can be taken out of them.
        """


class FuseOperand(RewritePass[C]):
    """A pass that fuses what a value is combined with into the parameters of a layer."""

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Take the operand out of parameters that were trained since; move what was moved."""
        for original in originals:
            if isinstance(original, Fused) and not original.carry(replacement):
                super().update_originals(replacement, originals)


def combined(facts: GraphFacts, names: Collection[str]) -> Iterator[tuple[Node, Node, Operand]]:
    """Yield the nodes that combine a value with a number or a tensor of the model, and the two.

    Parameters
    ----------
    facts
        What is known of the graph module.
    names
        Names of operators of two arguments. Of those that are not symmetric, ``div`` and ``sub``, the first
        is the value.
    """
    for node in list(facts.graph_module.graph.nodes):
        name = computed_by(node)
        if name not in names or len(node.args) != 2 or node.kwargs:
            continue
        for value, other in [node.args, node.args[::-1]] if name in ("mul", "add") else [node.args]:
            if not isinstance(value, Node) or isinstance(facts.attribute(value), torch.Tensor):
                continue
            if (operand := operand_of(other, facts)) is not None:
                yield node, value, operand


def erase_operand(operand: Operand, edit: Editor) -> None:
    """Erase the nodes by which an operand was read, where nothing else reads them."""
    for value in operand.nodes:
        if not value.users and value.op != "placeholder":
            edit.erase(value)


def is_view(value: Node) -> bool:
    """Tell whether a call returns each element of a node once, in another shape or order."""
    return bool(value.args) and isinstance(value.args[0], Node) and _shows_each_once(value)


def operand_of(value: Any, facts: GraphFacts) -> Operand | None:
    """Return a number, or what shows a tensor of the model; ``None`` for anything else."""
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


def moved(
    place: int, view: Node, before: tuple[Any, ...], shape: tuple[Any, ...], channels: int
) -> int | None:
    """Return where a dimension is in a view, counted from the last; ``None`` if it is none there."""
    order = permutation(view)
    if order is not None:
        return order.index(len(before) + place) - len(shape)
    if not reshapes(view):
        return None
    rest = math.prod(before[len(before) + place + 1 :])
    for place_now in range(-1, -len(shape) - 1, -1):
        behind = math.prod(shape[len(shape) + place_now + 1 :])
        if (
            type(shape[place_now]) is int
            and shape[place_now] == channels
            and statically_known_true(behind == rest)
        ):
            return place_now
    return None


def _shows_each_once(node: Node) -> bool:
    return reshapes(node) or computes(node) in ("transpose", "permute")
