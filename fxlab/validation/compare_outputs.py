"""How far the outputs of two models are apart."""

import math
from typing import TYPE_CHECKING, Any

import torch

from fxlab.running import Inputs, checked_module, run
from fxlab.tensors import tensors_by_path
from fxlab.validation.node_columns import dtype_name

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "shape",
    "dtype",
    "max_abs_diff",
    "mean_abs_diff",
    "max_rel_diff",
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
        If a tolerance is negative or NaN.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 2)
    >>> bool(compare_outputs(model, model, torch.ones(1, 2)).loc["output", "allclose"])
    True
    """
    import pandas as pd

    checked_module(a, "a")
    checked_module(b, "b")
    for name, tolerance in (("atol", atol), ("rtol", rtol)):
        if not tolerance >= 0:
            raise ValueError(f"{name}: expected a number that is not negative, got {tolerance!r}")
    if inputs is None:
        from fxlab.tracing import example_inputs

        inputs = example_inputs(a)
    reference, other = tensors_by_path(run(a, inputs)), tensors_by_path(run(b, inputs))
    rows = {
        path: _row(reference.get(path), other.get(path), atol, rtol)
        for path in dict.fromkeys([*reference, *other])
    }
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
        mismatched,
        x.numel(),
        not mismatched and not note,
        int((~same & ~finite).sum()),
        note,
    ]


def _incomparable(present: torch.Tensor, note: str) -> list[Any]:
    elements = present.numel()
    return [
        tuple(present.shape),
        dtype_name(present.dtype),
        *[math.nan] * 3,
        elements,
        elements,
        False,
        0,
        note,
    ]
