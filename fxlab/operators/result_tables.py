"""Operators that move, step or fill, where torch's tags do not tell. Held against its samples by a test."""

MOVES = frozenset(
    {
        *("getitem", "clone", "repeat", "tile", "flip", "fliplr", "flipud", "roll", "rot90", "tril", "triu"),
        *("index", "index_select", "gather", "take", "take_along_dim", "masked_select", "diag", "diag_embed"),
        *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "_unsafe_view"),
        *("unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"),
    }
)
"""Operators that are no views, and return elements of their first argument, or zeros."""

RESHAPES = frozenset(
    {
        *("view", "_unsafe_view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "ravel"),
        *("squeeze", "unsqueeze", "alias", "detach", "contiguous", "clone"),
    }
)
"""Operators that return all elements of their first argument in their order, as views or as copies."""

NO_ELEMENTS = frozenset(
    {
        *("conj", "adjoint", "mH", "matrix_H", "imag", "real", "view_as_complex", "view_as_real"),
        *("as_strided", "slice_inverse", "coalesce", "slice_scatter"),
    }
)
"""Views, and copies tagged so, that hold something else than elements of their first argument."""

NEEDS_STRIDES = frozenset(
    {"view", "view_as", "as_strided", "view_as_complex", "_reshape_alias", "_unsafe_view", "slice_inverse"}
)
"""Operators that fail, or return something else, where a tensor of other strides holds the same values."""

STEPS = frozenset({"round", "floor", "ceil", "trunc", "sign", "sgn", "floor_divide", "heaviside"})
"""Operators whose floating-point results take isolated values, as integers do."""

JUMPS = frozenset({"frac", "remainder", "fmod", "divmod"})
"""Operators that return what such a step leaves over."""

WHOLE_NUMBERS = frozenset({"sym_int", "range", "builtins.int"})
"""Functions in Python that take integers, or make them."""

TRUTH_VALUES = frozenset(
    {
        *("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal"),
        *("isclose", "isin", "signbit", "logical_not", "logical_and", "logical_or", "logical_xor"),
    }
)
"""Operators that return truth values, whatever dtypes they are given."""

INTEGERS = frozenset({"argmax", "argmin", "argsort", "argwhere", "nonzero", "bincount", "count_nonzero"})
"""Operators that return integers of 64 bits, whatever dtypes they are given."""

FILLED = {"zeros": 0.0, "ones": 1.0}
"""What operators fill a new tensor with, also as ``new_zeros`` and ``zeros_like``."""
