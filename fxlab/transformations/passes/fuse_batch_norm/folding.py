"""The base of passes that fuse a batch norm into the layer before or behind it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import torch
from torch import nn
from torch.fx import Node
from torch.nn import functional

from fxlab.node_info import dtype_name, known_shape
from fxlab.reasons import Reason, Refusal
from fxlab.torch_private import AnyBatchNorm, AnyConv, AnyConvTranspose
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed
from fxlab.transformations.journal.module_tree import carry_tensor
from fxlab.transformations.patterns.matching import Miss
from fxlab.transformations.patterns.matching_pass import MatchingPass
from fxlab.transformations.patterns.pattern import Pattern, read_once
from fxlab.transformations.rewriting.dialects import change_layer, new_layer
from fxlab.transformations.rewriting.editor import Editor
from fxlab.transformations.views.batch_norm import as_batch_norm
from fxlab.transformations.views.convolution import as_convolution
from fxlab.transformations.views.layer import Layer
from fxlab.transformations.views.linear import TransposedLinear, as_linear
from fxlab.values.tensors import same_bits

LayerModule: TypeAlias = nn.Linear | AnyConv


@dataclass(frozen=True)
class ScaleAndShift:
    """``scale`` and ``shift`` of each channel, both of shape ``(num_features,)`` and in double precision."""

    scale: torch.Tensor
    shift: torch.Tensor

    @classmethod
    def of(cls, batch_norm: AnyBatchNorm) -> "ScaleAndShift":
        """Compute them from the running statistics."""
        with torch.no_grad():
            mean, variance = (precise(statistic) for statistic in running_statistics(batch_norm))
            scale = torch.rsqrt(variance + batch_norm.eps)
            if batch_norm.weight is not None:
                scale = scale * precise(batch_norm.weight)
            shift = -mean * scale
            if batch_norm.bias is not None:
                shift = shift + precise(batch_norm.bias)
        return cls(scale, shift)


def running_statistics(batch_norm: AnyBatchNorm) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the running mean and variance."""
    mean, variance = batch_norm.running_mean, batch_norm.running_var
    if mean is None or variance is None:
        raise ValueError("A batch norm without running statistics was given; check why_not_fixed first.")
    return mean, variance


def why_not_fixed(batch_norm: AnyBatchNorm, channels: int) -> Refusal | None:
    """Return why a batch norm is no scaling and shift of this number of channels; ``None`` if it is."""
    if batch_norm.training:
        return Reason.TRAINING_MODE(module="the batch norm")
    if batch_norm.running_mean is None or batch_norm.running_var is None:
        return Reason.NO_RUNNING_STATISTICS()
    for tensor in (*running_statistics(batch_norm), batch_norm.weight, batch_norm.bias):
        if tensor is not None and tensor.shape != (channels,):
            return Reason.FEATURES_DIFFER(features=tuple(tensor.shape), channels=channels)
    return None


def is_trained(module: nn.Module) -> bool:
    """Tell whether a parameter of a module is trained."""
    return any(parameter is not None and parameter.requires_grad for parameter in module._parameters.values())


def carry_bias(
    layer: nn.Module, batch_norm: AnyBatchNorm, to_layer: torch.Tensor, to_norm: torch.Tensor
) -> bool:
    """Bring a new bias back, to the layer if it has one, else to the batch norm; tell whether either has."""
    for module, value in ((layer, to_layer), (batch_norm, to_norm)):
        bias = module._parameters["bias"]
        if bias is not None:
            carry_tensor(module, "bias", value.to(bias.dtype))
            return True
    return False


_FUNCTIONS: dict[type[nn.Module], Callable[..., Any]] = {
    nn.Linear: functional.linear,
    nn.Conv1d: functional.conv1d,
    nn.Conv2d: functional.conv2d,
    nn.Conv3d: functional.conv3d,
    nn.ConvTranspose1d: functional.conv_transpose1d,
    nn.ConvTranspose2d: functional.conv_transpose2d,
    nn.ConvTranspose3d: functional.conv_transpose3d,
}


def _before_norm(function: Callable[..., Any]) -> Callable[..., Any]:
    def before_norm(x: Any, w: Any, mean: Any, variance: Any, g: Any, h: Any, b: Any = None) -> Any:
        return functional.batch_norm(function(x, w, b), mean, variance, g, h)

    return before_norm


