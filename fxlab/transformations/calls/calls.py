"""One canonical form of a call for all dialects, in which patterns and passes read graphs.

A call is a :class:`Term`: the one name of its operator, and its arguments by the names of its schema, without
defaults. Modules are read as their functions, indexing as slices, decomposed layers as layers, quotients as
products with a power, decomposed products of batches as products, and dimensions are counted from the start
where the rank is known.
"""

import inspect
import math
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from fxlab.operators import Operator, argument, computed_by, function_of, operator_of, told_dtype
from fxlab.operators.node_info import known_result, known_shape
from fxlab.operators.operator import WITH_INDICES, setting_of
from fxlab.operators.results import FILLED
from fxlab.transformations.analysis.dtypes_and_sizes import are_same_sizes, is_cast
from fxlab.transformations.calls.indexing import IndexReading
from fxlab.transformations.calls.term import (
    RENAMED,
    Reading,
    Term,
    Weight,
    call_arguments,
    flat,
    from_start,
    is_number,
    without_defaults,
)

_DIMENSIONS = frozenset({"dim", "dims", "dim0", "dim1", "start_dim", "end_dim"})
_REDUCTIONS = frozenset(
    {"squeeze", "mean", "sum", "amax", "amin", "var", "std", "logsumexp", "prod", "any", "all"}
)
_ARITHMETIC = frozenset({"add", "sub", "rsub", "mul", "div", "pow", "square", "sqrt", "rsqrt", "reciprocal"})
_RESHAPES = frozenset({"view", "reshape", "_unsafe_view", "view_copy"})
_COPIES = frozenset({"contiguous", "clone", "detach", "alias", "lift_fresh", "lift_fresh_copy"})
_OTHERWISE = frozenset({
    "relu6", "hardtanh", "masked_fill", "var", "std", "var_mean", "std_mean", "norm", "linalg_vector_norm",
    "split", "split_with_sizes", "pad", "constant_pad_nd", "zeros_like", "ones_like", "arange",
})  # fmt: skip
"""Operators that can be written as others."""
_FULL = frozenset({"zeros", "ones", "full", "new_zeros", "new_ones", "new_full"})


