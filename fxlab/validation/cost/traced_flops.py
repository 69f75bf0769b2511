"""Floating-point operations, for profiles and overlays: of operators that run, of nodes by traced shapes."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.fx import GraphModule
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from fxlab.base.torch_private import TorchDispatchMode, pytree
from fxlab.models.graph_modules.bodies import run_under
from fxlab.models.parallel.collectives import exchanges
from fxlab.operators.matrix_products import TORCH_NAMESPACES, multiplies_no_matrices
from fxlab.values.tensors import is_floating, known_number, tensor_leaves

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
        """Start again at zero."""
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
    tensors = tensor_leaves((args, kwargs))
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
"""Questions of the dispatcher to tensors, which are no operations."""


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


def _recurrent(x: Any, weights: Iterable[Any]) -> int:
    matrices = (weight for weight in weights if weight is not None and weight.dim() == 2)
    return 2 * int(math.prod(x.shape[:-1])) * sum(int(matrix.numel()) for matrix in matrices)


def _layers(x: Any, second: Any, *rest: Any, **_: Any) -> int:
    """Count recurrent layers that stay whole: weights are third, or fourth where sequences are packed."""
    return _recurrent(x, next(value for value in rest if isinstance(value, list | tuple)))


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
    _aten.mkldnn_rnn_layer: lambda x, *rest, **_: _recurrent(x, rest[:2]),
    _aten._cudnn_rnn: lambda x, weights, *_, **__: _recurrent(x, weights),
    _aten.miopen_rnn: lambda x, weights, *_, **__: _recurrent(x, weights),
    _aten.lstm: _layers,
    _aten.gru: _layers,
    _aten.rnn_tanh: _layers,
    _aten.rnn_relu: _layers,
}


_CALLS = ("call_function", "call_method", "call_module")
_OF_TORCH = ("torch", "_operator", "math")


class TracedFlops:
    """Counts operations as :class:`FlopCount` does, at the sizes that a graph was traced with.

    The target of a node is called once on the meta device, which computes shapes alone. Only functions and
    modules of torch are called: those of others might have side effects. ``known``: operations of calls,
    shared by graphs that have calls in common.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], known: dict[Any, float | None] | None = None
    ) -> None:
        self._modules = modules
        self._by_node: dict[fx.Node, float | None] = {}
        self._by_call = {} if known is None else known

    def of(self, nodes: Iterable[fx.Node]) -> int | None:
        """Return the known operations of nodes together; ``None`` if those of none of them are known."""
        known = [count for node in nodes if (count := self.of_node(node)) is not None]
        known = [count for count in known if not math.isnan(count)]
        return int(sum(known)) if known else None

    def is_unknown(self, node: fx.Node) -> bool:
        """Tell whether a node computes floating-point tensors in a way whose operations are not known."""
        count = self.of_node(node)
        if count is None:
            made = pytree.tree_leaves(node.meta.get("val")) if node.op in _CALLS else []
            return any(isinstance(value, Tensor) and value.is_floating_point() for value in made)
        return math.isnan(count)

    def of_node(self, node: fx.Node) -> float | None:
        """Return a node's operations: NaN if not known of operators, ``None`` without shapes or of others."""
        if node not in self._by_node:
            self._by_node[node] = self._count(node) if node.op in _CALLS else None
        return self._by_node[node]

    def _count(self, node: fx.Node) -> float | None:
        target = self._called(node)
        if target is None:
            return None
        if exchanges(node):  # it moves elements, or others add them up
            return 0.0
        try:
            values, shape = pytree.tree_flatten(fx.map_arg((node.args, dict(node.kwargs)), _traced_value))
            arguments = [_described(value) for value in values]
            key = (node.op, _described_target(target), tuple(arguments), str(shape))
            if key not in self._by_call:
                args, kwargs = pytree.tree_unflatten([_on_meta(value) for value in values], shape)
                self._by_call[key] = _counted(target, args, kwargs)
            return self._by_call[key]
        except Exception:  # torch may raise anything for shapes alone, or for a value that was not traced
            return None

    def _called(self, node: fx.Node) -> Any:
        """Return the callable of a node if it is torch's own."""
        if node.op == "call_method":
            return str(node.target)
        called: Any = self._modules.get(str(node.target)) if node.op == "call_module" else node.target
        made_by = type(called) if isinstance(called, nn.Module) else called
        origin = str(getattr(made_by, "__module__", "") or "")
        return called if origin.partition(".")[0] in _OF_TORCH else None


def _traced_value(node: fx.Node) -> Any:
    if "val" not in node.meta:
        raise ValueError(f"{node.name} has no value that was traced")
    return node.meta["val"]


def _sizes(value: Tensor) -> tuple[int, ...]:
    return tuple(int(known_number(size)) for size in value.shape)


def _described(value: Any) -> Any:
    """Return something that is equal for arguments that make as many operations."""
    if isinstance(value, Tensor):
        return _sizes(value), value.dtype
    return value if isinstance(value, str | torch.dtype | torch.device | None) else repr(value)


def _described_target(target: Any) -> Any:
    if not isinstance(target, nn.Module):
        return target
    return type(target), repr(target), tuple((name, tuple(p.shape)) for name, p in target.named_parameters())


def _on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.empty(_sizes(value), dtype=value.dtype, device="meta")
    if isinstance(value, torch.device):
        return torch.device("meta")
    return known_number(value)


def _counted(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    with torch.no_grad(), FlopCount() as count:
        if isinstance(target, nn.Module):
            tensors = {**dict(target.named_parameters()), **dict(target.named_buffers())}
            weights = {name: torch.empty_like(value, device="meta") for name, value in tensors.items()}
            functional_call(target, weights, args, kwargs)
        elif isinstance(target, str):
            getattr(args[0], target)(*args[1:], **kwargs)
        else:
            target(*args, **kwargs)
    return float(count.total)
