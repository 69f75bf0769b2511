"""Calls by which Python reads a tensor: its numbers, dtype, memory layout and gradients.

Methods are listed by name, attributes as the getters that torch reports.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fxlab.operators.python_functions import ADDRESSES, DATA, LAYOUT


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
