"""Functions, methods and attributes that Python adds to torch's own operators, or by which it reads a tensor.

Methods are listed by name, attributes as the getters that torch reports.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

OPERATOR_NAMES = {
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "and_": "bitwise_and",
    "or_": "bitwise_or",
    "xor": "bitwise_xor",
    "invert": "bitwise_not",
    "inv": "bitwise_not",
    "pos": "positive",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "index": "sym_int",
    "concat": "tuple",  # of sequences, which it puts together
}
"""Functions of ``operator`` whose operator in torch has another name."""

IN_PLACE = frozenset(
    name
    for name in dir(operator)
    if name.startswith("i") and (hasattr(operator, name[1:]) or hasattr(operator, f"{name[1:]}_"))
) | {"setitem", "delitem", "setattr", "idiv"}
"""Functions that write their first argument: ``operator.iadd`` is ``a += b``."""

SYNTAX = {
    "__div__": "div", "__radd__": "add", "__rmul__": "mul", "__rsub__": "rsub", "__rand__": "and",
    "__ror__": "or", "__rxor__": "xor",
}  # fmt: skip
"""Methods of Python's syntax without a function in ``operator``, and the operations they compute."""

CONTAINER_WRITES = frozenset(
    {"append", "extend", "insert", "pop", "popitem", "remove", "clear", "update", "setdefault", "reverse"}
)
"""Methods that change lists and dictionaries; ``sort`` is also one of tensors, which does not."""

SETS_STATE = frozenset({
    "_set_grad_enabled", "set_grad_enabled", "_enter_autocast", "_exit_autocast", "manual_seed",
    "_enter_inference_mode", "_exit_inference_mode", "set_autocast_enabled", "set_autocast_dtype",
    "set_default_dtype",
})  # fmt: skip
"""Functions that change how later operators compute."""

ADDRESSES = frozenset({"data_ptr", "__dlpack__", "apply_", "map_", "map2_"})
"""Methods that access the memory of a tensor."""

SPARSE_PARTS = frozenset({
    "_nnz", "values", "_values", "indices", "_indices", "crow_indices", "col_indices", "ccol_indices",
    "row_indices",
})  # fmt: skip
"""Methods of a sparse tensor whose number of elements depends on its data."""

MEMORY = ADDRESSES | {"__array__", "numpy", "storage", "untyped_storage"}
"""Methods that expose the memory of a tensor, which may then be written unseen."""

DATA = frozenset({
    "item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__complex__", "__index__",
    "__contains__", "equal", "allclose", "is_nonzero", "is_contiguous",
})  # fmt: skip
"""Calls that read numbers or the layout of a tensor, on which Python may then branch."""

LAYOUT = frozenset({"stride", "dim_order", "storage_offset", "is_contiguous", "data_ptr"})
"""Methods that return the memory layout of a tensor."""

DESCRIPTIONS = frozenset({
    "size", "dim", "ndimension", "numel", "nelement", "__len__", "is_floating_point", "is_complex",
    "builtins.len",
})  # fmt: skip
"""Functions and methods that return the shape or dtype of a tensor as a number."""

NUMBERS = frozenset({
    *DESCRIPTIONS, *LAYOUT, "item", "tolist", "not_", "is_", "is_not", "truth", "contains", "sym_int",
    "sym_float", "sym_max", "sym_min", "sym_sqrt", "sym_not", "sym_sum", "sym_ite",
    *(f"builtins.{name}" for name in ("int", "float", "bool", "isinstance", "range", "slice")),
})  # fmt: skip
"""Functions and methods that return numbers or truth values, and hold no memory of a tensor."""

CASTS = {
    "byte": torch.uint8,
    "char": torch.int8,
    **{
        name: getattr(torch, name)
        for name in ("float", "double", "half", "bfloat16", "long", "int", "short", "bool")
    },
    **{f"c{name}": getattr(torch, f"c{name}") for name in ("float", "double", "half")},
    **dict.fromkeys(("to", "type", "type_as", "cpu", "cuda")),
}
"""Methods that return the tensor itself if it already has the dtype and device; with their dtypes."""

VIEWS = frozenset({
    "getitem", "__getitem__", "tuple", "unflatten", "split", "T", "mT", "H", "mH",
    *(f"builtins.{name}" for name in ("tuple", "list", "max", "min", "sum", "getattr")),
})  # fmt: skip
"""Functions and methods that return parts of an argument, or hold it."""

PURE = frozenset({
    "interpolate", "normalize", "cross_entropy", "softmin", "softsign", "tanhshrink", "upsample",
    "local_response_norm", "norm", "new_tensor", "tensor", "grid_sample", "fold",
    *(f"builtins.{name}" for name in ("abs", "round", "pow", "divmod")),
})  # fmt: skip
"""Functions in Python that make new tensors or numbers from their arguments."""

FACTS = frozenset({
    "shape", "ndim", "dtype", "device", "layout", "requires_grad", "itemsize", "nbytes", "is_cuda", "is_meta",
    "is_sparse", "is_quantized",
})  # fmt: skip
"""Attributes of tensors with facts about them, and none of their memory."""

VIEW_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "real", "imag"})
"""Attributes of tensors that are views of them."""

NUMBER_ATTRIBUTES = frozenset({"shape", "ndim", "itemsize", "nbytes"})
"""Attributes of tensors that are numbers."""


def _getters(*names: str) -> Mapping[Any, str]:
    """Return the getters of attributes of tensors, with the names."""
    return {getattr(torch.Tensor, name).__get__: name for name in names}


LAYOUT_READS = frozenset({
    *(LAYOUT - DATA - ADDRESSES), "is_conj", "is_neg", "is_coalesced", "sparse_dim", "dense_dim", "dim_order",
    "is_inference", "is_shared", "is_pinned", "_is_view", *_getters("layout", "is_sparse", "is_sparse_csr"),
})  # fmt: skip
"""Calls that return the memory layout of a tensor, on which the model may branch."""

DTYPE_READS = frozenset(
    {*("is_floating_point", "is_complex", "element_size", "untyped_storage"), *_getters("itemsize", "nbytes")}
)
"""Calls that return facts about a dtype, besides those that return one."""

GRADIENT_READS = _getters("requires_grad", "is_leaf", "grad_fn")
"""Getters that tell whether gradients are computed, with the names."""

TEXT_READS = frozenset({"__repr__", "__format__"})
"""Calls that turn numbers into text."""

NUMBER_OF: dict[str, Callable[[Any], Any]] = {
    "__bool__": bool, "__int__": int, "__float__": float, "__index__": operator.index,
}  # fmt: skip
"""Methods by which Python takes the one number out of a tensor, and the functions that call them."""

TELL_NO_DATA = DATA | LAYOUT_READS | {"data_ptr", "__hash__", "__dir__"}
"""Calls that return no tensors, and either no data or data that is guarded by other means."""
