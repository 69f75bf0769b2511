"""Fuse batch norms into the convolution or linear layer before or behind them: a base, and five passes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import nn
from torch.fx import Node
from torch.nn import functional

from fxlab.base.exchanged import cached_property
from fxlab.base.reasons import Reason, Refusal
from fxlab.base.torch_private import AnyBatchNorm, AnyConv, AnyConvTranspose
from fxlab.operators.node_info import dtype_name, known_shape
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.module_safety import why_mixed
from fxlab.transformations.journal.module_tree import carry_tensor
from fxlab.transformations.patterns.captured import NearMiss
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


def scale_and_shift(norm: AnyBatchNorm) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scale and the shift of each channel by running statistics, in double precision."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    with torch.no_grad():
        scale = torch.rsqrt(precise(norm.running_var) + norm.eps)
        if norm.weight is not None:
            scale = scale * precise(norm.weight)
        shift = -precise(norm.running_mean) * scale
        return scale, shift if norm.bias is None else shift + precise(norm.bias)


def why_not_fixed(norm: AnyBatchNorm, channels: int) -> Refusal | None:
    """Return why a batch norm is no scaling and shift of this number of channels; ``None`` if it is."""
    if norm.training:
        return Reason.TRAINING_MODE(module="the batch norm")
    if norm.running_mean is None or norm.running_var is None:
        return Reason.NO_RUNNING_STATISTICS()
    for tensor in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
        if tensor is not None and tensor.shape != (channels,):
            return Reason.FEATURES_DIFFER(features=tuple(tensor.shape), channels=channels)
    return None


def is_trained(module: nn.Module) -> bool:
    """Tell whether a parameter of a module is trained."""
    return any(parameter is not None and parameter.requires_grad for parameter in module._parameters.values())


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

    def _near_misses(self, facts: GraphFacts, taken: set[Node]) -> list[NearMiss]:
        """Drop near misses of models without such layers, and those at a layer of another class."""
        if not (missed := super()._near_misses(facts, taken)):
            return []
        layers = {node: _as_layer(node, facts) for node in facts.graph_module.graph.nodes}
        if not any(isinstance(each.module, tuple(self.pairs)) for each in layers.values() if each):
            return []
        return [miss for miss in missed if miss.at is None or layers[miss.at] is None]

    def why_other(self, candidate: LayerAndNorm) -> Refusal | None:
        """Return why a convolution may take its input for a single sample; ``None`` if it is a batch.

        A 1d batch norm takes ``(C, L)`` for ``C`` vectors; others refuse it, an operator takes any.
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
        inputs = layer.weight.shape[0 if isinstance(layer, TransposedLinear) else 1]
        channels = inputs if candidate.norm_first else _output_channels(layer)
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
        carry = _carry_before if norm_first else _carry_after
        if not carry(layer, norm, *map(precise, now)):
            super().update_originals(replacement, originals)

    def _pair(self, layer: nn.Module, norm: nn.Module) -> tuple[type[nn.Module], type[nn.Module]] | None:
        """Return the classes of a layer and a batch norm among those that can be fused."""
        for layer_class, norm_class in self.pairs.items():
            if isinstance(layer, layer_class) and isinstance(norm, norm_class):
                return layer_class, norm_class
        return None


