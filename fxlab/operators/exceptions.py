"""Operators whose schemas are incomplete. A test holds this table against torch's own samples."""

ALIASES = frozenset({
    "broadcast_tensors", "meshgrid", "sum_to_size", "unsafe_split", "type_as", "einsum", "chain_matmul",
    "flatten_dense_tensors", "unflatten_dense_tensors", "data", "lift", "pad_sequence", "histogramdd",
    "_unsafe_view", "wait_tensor", "_wrap_tensor_autograd",
})  # fmt: skip
"""Operators that may return an argument or a view of it, and whose schema does not say so."""

HOLDS_ARGUMENTS = ("_", "to_", "sparse_")
"""Prefixes of composite operators that may return an argument, or hold it."""

SHARES_OTHERS_MEMORY = frozenset({"set_", "set_data"})
"""Operators that move the tensor they write into the memory of another argument."""

_STATISTICS = ("running_mean", "running_var")
WRITES_STATE = {
    "batch_norm": ("training", *_STATISTICS), "native_batch_norm": ("training", *_STATISTICS),
    "_batch_norm_impl_index": ("training", *_STATISTICS), "cudnn_batch_norm": ("training", *_STATISTICS),
    "miopen_batch_norm": ("training", *_STATISTICS), "instance_norm": ("use_input_stats", *_STATISTICS),
    "batch_norm_update_stats": ("input", *_STATISTICS), "embedding": ("max_norm", "weight"),
    "embedding_bag": ("max_norm", "weight"), "_saturate_weight_to_fp16": ("weight", "weight"),
}  # fmt: skip
"""Operators that write statistics or a weight: the argument that says so if given and true, and these."""

DRAWS = frozenset({
    "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices", "gumbel_softmax", "multi_head_attention_forward",
})  # fmt: skip
"""Functions in Python that draw random numbers, besides those whose operators are tagged."""

PREFIXES = {"special_": "", "arc": "a"}
"""Prefixes of second spellings, and those of the first spellings, if torch has both."""

SYNONYMS = {
    "absolute": "abs", "clip": "clamp", "concat": "cat", "concatenate": "cat", "det": "linalg_det",
    "divide": "div", "fix": "trunc", "ger": "outer", "greater": "gt", "greater_equal": "ge",
    "inverse": "linalg_inv", "less": "lt", "less_equal": "le", "linalg_matmul": "matmul",
    "linalg_matrix_exp": "matrix_exp", "matrix_power": "linalg_matrix_power", "moveaxis": "movedim",
    "multiply": "mul", "negative": "neg", "not_equal": "ne", "orgqr": "linalg_householder_product",
    "row_stack": "vstack", "special_expit": "sigmoid", "special_gammainc": "igamma",
    "special_gammaincc": "igammac", "special_gammaln": "lgamma", "special_multigammaln": "mvlgamma",
    "special_psi": "digamma", "subtract": "sub", "swapaxes": "transpose", "swapdims": "transpose",
    "true_divide": "div",
}  # fmt: skip
"""Second names of operators, and the first."""

UNINITIALISED = "empty"
"""Part of the names of operators that return uninitialised memory."""