class Calls(IndexReading):
    """The calls of a graph in their canonical form, each read once; for the arguments see ``Reading``."""

    def _read(self, node: Node) -> Term | None:
        if node.op == "call_module":
            return self._of_module(node)
        called = operator_of(node)
        if called is None:
            return None
        if node.target is getattr:
            return self._attribute(node)
        if called.computes == "getitem":
            return self._item(node)
        found = call_arguments(called, node, self.is_pattern)
        read = None if found is None else self._canonical(called.computes, found[0], node)
        if read is None or found is None:
            return None
        may_be_asked = "inplace" in called.parameters
        writes = called.writes_first or (may_be_asked and argument(node, "inplace") is True)
        read.defaults, read.is_write, read.repeated = found[1], writes, called.repeated
        read.is_transparent = read.is_transparent and not writes
        return read

    def _of_module(self, node: Node) -> Term | None:
        module = self.module_of(node)
        if module is None:
            return None
        called, path = function_of(type(module)), str(node.target)
        inputs = [value for value in (*node.args, *node.kwargs.values()) if value is not None]
        if called is None or len(inputs) != 1:
            return _whole(node, module)
        given: dict[str, Any] = {"self": inputs[0]}
        names = list(called.parameters)
        for name in names[1:]:
            value = setting_of(module, name)
            if isinstance(value, torch.Tensor):
                value = Weight(f"{path}.{name}")
            if name == "training":
                value = not self.is_pattern and module.training
            given[RENAMED.get(name, name)] = value
        # Such modules pad in a separate call before the convolution.
        if called.computes.startswith("conv") and getattr(module, "padding_mode", "zeros") != "zeros":
            return None
        # The rank decides the dimension then.
        if isinstance(module, nn.Softmax) and module.dim is None:
            return None
        if called.computes == "batch_norm":
            # Without running statistics, a batch norm always takes those of the batch.
            given["train"] = given["train"] or module.running_mean is None
        read = self._canonical(called.computes, without_defaults(given, called), node)
        writes = bool(getattr(module, "inplace", False)) and not called.is_dropout
        if read is not None:
            read.module, read.is_write, read.repeated = path, writes, called.repeated
            # In a pattern it has any settings, unless these make another operator of it.
            if self.is_pattern and read.name == called.computes:
                read.args = {n: value for n, value in read.args.items() if isinstance(value, Node | Weight)}
        return read

    def _canonical(self, name: str, given: dict[str, Any], node: Node) -> Term | None:
        """Return the one form of all spellings of a call."""
        if name in _ARITHMETIC:
            term = self._arithmetic(name, given, node)
            if term is None:
                return None
            term.written = name if name not in ("rsub", term.name) else ""
            kept, *neutral = sorted(term.args.get("terms", ()), key=is_number) or (None,)
            # x + 0 and x * 1 are x, if they keep its dtype.
            if neutral in ([0], [1]) and neutral[0] == (term.name == "mul"):
                keeps_dtype = self.dtype(node) == self.dtype(kept) is not None
                term.is_transparent = keeps_dtype and self._is_same(node, kept)
                term.args |= {"self": kept} if term.is_transparent else {}
            return term
        value = given.get("self")
        rank = self.rank(value if "self" in given else given.get("tensors"))
        if name in _RESHAPES and any(isinstance(each, torch.dtype) for each in given.values()):
            return None
        if is_cast(node) or name in ("_to_copy", "to") or (name == "type" and node.all_input_nodes[1:]):
            return self._cast(node, value)
        if name in _COPIES:
            return Term(name, {"self": value}, (node,), self._is_kept(node, value), rank)
        if name.endswith("dropout") or ((called := operator_of(node)) is not None and called.is_dropout):
            is_off = given.get("train", True) is False or given.get("p", 0.5) == 0
            rest = {} if is_off else {key: each for key, each in given.items() if key in ("p", "train")}
            return Term("dropout" if is_off else name, {"self": value, **rest}, (node,), is_off, rank)
        if name in _RESHAPES:
            return self._reshape(value, given.get("shape"), node, rank)
        if name in ("transpose", "t", "permute", "numpy_T", "mT", "swapaxes"):
            return self._permutation(name, given, node, rank)
        if name in ("unsqueeze", "select", "slice"):
            return self._part(name, given, node, rank)
        if name in _FULL:
            return self._full(name, given, node)
        if name == "expand":
            sizes = flat(given.get("shape"))
            return Term(name, {"self": value, "shape": sizes}, (node,), self._is_same(node, value), rank)
        if name in ("matmul", "bmm", "mm"):
            two = [each for key, each in given.items() if each is not None][:2]
            return Term("matmul", {"self": two[0], "other": two[1]}, (node,), rank=rank)
        if name == "addmm" and (linear := of_addmm(self, node)):
            return linear
        if name in ("_softmax", "_log_softmax"):
            return Term(name[1:], {"self": value, **self._dims(given, rank)}, (node,), rank=rank)
        if name in ("softmax", "log_softmax") and given.get("dtype") in (None, self.dtype(value)):
            given.pop("dtype", None)
        if name == "adaptive_avg_pool2d" and set(flat(given.get("output_size"))) == {1}:
            dims = (-2, -1) if rank is None else (rank - 2, rank - 1)
            return Term("mean", {"self": value, "dim": dims, "keepdim": True}, (node,), rank=rank)
        if name == "embedding":
            indices = given.get("indices", value if "indices" not in given else None)
            return Term(name, {"self": indices, "weight": given["weight"]}, (node,))
        # In evaluation mode the momentum has no effect.
        if name == "batch_norm" and not given.get("train"):
            given = {
                key: each
                for key, each in given.items()
                if key not in ("momentum", "train") and (key, each) != ("eps", 1e-05)
            }
        if name in _OTHERWISE:
            name, given = self._written_otherwise(name, given)
        if "_pool" in name:
            name, given = _pool(name, given, operator_of(node))
        nodes = (node,)
        if name == "where":
            numbers = {key: self._number(each) for key, each in given.items()}
            nodes += tuple(each for key, each in given.items() if numbers[key] is not each)
            given = numbers
        if name == "convolution" or name.startswith("conv"):
            return self._convolution(name, given, node, rank)
        if name in _REDUCTIONS and "dim" in given:
            given["dim"] = flat(given["dim"])
        if name == "layer_norm":
            given["normalized_shape"] = flat(given.get("normalized_shape"))
        return Term(name, self._dims(given, rank), nodes, rank=rank)

    def _full(self, name: str, given: dict[str, Any], node: Node) -> Term:
        """Read a new tensor of one number by its sizes, the number, and the dtype, which others may give."""
        number = given.get("fill_value", FILLED.get(name.removeprefix("new_")))
        dtype = given.get("dtype")
        if dtype is None:
            dtype = self.dtype(node)
        if dtype is None:
            is_new = name.startswith("new_")
            dtype = Term("dtype", {"self": given["self"]}) if is_new else _dtype_of_filled(name, number)
        return Term(
            "full", {"shape": flat(given.get("shape")), "fill_value": number, "dtype": dtype}, (node,)
        )

    def _written_otherwise(self, name: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the name and arguments of another operator for the same computation."""
        value = given.get("self")
        if name == "relu6":
            return "clamp", {"self": value, "min": 0, "max": 6}
        if name == "hardtanh":
            low, high = given.get("min_val", -1), given.get("max_val", 1)
            return "clamp", {"self": value, "min": low, "max": high}
        if name == "masked_fill":
            return "where", {"condition": given.get("mask"), "self": given.get("value"), "other": value}
        if name in ("var", "std", "var_mean", "std_mean"):
            unbiased = given.pop("unbiased", True)
            correction = given.pop("correction", unbiased if isinstance(unbiased, Node) else int(unbiased))
            return name, given if correction == 1 else {**given, "correction": correction}
        if name in ("zeros_like", "ones_like"):
            return "full_like", {**given, "fill_value": FILLED[name.removesuffix("_like")]}
        if name == "arange":
            plain = (("start", 0), ("step", 1))
            return name, {key: each for key, each in given.items() if (key, each) not in plain}
        if name in ("pad", "constant_pad_nd"):
            return "pad", {key: each for key, each in given.items() if key != "value" or each != 0}
        if name in ("norm", "linalg_vector_norm"):
            order = given.pop("p", given.pop("ord", 2))
            given = given if order in (2, "fro") else {**given, "ord": order}
            return "linalg_vector_norm", {**given, "dim": flat(given["dim"])} if "dim" in given else given
        sizes = self._parts_of(name, given)
        if sizes and all(size == sizes[0] for size in sizes):
            rest = {"dim": given["dim"]} if "dim" in given else {}
            return "chunk", {"self": value, "chunks": len(sizes), **rest}
        return name, given

    def _parts_of(self, name: str, given: dict[str, Any]) -> list[int]:
        """Return the sizes that a tensor is split into, if they are known."""
        sizes = given.get("split_sizes", given.get("split_size", given.get("split_size_or_sections")))
        whole = self._size(given.get("self"), given.get("dim", 0))
        if isinstance(sizes, tuple):
            return list(sizes) if all(type(size) is int for size in sizes) else []
        is_whole = type(whole) is int and type(sizes) is int and sizes > 0 and whole % sizes == 0
        return [sizes] * (whole // sizes) if is_whole and whole is not None and sizes is not None else []

    def _number(self, value: Any) -> Any:
        """Return the number in a tensor without dimensions, or the value itself."""
        called = operator_of(value) if isinstance(value, Node) else None
        if called is None or called.computes not in ("scalar_tensor", "full") or self.shape(value) != ():
            return value
        number = value.args[-1]
        return number if is_number(number) else value

    def _dims(self, given: dict[str, Any], rank: int | None) -> dict[str, Any]:
        """Count dimensions from the start, if the rank is known."""
        given = {key: each for key, each in given.items() if key not in ("half_to_float",)}
        for key in given.keys() & _DIMENSIONS if rank else ():
            given[key] = from_start(given[key], rank or 0)
            if isinstance(given[key], tuple) and key == "dim":
                given[key] = tuple(sorted(given[key], key=str))
        return given

    def _cast(self, node: Node, value: Any) -> Term | None:
        dtype, before = told_dtype(node), self.dtype(value)
        if dtype is None and (self.is_pattern or self.dtype(node) is None):
            asked = _asked_dtype(node)
            return None if asked is None else Term("to", {"self": value, "dtype": asked}, (node,))
        if dtype is None:
            dtype = self.dtype(node)
        device = getattr(known_result(value) if isinstance(value, Node) else None, "device", None)
        moved = device is not None and getattr(known_result(node), "device", device) != device
        is_same = dtype is not None and dtype == before and not moved and not self.is_written(node)
        return None if moved else Term("to", {"self": value, "dtype": dtype}, (node,), is_same)

    def _arithmetic(self, name: str, given: dict[str, Any], node: Node) -> Term | None:
        if given.get("rounding_mode") is not None:
            return Term("div_rounded", given, (node,))
        first, second = given.get("self"), given.get("other", given.get("exponent"))
        if name in ("square", "sqrt", "rsqrt", "reciprocal"):
            second = {"square": 2, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1}[name]
            name = "pow"
        if name == "rsub":
            name, first, second = "sub", second, first
        factor = given.get("alpha", 1)
        if factor != 1:
            second = Term("mul", {"terms": (second, factor)})
        if name == "pow":
            return self._power(first, second, (node,))
        if name == "sub" and is_number(second):
            name, second = "add", -(second or 0)
        if name == "sub":
            return Term("sub", {"self": first, "other": second}, (node,))
        if name == "div" and is_number(first) and first == 1:
            return self._power(second, -1, (node,))
        if name == "div":
            return Term("mul", {"terms": (first, self._inverse(second))}, (node,))
        if name == "mul" and first is second and isinstance(first, Node):
            return Term("pow", {"self": first, "exponent": 2}, (node,))
        return Term(name, {"terms": (first, second)}, (node,))

    def _power(self, base: Any, exponent: Any, nodes: tuple[Node, ...]) -> Term:
        *passed, last = self.seen_through(base)
        inner = self.term(last)
        # The inverse of a power is one power, so that x / sqrt(y) is x * rsqrt(y).
        if inner is not None and inner.name == "pow" and exponent == -1 and is_number(inner.args["exponent"]):
            args = {"self": inner.args["self"], "exponent": -inner.args["exponent"]}
            return Term("pow", args, (*nodes, *passed, *inner.nodes))
        return Term("pow", {"self": base, "exponent": exponent}, nodes)

    def _inverse(self, value: Any) -> Any:
        if is_number(value):
            return 1 / value if value else math.inf
        return self._power(value, -1, ())

    def _reshape(self, value: Any, shape: Any, node: Node, rank: int | None) -> Term:
        if found := of_view(self, node):
            return found
        args = {"self": value, "shape": flat(shape)}
        return Term("reshape", args, (node,), self._is_same(node, value), rank)

    def _convolution(self, name: str, given: dict[str, Any], node: Node, rank: int | None) -> Term | None:
        if name == "convolution":
            if given.get("transposed") or rank is None:
                return Term(name, given, (node,), rank=rank)
            name = f"conv{rank - 2}d"
        spatial = int(name[-2]) if name[-2:-1].isdigit() else 0
        plain = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0}
        args = {key: each for key, each in given.items() if key not in (*plain, "transposed")}
        for key, default in plain.items():
            setting = given.get(key, default)
            if key != "groups" and not isinstance(setting, str | Node):
                setting = flat(setting)
                setting = setting * spatial if len(setting) == 1 else setting
                default_ = (default,) * spatial
            else:
                default_ = default  # type: ignore[assignment]
            if setting != default_:
                args[key] = setting
        return Term(name, args, (node,), rank=rank)


def _dtype_of_filled(name: str, number: Any) -> Any:
    """Return the dtype of a new tensor for which none is given; ``None`` for that of an unknown number."""
    if name != "full" or isinstance(number, float):
        return torch.get_default_dtype()
    return {bool: torch.bool, int: torch.int64}.get(type(number))


def _asked_dtype(node: Node) -> Any:
    """Return the value that a cast takes its dtype from: ``x.dtype``, an argument, that of ``type_as``."""
    named = [value for value in (node.kwargs.get("dtype"), *node.args[1:]) if isinstance(value, Node)]
    named = [value for value in named if value.target is not getattr or value.args[1] != "device"]
    if not named:
        return None
    value, takes_dtypes = named[0], ("to", "type", "_to_copy")
    is_dtype = value.target is getattr or (
        value.op == "placeholder" and all(computed_by(user) in takes_dtypes for user in value.users)
    )
    return value if is_dtype else Term("dtype", {"self": value})


def _whole(node: Node, module: nn.Module) -> Term | None:
    """Read a call of a module that is more than one function, such as an LSTM, by its class and inputs."""
    try:
        given = inspect.signature(module.forward).bind(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):  # the call fails, or its forward has no signature
        return None
    args = {name: value for name, value in given.items() if value is not None}
    kind = type(module)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return Term(name, args, (node,), module=str(node.target), written=kind.__name__)


def _pool(name: str, given: dict[str, Any], called: Operator | None) -> tuple[str, dict[str, Any]]:
    """Return a pool with the stride that it takes from its kernel, and a name that says if it has indices."""
    overloads = () if called is None or inspect.isfunction(called.function) else called.overloads
    has_indices = any(len(overload._schema.returns) > 1 for overload in overloads)
    if given.get("return_indices") or has_indices:
        name = name.removesuffix(WITH_INDICES) + WITH_INDICES
    given = {key: each for key, each in given.items() if key != "return_indices"}
    if "kernel_size" in given:
        given["stride"] = given.get("stride") or given["kernel_size"]
    return name, given


_ATEN = torch.ops.aten
_VIEWS = (_ATEN.view.default, _ATEN._unsafe_view.default)
_KEEP_ELEMENTS = (_ATEN.view.default, _ATEN.expand.default, _ATEN.clone.default)
"""The parts of a decomposed product of batches besides the product; they keep all elements in order."""


def operands_of_batches(node: Node) -> tuple[Node, Node, tuple[Node, ...]] | None:
    """Return the operands of a decomposed product of matrices, and the nodes that belong to it alone.

    ``matmul`` is decomposed to a view of ``bmm``, which reads views of its operands. ``None`` for any other
    view, and for a product that is broadcast.
    """
    bmm = node.args[0]
    if not isinstance(bmm, Node):
        return None
    left_inner, right_inner = list[Node](), list[Node]()
    left, right = (
        _seen_whole(operand, chain)
        for operand, chain in zip(bmm.args, (left_inner, right_inner), strict=True)
    )
    shapes = [known_shape(each) if isinstance(each, Node) else None for each in (node, *bmm.args)]
    if left is None or right is None or any(shape is None for shape in shapes):
        return None
    result, flat_left, flat_right = (shape or () for shape in shapes)
    expected = {
        node: (*result[:-2], flat_left[-2], flat_right[-1]),
        left: (*result[:-2], *flat_left[-2:]),
        right: (*result[:-2], *flat_right[-2:]),
    }
    if not all(are_same_sizes(known_shape(value), shape) for value, shape in expected.items()):
        return None  # it is broadcast, or another view
    return left, right, (bmm, *left_inner, *right_inner)


def _seen_whole(operand: Any, inner: list[Node]) -> Node | None:
    """Return the source of an operand past one view and copies; a second view is the model's own."""
    while isinstance(operand, Node) and operand.target in _KEEP_ELEMENTS and _keeps_elements(operand):
        if operand.target is _ATEN.view.default and any(node.target is operand.target for node in inner):
            break
        inner.append(operand)
        operand = operand.args[0]
    return operand if isinstance(operand, Node) else None


def _keeps_elements(node: Node) -> bool:
    """Tell whether a node returns each element that it reads once: an expansion may repeat some."""
    if node.target is not _ATEN.expand.default:
        return True
    value = node.args[0]
    shapes = [known_shape(each) for each in (node, value) if isinstance(each, Node)]
    return len(shapes) == 2 and are_same_sizes(*shapes)


def of_addmm(calls: Reading, node: Node) -> Term | None:
    """Read a product with a transposed matrix and an added bias as a linear layer."""
    if len(node.args) != 3 or node.kwargs:
        return None
    bias, value, matrix = node.args
    weight = _transposed_weight(calls, matrix)
    if weight is None:
        return None
    return Term("linear", {"self": value, "weight": weight[0], "bias": bias}, (node, weight[1]), rank=2)


def _transposed_weight(calls: Reading, matrix: Any) -> tuple[Any, Node] | None:
    term = calls.term(matrix)
    if term is None or term.name != "permute" or term.args["dims"] != (1, 0) or not isinstance(matrix, Node):
        return None
    return term.args["self"], matrix


def of_view(calls: Reading, node: Node) -> Term | None:
    """Read a decomposed linear layer or product of batches, which ends with a view."""
    inner = node.args[0] if node.target in _VIEWS else None
    if not isinstance(inner, Node) or len(inner.users) != 1:
        return None
    if inner.target is _ATEN.bmm.default:
        product = operands_of_batches(node)
        if product is None:
            return None
        left, right, own = product
        return Term("matmul", {"self": left, "other": right}, (node, *own), rank=3)
    if inner.target is _ATEN.addmm.default:
        bias, flat, matrix = inner.args[:3]
    elif inner.target is _ATEN.mm.default:
        bias, (flat, matrix) = None, inner.args[:2]
    else:
        return None
    weight = _transposed_weight(calls, matrix)
    is_view = isinstance(flat, Node) and flat.target in _VIEWS
    if not isinstance(flat, Node) or not is_view or (weight is None and bias is not None):
        return None
    value = flat.args[0]
    shape, before = calls.shape(node), calls.shape(value)
    if shape is None or before is None or len(shape) != len(before) or shape[:-1] != before[:-1]:
        return None
    # Layers with one input share the view, which then stays for the others.
    views = (flat,) if len(flat.users) == 1 else ()
    if weight is None:
        return Term("matmul", {"self": value, "other": matrix}, (node, inner, *views), rank=len(before))
    own = (node, inner, *views, weight[1])
    args = {"self": value, "weight": weight[0], **({} if bias is None else {"bias": bias})}
    return Term("linear", args, own, rank=len(before))