def _behind_norm(x: Any, w: Any, mean: Any, variance: Any, g: Any, h: Any, b: Any = None) -> Any:
    return functional.linear(functional.batch_norm(x, mean, variance, g, h), w, b)


_NAMES = ("weight", "bias")
_BEFORE = {layer: _before_norm(function) for layer, function in _FUNCTIONS.items()}


@dataclass(frozen=True)
class LayerAndNorm:
    """A linear layer or a convolution and the batch norm that reads it, or that it reads."""

    layer: Layer[nn.Linear] | Layer[AnyConv]
    norm: Layer[AnyBatchNorm]
    expected: tuple[type[nn.Module], type[nn.Module]]
    """The classes that the two must have."""
    norm_first: bool

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The batch norm, which would go."""
        return (self.norm.node,)

    @property
    def in_order(self) -> tuple[Node, Node]:
        """The nodes of the two, the one that the other reads first."""
        pair = self.layer.node, self.norm.node
        return pair[::-1] if self.norm_first else pair

    @cached_property
    def folded(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The weight and the bias of a layer that computes the same as the two."""
        return folded(self.layer.module, self.norm.module, self.norm_first)


class FuseBatchNorm(MatchingPass[LayerAndNorm]):
    """Fuses batch norms, which scale and shift channels in evaluation mode, into weights and biases."""

    pairs: ClassVar[Mapping[type[nn.Module], type[AnyBatchNorm]]]
    """The classes of layers, and of the batch norms that may be fused with each."""
    norm_may_be_first: ClassVar[bool] = False
    """Whether batch norms that a linear reads are fused as well."""

    around: ClassVar = frozenset({"batch_norm", "_native_batch_norm_legit_no_training"})

    def _patterns(self) -> list[Pattern]:
        """Return a layer and a batch norm behind it, or before it, for each class of layers."""
        found = [_BEFORE[each] for each in self.pairs]
        found += [_behind_norm] if self.norm_may_be_first else []
        return [one for each in found for one in read_once(each)]

    def _is_around(self, node: Node, facts: GraphFacts) -> bool:
        norm = as_batch_norm(node, facts) if super()._is_around(node, facts) else None
        return norm is not None and isinstance(norm.module, tuple(self.pairs.values()))

    def _near_misses(self, facts: GraphFacts, taken: set[Node]) -> list[Miss]:
        """Drop near misses of models without such layers, and those at a layer of another class."""
        if not (missed := super()._near_misses(facts, taken)):
            return []
        layers = {node: _as_layer(node, facts) for node in facts.graph_module.graph.nodes}
        if not any(isinstance(each.module, tuple(self.pairs)) for each in layers.values() if each):
            return []
        return [miss for miss in missed if miss.at is None or layers[miss.at] is None]

    def why_other(self, candidate: LayerAndNorm) -> Refusal | None:
        """Return why a convolution may take its input for a single sample; ``None`` if it is a batch.

        Only a 1d batch norm accepts such a value: one of shape ``(C, L)`` is a batch of ``C`` vectors to it.
        An operator accepts any.
        """
        if candidate.norm.is_module and not isinstance(candidate.norm.module, nn.BatchNorm1d):
            return None
        node = candidate.layer.node
        shape, dimensions = known_shape(node), candidate.layer.module.weight.dim()
        if shape is None:
            return Reason.UNKNOWN_SHAPE(value=node.name)
        if len(shape) != dimensions:
            supported = f"(N, C, {', '.join('DHWL'[-dimensions + 1 : -1] if dimensions > 3 else 'L')})"
            return Reason.DIMENSIONS(value=node.name, count=len(shape), supported=supported)
        return None

    def match(self, facts: GraphFacts) -> Iterator[LayerAndNorm]:
        """Yield the batch norms that read a layer, or that a layer reads."""
        for node in facts.graph_module.graph.nodes:
            if (norm := as_batch_norm(node, facts)) is not None:
                layer = _as_layer(norm.input, facts)
                if layer is not None and (pair := self._pair(layer.module, norm.module)):
                    yield LayerAndNorm(layer, norm, pair, norm_first=False)
            elif self.norm_may_be_first and (layer := as_linear(node, facts)) is not None:
                norm = as_batch_norm(layer.input, facts)
                if norm is not None and (pair := self._pair(layer.module, norm.module)):
                    yield LayerAndNorm(layer, norm, pair, norm_first=True)

    def refuse(self, candidate: LayerAndNorm, facts: GraphFacts) -> Refusal | None:
        """Refuse irreplaceable modules, other readers, and a batch norm that is not a fixed scaling."""
        layer, norm = candidate.layer.module, candidate.norm.module
        first, last = candidate.in_order
        if len(first.users) > 1:
            return Reason.OTHER_USERS(value=first.name)
        if reason := _why_not_both_replaceable(candidate, facts):
            return reason
        channels = _in_features(layer) if candidate.norm_first else output_channels(layer)
        if reason := why_not_fixed(norm, channels) or why_mixed(layer, norm) or self.why_other(candidate):
            return reason
        if is_trained(norm) and not is_trained(layer):  # the fused layer is trained as the layer is
            return Reason.ONLY_NORM_TRAINED()
        if not facts.writes.same_state(first, last):
            return Reason.MODE_CHANGES_IN_BETWEEN(first=first.name, last=last.name)
        value, writes, call = candidate.norm.input, facts.writes, candidate.norm.call
        # The layer then reads the input of the batch norm, and later than that did.
        if candidate.norm_first and writes.epoch(value, call) != writes.epoch(value, last):
            return Reason.WRITTEN_IN_BETWEEN(value=value.name, first=first.name, last=last.name)
        are_finite = all(each.is_meta or bool(each.isfinite().all()) for each in candidate.folded)
        return None if are_finite else Reason.NOT_FINITE(dtype=dtype_name(candidate.folded[0].dtype))

    def behaves_by_mode(self, candidate: LayerAndNorm, facts: GraphFacts) -> tuple[Node, ...]:
        """Return the call of a batch norm module; an operator has its mode as an argument."""
        return (candidate.norm.node,) if candidate.norm.is_module else ()

    def describe(self, candidate: LayerAndNorm) -> str:
        """Name the layer."""
        return f"fused into {candidate.layer.node.name}"

    def rewrite(self, candidate: LayerAndNorm, edit: Editor) -> Node:
        """Put a layer with the folded weights in place of both."""
        layer, norm = candidate.layer, candidate.norm
        layers: list[Layer[Any]] = [norm, layer] if candidate.norm_first else [layer, norm]
        fused = new_layer(*candidate.folded, like=layer.module)
        tensors = edit.replace_layers(layers, fused, layer.path)
        value = norm.input if candidate.norm_first else layer.input
        change_layer(layer, value, tensors, edit)
        _erase(norm, None if candidate.norm_first else layer.node, edit)
        return layer.node

    def update_originals(self, replacement: nn.Module, originals: list[nn.Module]) -> None:
        """Divide the scaling out of weights that were trained since; follow moves."""
        norm_first = isinstance(originals[0], AnyBatchNorm)
        layer, norm = reversed(originals) if norm_first else originals
        if not isinstance(layer, LayerModule) or not isinstance(norm, AnyBatchNorm):
            raise TypeError("A layer and a batch norm were expected.")
        made, now = folded(layer, norm, norm_first), [replacement.get_parameter(name) for name in _NAMES]
        pairs = zip(made, now, strict=True)
        is_only_cast = all(same_bits(b.detach(), a.detach().to(b.device, b.dtype)) for a, b in pairs)
        for original in originals:
            original.to(now[0].device, now[0].dtype)
        if is_only_cast:
            return
        affine = ScaleAndShift.of(norm)
        weight, bias = map(precise, now)
        carry = _carry_before if norm_first else _carry_after
        # A scale of zero cannot be divided out.
        if not bool((affine.scale != 0).all()) or not carry(layer, norm, affine, weight, bias):
            super().update_originals(replacement, originals)

    def _pair(self, layer: nn.Module, norm: nn.Module) -> tuple[type[nn.Module], type[nn.Module]] | None:
        """Return the classes of a layer and a batch norm among those that can be fused."""
        for layer_class, norm_class in self.pairs.items():
            if isinstance(layer, layer_class) and isinstance(norm, norm_class):
                return layer_class, norm_class
        return None