def folded(layer: LayerModule, norm: AnyBatchNorm, norm_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weight and the bias of a layer that computes the same as a layer and a batch norm."""
    (scale, shift), dtype = scale_and_shift(norm), layer.weight.dtype
    with torch.no_grad():
        weight = precise(layer.weight)
        bias = 0.0 if layer.bias is None else precise(layer.bias)
        if norm_first:
            made = weight * _per_input(layer, scale), _seen(layer, weight, shift) + bias
        else:
            made = weight * _per_output(layer, scale), bias * scale + shift
        return made[0].to(dtype), made[1].to(dtype)


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


def _carry_after(layer: LayerModule, norm: AnyBatchNorm, weight: torch.Tensor, bias: torch.Tensor) -> bool:
    """Bring new weights back to a layer and the batch norm behind it; tell whether there was a place."""
    scale, shift = scale_and_shift(norm)
    # A scale of zero cannot be divided out.
    if not bool((scale != 0).all()) or (layer.bias is None and norm.bias is None):
        return False
    if layer.bias is not None:
        carry_tensor(layer, "bias", ((bias - shift) / scale).to(layer.bias.dtype))
    else:
        carry_tensor(norm, "bias", (bias - shift + precise(norm.bias)).to(norm.bias.dtype))
    carry_tensor(layer, "weight", (weight / _per_output(layer, scale)).to(layer.weight.dtype))
    return True


def _carry_before(layer: LayerModule, norm: AnyBatchNorm, weight: torch.Tensor, bias: torch.Tensor) -> bool:
    """Bring new weights back to a linear and the batch norm before it; tell whether there was a place."""
    scale, shift = scale_and_shift(norm)
    if not bool((scale != 0).all()) or layer.bias is None:
        return False
    weight = weight / _per_input(layer, scale)
    carry_tensor(layer, "bias", (bias - _seen(layer, weight, shift)).to(layer.bias.dtype))
    carry_tensor(layer, "weight", weight.to(layer.weight.dtype))
    return True


def _seen(layer: LayerModule, weight: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Return the contribution of a shift of the input features to each output feature."""
    return (weight * _per_input(layer, shift)).sum(0 if isinstance(layer, TransposedLinear) else 1)


def _per_input(linear: LayerModule, values: torch.Tensor) -> torch.Tensor:
    return values.unsqueeze(1) if isinstance(linear, TransposedLinear) else values


_INPUTS_FIRST = (AnyConvTranspose, TransposedLinear)


def _output_channels(layer: LayerModule) -> int:
    """Return the number of channels of the result, by the weight."""
    shape = layer.weight.shape
    return int(shape[1] * getattr(layer, "groups", 1) if isinstance(layer, _INPUTS_FIRST) else shape[0])


def _per_output(layer: LayerModule, values: torch.Tensor) -> torch.Tensor:
    """Shape a number for each output channel so that it multiplies the weight."""
    rows, columns, *kernel = layer.weight.shape
    if not isinstance(layer, _INPUTS_FIRST):
        return values.reshape(-1, *[1] * (layer.weight.dim() - 1))
    groups = getattr(layer, "groups", 1)
    grouped = values.reshape(groups, 1, columns).expand(-1, rows // groups, -1)
    return grouped.reshape(rows, columns, *[1] * len(kernel))


def precise(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in double precision, or in single precision if its device lacks double."""
    return tensor.detach().to(torch.float32 if tensor.device.type == "mps" else torch.float64)


@dataclass(frozen=True)
class FuseBatchNorm1dInConv1d(FuseBatchNorm):
    """Fuse batch norms that follow a 1d convolution into the convolution.

    It works like :class:`fxlab.FuseBatchNorm2dInConv2d`. A result of shape ``(C, L)`` is a single sample
    to the convolution and a batch to the batch norm, so the shape must be known: trace with
    ``fxlab.symbolic_trace``, or run ``ShapeProp``.

    Examples
    --------
    >>> import torch
    >>> from torch.fx.passes.shape_prop import ShapeProp
    >>> model = torch.nn.Sequential(torch.nn.Conv1d(3, 8, 1), torch.nn.BatchNorm1d(8)).eval()
    >>> traced = torch.fx.symbolic_trace(model)
    >>> _ = ShapeProp(traced).propagate(torch.randn(2, 3, 5))
    >>> [node.op for node in FuseBatchNorm1dInConv1d()(traced).graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """

    pairs: ClassVar = {nn.Conv1d: nn.BatchNorm1d}


@dataclass(frozen=True)
class FuseBatchNorm2dInConv2d(FuseBatchNorm):
    """Fuse batch norms that follow a 2d convolution into the convolution.

    In evaluation mode a batch norm scales and shifts each channel, which the weight and the bias of the
    convolution before it can do as well. The convolution node is marked.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1), torch.nn.BatchNorm2d(8)).eval()
    >>> fuse = FuseBatchNorm2dInConv2d()
    >>> fused = fuse(torch.fx.symbolic_trace(model))
    >>> [node.op for node in fused.graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    >>> fuse(fused, reverse=True).get_submodule("1") is model[1]
    True
    """

    pairs: ClassVar = {nn.Conv2d: nn.BatchNorm2d}


@dataclass(frozen=True)
class FuseBatchNorm3dInConv3d(FuseBatchNorm):
    """Fuse batch norms that follow a 3d convolution into the convolution."""

    pairs: ClassVar = {nn.Conv3d: nn.BatchNorm3d}


@dataclass(frozen=True)
class FuseBatchNormInConvTranspose(FuseBatchNorm):
    """Fuse batch norms that follow a transposed convolution, in 1d, 2d or 3d, into the convolution.

    See :class:`fxlab.FuseBatchNorm2dInConv2d`. For 1d ones the shape must be known: trace with
    ``fxlab.symbolic_trace``, or run ``ShapeProp``.
    """

    pairs: ClassVar = {
        nn.ConvTranspose1d: nn.BatchNorm1d,
        nn.ConvTranspose2d: nn.BatchNorm2d,
        nn.ConvTranspose3d: nn.BatchNorm3d,
    }


@dataclass(frozen=True)
class FuseBatchNorm1dInLinear(FuseBatchNorm):
    """Fuse 1d batch norms that follow or precede a linear layer into the linear layer.

    On an input of shape ``(N, C)`` a batch norm in evaluation mode scales and shifts each feature, which a
    linear layer before or after it can do as well. On ``(N, C, L)`` it normalises another dimension than
    the linear layer works on, so the shape must be known: trace with ``fxlab.symbolic_trace``, or run
    ``ShapeProp``. The linear node is marked.

    Examples
    --------
    >>> import torch
    >>> from torch.fx.passes.shape_prop import ShapeProp
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8)).eval()
    >>> traced = torch.fx.symbolic_trace(model)
    >>> fuse = FuseBatchNorm1dInLinear()
    >>> fuse.explain(traced)["reason"].iloc[0]
    'the shape of its input is unknown; run ShapeProp first'
    >>> _ = ShapeProp(traced).propagate(torch.randn(2, 3))
    >>> [node.op for node in fuse(traced).graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """

    pairs: ClassVar = {nn.Linear: nn.BatchNorm1d}
    norm_may_be_first: ClassVar = True

    def why_other(self, candidate: LayerAndNorm) -> Refusal | None:
        """Refuse inputs that are not known to be of shape ``(N, C)``."""
        shapes = [known_shape(node) for node in (candidate.norm.input, candidate.norm.node)]
        shape = next((shape for shape in shapes if shape is not None), None)
        if shape is None:
            return Reason.UNKNOWN_SHAPE(value="its input")
        if len(shape) != 2:
            return Reason.DIMENSIONS(value="its input", count=len(shape), supported="(N, C)")
        return None
