"""Counting floating-point operations, and knowing where they are not known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from fxlab.models.bodies import run_under
from fxlab.operators import multiplies_no_matrices
from fxlab.operators.products import TORCH_NAMESPACES
from fxlab.torch_private import TorchDispatchMode, pytree
from fxlab.values.tensors import is_floating

_aten = torch.ops.aten


class FlopCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations of matrix products, convolutions, attention and recurrent layers.

    The formulas are those of ``torch.utils.flop_counter``, and some more. An operator without a formula makes
    no such operations if it computes each element by itself, reduces, moves or selects elements; torch's own
    tags and schemas tell most of that. The ``total`` is NaN if there are others, which ``unknown`` lists.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known = 0
        self.unknown: dict[str, None] = {}

    @property
    def total(self) -> float:
        """The operations since the last restart; NaN if some are not known."""
        return math.nan if self.unknown else float(self.known)

    def restart(self) -> None:
        """Count anew."""
        self.known = 0
        self.unknown = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _ASKED_OF_TENSORS:
            return NotImplemented
        packet = getattr(func, "_overloadpacket", func)
        formula = _FORMULAS.get(packet) or flop_registry.get(packet)
        if formula is None and isinstance(func, torch._ops.OpOverload):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if formula is None and any(isinstance(arg, GraphModule) for arg in args):  # its bodies are counted
            return func(*run_under(self, args), **run_under(self, kwargs))
        result = func(*args, **kwargs)
        if formula is not None:
            self.known += int(formula(*args, **kwargs, out_val=result))
        elif not _makes_none(func, args, kwargs):
            self.unknown[str(func._schema.name if isinstance(func, torch._ops.OpOverload) else func)] = None
        return result


def _makes_none(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether an operator is known to make no products of the kinds that are counted."""
    if not isinstance(func, torch._ops.OpOverload):
        return False
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if not any(is_floating(tensor) for tensor in tensors):
        return func.namespace in TORCH_NAMESPACES and not any(tensor.is_quantized for tensor in tensors)
    return multiplies_no_matrices(func)


_ASKED_OF_TENSORS = {
    _aten.sym_is_contiguous.default, _aten.is_contiguous.default, _aten.is_contiguous.memory_format,
    _aten.is_strides_like_format.default, _aten.is_non_overlapping_and_dense.default, _aten.size.default,
    _aten.sym_size.default, _aten.stride.default, _aten.sym_stride.default, _aten.storage_offset.default,
    _aten.sym_storage_offset.default, _aten.numel.default, _aten.sym_numel.default, _aten.dim.default,
    torch.ops.prim.layout.default, torch.ops.prim.device.default,
}  # fmt: skip
"""What the dispatcher asks of tensors, which is no operation."""


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query.shape, key.shape, value.shape))  # type: ignore[no-untyped-call]


def _product_of_vectors(a: Any, b: Any, *_: Any, **__: Any) -> int:
    return 2 * int(a.numel())


def _matrix_by_vector(_: Any, matrix: Any, *__: Any, **___: Any) -> int:
    return 2 * int(matrix.numel())


def _added_products(_: Any, a: Any, b: Any, *__: Any, **___: Any) -> int:
    return 2 * int(a.numel()) * int(b.shape[-1])


def _grouped(a: Any, b: Any, *_: Any, **__: Any) -> int:
    """Count products of groups, whose rows (or columns, or inner sizes) together are those of one matrix."""
    if a.dim() == 3 and b.dim() == 2:  # the columns are divided among the groups
        return 2 * int(a.shape[1] * a.shape[2] * b.shape[1])
    return 2 * int(a.numel()) * int(b.shape[-1])


def _recurrent(steps: int, *weights: Any) -> int:
    matrices = (weight for weight in weights if weight is not None and weight.dim() == 2)
    return 2 * steps * sum(int(matrix.numel()) for matrix in matrices)


def _mkldnn_layer(x: Any, *rest: Any, **_: Any) -> int:
    return _recurrent(int(math.prod(x.shape[:-1])), *rest[:2])


def _cudnn_layers(x: Any, weights: Any, *_: Any, **__: Any) -> int:
    return _recurrent(int(math.prod(x.shape[:-1])), *weights)


def _layers(x: Any, second: Any, *rest: Any, **_: Any) -> int:
    """Count recurrent layers that stay whole: weights are third, or fourth where sequences are packed."""
    tensors = next(value for value in rest if isinstance(value, list | tuple))
    return _recurrent(int(math.prod(x.shape[:-1])), *tensors)


_FORMULAS: dict[Any, Callable[..., int]] = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_fused_attention_overrideable: _attention,
    _aten.dot: _product_of_vectors,
    _aten.vdot: _product_of_vectors,
    _aten.mv: lambda matrix, *_, **__: 2 * int(matrix.numel()),
    _aten.addmv: _matrix_by_vector,
    _aten.addmv_: _matrix_by_vector,
    _aten.addmm_: _added_products,
    _aten.baddbmm_: _added_products,
    _aten.addbmm: _added_products,
    _aten.addbmm_: _added_products,
    _aten._addmm_activation: _added_products,
    _aten.addr: lambda _, a, b, *__, **___: 2 * int(a.numel()) * int(b.numel()),
    _aten._grouped_mm: _grouped,
    _aten._scaled_grouped_mm: _grouped,
    _aten.mkldnn_rnn_layer: _mkldnn_layer,
    _aten._cudnn_rnn: _cudnn_layers,
    _aten.miopen_rnn: _cudnn_layers,
    _aten.lstm: _layers,
    _aten.gru: _layers,
    _aten.rnn_tanh: _layers,
    _aten.rnn_relu: _layers,
}