def folded(layer: LayerModule, norm: AnyBatchNorm, norm_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weight and the bias of a layer that computes the same as a layer and a batch norm."""
    affine, dtype = ScaleAndShift.of(norm), layer.weight.dtype
    with torch.no_grad():
        weight = precise(layer.weight)
        bias = None if layer.bias is None else precise(layer.bias)
        if norm_first:
            seen, scale = _seen(layer, weight, affine.shift), _per_input(layer, affine.scale)
            bias = seen if bias is None else seen + bias
        else:
            scale = per_output(layer, affine.scale)
            bias = affine.shift if bias is None else bias * affine.scale + affine.shift
        return (weight * scale).to(dtype), bias.to(dtype)


def _as_layer(node: Node, facts: GraphFacts) -> Layer[nn.Linear] | Layer[AnyConv] | None:
    return as_linear(node, facts) or as_convolution(node, facts)


def _why_not_both_replaceable(candidate: LayerAndNorm, facts: GraphFacts) -> Refusal | None:
    layer_class, norm_class = candidate.expected
    layer = "linear" if isinstance(candidate.layer.module, nn.Linear) else "convolution"
    if reason := candidate.layer.why_not_replaceable(facts, layer_class):
        return reason.prefixed(f"the {layer} cannot be replaced")
    if reason := candidate.norm.why_not_replaceable(facts, norm_class):
        return reason.prefixed("the batch norm cannot be replaced")
    return None


def _erase(norm: Layer[AnyBatchNorm], pass_on_to: Node | None, edit: Editor) -> None:
    """Erase a batch norm; its users read the layer."""
    if norm.is_module:
        edit.erase(norm.node, pass_on_to=pass_on_to)
        return
    if pass_on_to is not None:
        edit.read_instead(norm.node, pass_on_to)
    for node in dict.fromkeys((norm.node, norm.call)):
        edit.erase(node)
    edit.erase_tensors(norm)


def _carry_after(
    layer: LayerModule, norm: AnyBatchNorm, affine: ScaleAndShift, weight: torch.Tensor, bias: torch.Tensor
) -> bool:
    """Bring new weights back to a layer and the batch norm behind it; tell whether there was a place."""
    shift = bias - affine.shift
    if not carry_bias(
        layer, norm, shift / affine.scale, shift if norm.bias is None else shift + precise(norm.bias)
    ):
        return False
    weight = weight / per_output(layer, affine.scale)
    carry_tensor(layer, "weight", weight.to(layer.weight.dtype))
    return True


def _carry_before(
    layer: LayerModule, norm: AnyBatchNorm, affine: ScaleAndShift, weight: torch.Tensor, bias: torch.Tensor
) -> bool:
    """Bring new weights back to a linear and the batch norm before it; tell whether there was a place."""
    if layer.bias is None:
        return False
    weight = weight / _per_input(layer, affine.scale)
    carry_tensor(layer, "bias", (bias - _seen(layer, weight, affine.shift)).to(layer.bias.dtype))
    carry_tensor(layer, "weight", weight.to(layer.weight.dtype))
    return True


def _seen(layer: LayerModule, weight: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Return the contribution of a shift of the input features to each output feature."""
    return (weight * _per_input(layer, shift)).sum(0 if isinstance(layer, TransposedLinear) else 1)


def _in_features(linear: LayerModule) -> int:
    return linear.weight.shape[0 if isinstance(linear, TransposedLinear) else 1]


def _per_input(linear: LayerModule, values: torch.Tensor) -> torch.Tensor:
    return values.unsqueeze(1) if isinstance(linear, TransposedLinear) else values


_INPUTS_FIRST = (AnyConvTranspose, TransposedLinear)


def output_channels(layer: LayerModule) -> int:
    """Return the number of channels of the result, by the weight."""
    shape = layer.weight.shape
    return int(shape[1] * _groups(layer) if isinstance(layer, _INPUTS_FIRST) else shape[0])


def per_output(layer: LayerModule, values: torch.Tensor) -> torch.Tensor:
    """Shape a number for each output channel so that it multiplies the weight."""
    return _second(layer, values) if isinstance(layer, _INPUTS_FIRST) else _first(layer, values)


def _groups(layer: LayerModule) -> int:
    return 1 if isinstance(layer, nn.Linear) else layer.groups


def _first(layer: LayerModule, values: torch.Tensor) -> torch.Tensor:
    return values.reshape(-1, *[1] * (layer.weight.dim() - 1))


def _second(layer: LayerModule, values: torch.Tensor) -> torch.Tensor:
    rows, columns, *kernel = layer.weight.shape
    groups = _groups(layer)
    grouped = values.reshape(groups, 1, columns).expand(-1, rows // groups, -1)
    return grouped.reshape(rows, columns, *[1] * len(kernel))


def precise(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in double precision, or in single precision if its device lacks double."""
    return tensor.detach().to(torch.float32 if tensor.device.type == "mps" else torch.float64)
