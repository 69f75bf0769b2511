"""How far the outputs of two models are apart."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from fxlab.checks import number
from fxlab.running import Inputs, checked_module
from fxlab.validation.arguments import inputs_or_examples
from fxlab.validation.node_columns import dtype_name
from fxlab.validation.outputs import outputs_of
from fxlab.validation.ulp import max_ulp_distance

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "shape",
    "dtype",
    "max_abs_diff",
    "mean_abs_diff",
    "max_rel_diff",
    "max_ulp_diff",
    "cosine_similarity",
    "worst_index",
    "mismatched",
    "elements",
    "allclose",
    "nan_inf_disagreement",
    "note",
)


def compare_outputs(
    a: torch.nn.Module,
    b: torch.nn.Module,
    inputs: Inputs | None = None,
    *,
    atol: float = 1e-5,
    rtol: float = 1e-5,
) -> "pd.DataFrame":
    """Run two models on the same inputs and compare each tensor of their outputs.

    Both run without gradients, on copies of the inputs and with the same random seed. Differences are taken
    in float64 (complex128 for complex outputs).

    Parameters
    ----------
    a
        The reference.
    b
        The model compared with it, such as a transformed graph module of it.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor. Left out, they are made
        from the configuration and signature of ``a`` (see :func:`fxlab.example_inputs`).
    atol, rtol
        Elements mismatch where ``|b - a| > atol + rtol * |a|``, as in :func:`torch.allclose`.

    Returns
    -------
    pandas.DataFrame
        One row for each tensor, indexed by its ``output`` path (``last_hidden_state``, ``states.0``):

        ``shape``, ``dtype``
            Of the reference, as a tuple and a string; where ``b`` has another, ``note`` says which.
        ``max_abs_diff``, ``mean_abs_diff``, ``max_rel_diff``
            Over the elements that are finite in both; relative to ``|a|`` where that is not zero.
        ``max_ulp_diff``
            How many numbers of the dtype lie between the two at most; for integers, how far they are apart.
            NaN if the dtypes differ.
        ``cosine_similarity``
            Of the two as vectors: 1 if one is a positive multiple of the other.
        ``worst_index``
            Where the largest difference is, or a NaN or infinity that only one of the two has; ``None`` if
            there is no difference.
        ``mismatched``, ``elements``
            How many elements are out of tolerance, of how many.
        ``allclose``
            Whether all elements are within tolerance; NaN equals NaN, and infinities equal themselves.
        ``nan_inf_disagreement``
            How many elements are NaN or infinite in one and something else in the other.
        ``note``
            What cannot be compared: another shape or dtype, a tensor that only one of the two returns.

    Raises
    ------
    TypeError
        If a model is no ``torch.nn.Module``, or ``inputs`` nothing that a model can be called with.
    ValueError
        If a model does not run on the inputs, or a tolerance is negative or NaN.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 2)
    >>> bool(compare_outputs(model, model, torch.ones(1, 2)).loc["output", "allclose"])
    True
    """
    checked_module(a, "a")
    checked_module(b, "b")
    for name, tolerance in (("atol", atol), ("rtol", rtol)):
        number(tolerance, name, at_least=0)
    inputs = inputs_or_examples(inputs, a)
    return compared(outputs_of(a, "a", inputs), outputs_of(b, "b", inputs), atol, rtol)


def compared(
    reference: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor], atol: float, rtol: float
) -> "pd.DataFrame":
    """Return the table of :func:`compare_outputs` for outputs by path."""
    rows = {
        path: _row(reference.get(path), other.get(path), atol, rtol)
        for path in dict.fromkeys([*reference, *other])
    }
    return _as_table(rows)


def not_compared(outputs: Mapping[str, torch.Tensor], note: str) -> "pd.DataFrame":
    """Return the table for outputs of ``a`` that ``b`` has nothing to be compared with."""
    return _as_table({path: _incomparable(tensor, note) for path, tensor in outputs.items()})


def _as_table(rows: dict[str, list[Any]]) -> "pd.DataFrame":
    import pandas as pd

    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS))
    return table.rename_axis("output")


def _row(a: torch.Tensor | None, b: torch.Tensor | None, atol: float, rtol: float) -> list[Any]:
    if a is None or b is None:
        present = b if a is None else a
        assert present is not None
        return _incomparable(present, f"only the {'second' if a is None else 'first'} model returns it")
    if a.shape != b.shape:
        return _incomparable(a, f"shapes differ: {tuple(a.shape)} and {tuple(b.shape)}")
    note = "" if a.dtype == b.dtype else f"dtypes differ: {dtype_name(a.dtype)} and {dtype_name(b.dtype)}"
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    x, y = (tensor.detach().to("cpu", wide) for tensor in (a, b))
    same = (x == y) | (x.isnan() & y.isnan())
    finite = x.isfinite() & y.isfinite()
    difference = torch.where(finite, (y - x).abs(), 0.0)
    close = same | (finite & (difference <= atol + rtol * x.abs()))
    relative = torch.where(finite & (x != 0), difference / x.abs(), 0.0)
    mismatched = int((~close).sum())
    return [
        tuple(a.shape),
        dtype_name(a.dtype),
        float(difference.max()) if x.numel() else 0.0,
        float(difference.sum() / finite.sum()) if finite.any() else 0.0,
        float(relative.max()) if x.numel() else 0.0,
        max_ulp_distance(a, b) if a.dtype == b.dtype else math.nan,
        _cosine_similarity(x[finite], y[finite]),
        _worst_index(torch.where(same | finite, difference, math.inf)),
        mismatched,
        x.numel(),
        not mismatched and not note,
        int((~same & ~finite).sum()),
        note,
    ]


def _incomparable(present: torch.Tensor, note: str) -> list[Any]:
    elements = present.numel()
    unknown = [math.nan] * 5
    dtype = dtype_name(present.dtype)
    return [tuple(present.shape), dtype, *unknown, None, elements, elements, False, 0, note]


def _cosine_similarity(x: torch.Tensor, y: torch.Tensor) -> float:
    a, b = (torch.view_as_real(t).flatten() if t.is_complex() else t for t in (x, y))
    # Divided by the largest first, so that no square overflows.
    a, b = (t / t.abs().max() if t.any() else t for t in (a, b))
    norms = a.norm() * b.norm()
    if not norms:
        return 1.0 if not a.any() and not b.any() else 0.0
    return float((a @ b / norms).clamp(-1, 1))


def _worst_index(difference: torch.Tensor) -> tuple[int, ...] | None:
    if not difference.any():
        return None
    return tuple(map(int, torch.unravel_index(difference.argmax(), difference.shape)))
