"""``fxlab.compare_outputs``: distances between the outputs of two models, under the names of one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from inspect import isroutine
from typing import Any

import torch
from torch import nn

from fxlab.base.checks import number
from fxlab.base.first_use import pd
from fxlab.front_desk.sources import Model, compared_models, inputs_or_examples
from fxlab.models.running.arguments import Inputs, argument_names, given_arguments
from fxlab.models.running.call_record import Place
from fxlab.models.state.tensor_state import named_tensors, place_of, plain_name
from fxlab.operators.node_info import dtype_name
from fxlab.validation.arguments import graph_to_run
from fxlab.validation.outputs.computed_tensors import GRADIENT, INPUT, STATE, Observed, is_written, observed
from fxlab.values.tensors import dense, is_floating, is_plain, real_numbers, same_bits, stored_otherwise


@dataclass(frozen=True)
class Counterparts:
    """The names that the original has for the inputs and tensors of a transformed model."""

    inputs: Mapping[str, str]
    """Inputs, by their place in the call."""
    state: Mapping[str, str]
    """Parameters, buffers and other tensors: the same memory, or else the same name."""
    outputs: Mapping[str, str] | None = None
    """Outputs by their path, if the model is another one: those that are compared, by the name in the answer.

    Then memory that is shared, containers around tensors, and writes without a counterpart do not count.
    """
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    """The dtypes in which outputs are compared, by their name in the answer, where they are not their own."""

    @classmethod
    def of(cls, original: nn.Module, transformed: nn.Module, inputs: Inputs) -> "Counterparts":
        """Find them."""
        count = len(given_arguments(inputs)[0])
        names = (argument_names(model, count) for model in (transformed, original))
        return cls(dict(zip(*names, strict=True)), same_tensors(original, transformed))

    def row(self, path: str) -> str:
        """Return the row of a table that stands for the same as a row of the transformed model."""
        for prefix, names in self._names:
            if path.startswith(prefix):
                return prefix + _renamed(path.removeprefix(prefix), names)
        return path

    def own_row(self, path: str) -> str:
        """Return the row of the transformed model that :meth:`row` gives this one for."""
        inputs, state = ({new: old for old, new in names.items()} for names in (self.inputs, self.state))
        return Counterparts(inputs, state).row(path)

    def rows(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return tensors by their rows, named so; of another model those that have a counterpart."""
        return {
            self.row(path): tensor
            for path, tensor in tensors.items()
            if self.outputs is None or self.has_counterpart(path)
        }

    def has_counterpart(self, path: str) -> bool:
        """Tell whether a row of something written stands for a known tensor of the original."""
        return any(
            path.startswith(prefix) and _known(path.removeprefix(prefix), names) is not None
            for prefix, names in self._names
        )

    def named(self, observed: Observed) -> Observed:
        """Return the results and writes of a run of the transformed model, named so."""
        record = observed.record.with_names(self.place)
        if self.outputs is not None:
            record = record.of_numbers_alone()
        return replace(
            observed,
            returned={
                name: tensor.to(self.dtypes.get(name, tensor.dtype))
                for name, tensor in self.picked(observed.returned).items()
            },
            written=self.rows(observed.written),
            record=record,
            unwritten=lambda path: observed.unwritten(self.own_row(path)),
        )

    def picked(self, returned: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the outputs that are compared, by the name that they have there."""
        if self.outputs is None:
            return dict(returned)
        return {name: returned[path] for path, name in self.outputs.items()}

    @property
    def _names(self) -> tuple[tuple[str, Mapping[str, str]], ...]:
        return (INPUT, self.inputs), (STATE, self.state), (GRADIENT, self.inputs)

    def place(self, place: Place) -> Place:
        """Return the place in the original that is the same as one in the transformed model."""
        names = {"input": self.inputs, "state": self.state}.get(place.kind, {})
        return place._replace(path=_renamed(place.path, names))


def _renamed(path: str, names: Mapping[str, str]) -> str:
    """Return a path that begins with another name where its own is known."""
    known = _known(path, names)
    return path if known is None else names[known] + path.removeprefix(known)


def _known(path: str, names: Mapping[str, str]) -> str | None:
    """Return the known name that a path begins with."""
    return path if path in names else next((n for n in names if path.startswith(f"{n}.")), None)


def same_tensors(original: nn.Module, transformed: nn.Module) -> dict[str, str]:
    """Return the first name that the original has for each tensor of another model that it has too."""
    first, by_name = dict[object, str](), dict[str, str]()
    for name, tensor in named_tensors(original):
        by_name[plain_name(original, name)] = first.setdefault(_identity(tensor), name)
    found = (
        (name, first.get(_identity(tensor), by_name.get(plain_name(transformed, name))))
        for name, tensor in named_tensors(transformed)
    )
    return {name: known for name, known in found if known is not None}


def _identity(tensor: torch.Tensor) -> object:
    has_place = is_plain(tensor) and not tensor.is_meta and tensor.numel() and tensor.layout is torch.strided
    return place_of(tensor) if has_place else id(tensor)


COLUMNS = (
    "shape", "dtype", "max_abs_diff", "mean_abs_diff", "max_rel_diff", "max_ulp_diff", "cosine_similarity",
    "worst_index", "mismatched", "elements", "compared", "same_bits", "allclose", "nan_inf_disagreement",
    "note",
)  # fmt: skip


def compare_outputs(
    reference: Model, candidate: Model, inputs: Inputs | None = None, *, atol: float = 0.0, rtol: float = 0.0
) -> "pd.DataFrame":
    """Run two models on the same inputs and measure how far apart their outputs are.

    Both run without gradients (with them, if one is a graph that needs these), on copies of the inputs and
    with the same random seed, and are left as they were. Differences are taken in float64 (complex128 for
    complex outputs). Whether a difference matters is another question, which :func:`verdict` answers
    without a tolerance.

    Parameters
    ----------
    reference, candidate
        Two modules, graph modules, functions or exported programs.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor. Left out, made from the
        configuration and signature of ``reference`` (see :func:`fxlab.example_inputs`).
    atol, rtol
        Floating-point elements mismatch where ``|transformed - original| > atol + rtol * |original|``, as
        in :func:`torch.allclose`: if left out, where they are not equal. Others have to be equal.

    Returns
    -------
    pandas.DataFrame
        One row for each tensor, indexed by its ``output`` path (``last_hidden_state``, ``states.0``), and one
        for each that either model writes in place (``written input x``, ``written state bn.running_mean``):

        ``shape``, ``dtype``
            Of the original, as a tuple and a string; where ``transformed`` has another, ``note`` says which.
        ``max_abs_diff``, ``mean_abs_diff``, ``max_rel_diff``
            Over the elements that are finite in both; relative to the original where it is not zero.
        ``max_ulp_diff``
            Numbers of the dtype between the two at most; the distance of integers. NaN if dtypes differ.
        ``cosine_similarity``
            Of the two as vectors: 1 if one is a positive multiple of the other.
        ``worst_index``
            Where the largest difference is, or a NaN or infinity that only one of the two has; ``None`` if
            there is no difference.
        ``mismatched``, ``elements``, ``compared``
            How many elements are out of tolerance, of how many, and how many of these are finite numbers in
            both. Where none is, nothing was compared, as ``note`` says.
        ``same_bits``
            Whether every bit is the same, and there is something to compare.
        ``allclose``
            Whether all elements are within tolerance, and there is something to compare; NaN equals NaN, and
            infinities equal themselves.
        ``nan_inf_disagreement``
            How many elements are NaN or infinite in one and something else in the other.
        ``note``
            The reason why they cannot be compared: another shape or dtype, a tensor that only one of the two
            returns, one without a finite element.

    Raises
    ------
    TypeError
        If a model is neither a module nor a session, or no model can be called with ``inputs``.
    ValueError
        If a model does not run on the inputs, or a tolerance is negative or NaN.

    Examples
    --------
    >>> model = torch.nn.Linear(2, 2)
    >>> bool(compare_outputs(model, model, torch.ones(1, 2)).loc["output", "same_bits"])
    True
    """
    atol, rtol = number(atol, "atol", at_least=0), number(rtol, "rtol", at_least=0)
    first, second, inputs = compared_models(reference, candidate, inputs)
    inputs = inputs_or_examples(inputs, first)
    if any(map(isroutine, (first, second))):
        first = graph_to_run(first, "reference", inputs)
        second = graph_to_run(second, "candidate", inputs)
    ours = observed(first, "reference", inputs, beside=second)
    ours = Counterparts.of(first, first, inputs).named(ours)
    theirs = observed(second, "candidate", inputs, beside=first)
    theirs = Counterparts.of(first, second, inputs).named(theirs)
    return compared(ours.beside(theirs), theirs.beside(ours), atol, rtol)


def compared(
    original: Mapping[str, torch.Tensor],
    transformed: Mapping[str, torch.Tensor],
    atol: float = 0.0,
    rtol: float = 0.0,
) -> "pd.DataFrame":
    """Return the table of :func:`compare_outputs` for outputs by path."""
    rows = compared_rows(original, transformed, atol, rtol)
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS)).rename_axis("output")


def compared_rows(
    original: Mapping[str, torch.Tensor],
    transformed: Mapping[str, torch.Tensor],
    atol: float = 0.0,
    rtol: float = 0.0,
) -> dict[str, dict[str, Any]]:
    """Return the rows of that table, by path: a frame takes longer than comparing small outputs."""
    paths = sorted(dict.fromkeys([*original, *transformed]), key=is_written)
    return {path: _row(path, original.get(path), transformed.get(path), atol, rtol) for path in paths}


def _row(
    path: str, a: torch.Tensor | None, b: torch.Tensor | None, atol: float, rtol: float
) -> dict[str, Any]:
    if a is None or b is None:
        present = b if a is None else a
        assert present is not None
        does = "writes" if is_written(path) else "returns"
        return _incomparable(
            present, f"only the {'transformed model' if a is None else 'original'} {does} it"
        )
    if a.shape != b.shape:
        return _incomparable(a, f"shapes differ: {tuple(a.shape)} and {tuple(b.shape)}")
    if found := stored_otherwise(a, b):
        return _incomparable(a, found)
    bits = a.dtype == b.dtype and same_bits(a.detach(), b.detach().to(a.device))
    a, b = dense(a.detach()), dense(b.detach())
    note = "" if a.dtype == b.dtype else f"dtypes differ: {dtype_name(a.dtype)} and {dtype_name(b.dtype)}"
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    x, y = (tensor.cpu().to(wide) for tensor in (a, b))
    exact = not any(map(is_floating, (a, b)))
    # Two large integers may be one number in float64.
    same = a.cpu() == b.cpu() if exact else (x == y) | (x.isnan() & y.isnan())
    finite = x.isfinite() & y.isfinite()
    difference = torch.where(finite, (y - x).abs(), 0.0)
    difference = torch.where(same, difference, difference.clamp(min=1.0)) if exact else difference
    relative = torch.where(finite & (x != 0), difference / x.abs(), 0.0)
    close = same if exact else same | (finite & (difference <= atol + rtol * x.abs()))
    counted = int(finite.sum())
    mismatched = int((~close).sum())
    if not counted and not note and bool(same.all()):
        note = (
            "nothing compared: no element is finite in both" if x.numel() else "nothing compared: no elements"
        )
    return {
        "shape": tuple(a.shape),
        "dtype": dtype_name(a.dtype),
        "max_abs_diff": float(difference.max()) if counted else math.nan,
        "mean_abs_diff": float(difference.sum() / counted) if counted else math.nan,
        "max_rel_diff": float(relative.max()) if counted else math.nan,
        "max_ulp_diff": max_ulp_distance(a, b) if counted and a.dtype == b.dtype else math.nan,
        "cosine_similarity": _cosine_similarity(x[finite], y[finite]) if counted else math.nan,
        "worst_index": _worst_index(torch.where(same | finite, difference, math.inf)),
        "same_bits": bits and not note,
        "elements": x.numel(),
        "compared": counted,
        "nan_inf_disagreement": int((~same & ~finite).sum()),
        "note": note,
        "mismatched": mismatched,
        "allclose": not mismatched and not note,
    }


def _incomparable(present: torch.Tensor, note: str) -> dict[str, Any]:
    elements = present.numel()
    measured = ("max_abs_diff", "mean_abs_diff", "max_rel_diff", "max_ulp_diff", "cosine_similarity")
    return {
        "shape": tuple(present.shape),
        "dtype": dtype_name(present.dtype),
        **dict.fromkeys(measured, math.nan),
        "worst_index": None,
        "same_bits": False,
        "elements": elements,
        "compared": 0,
        "nan_inf_disagreement": 0,
        "note": note,
        "mismatched": elements,
        "allclose": False,
    }


def _cosine_similarity(x: torch.Tensor, y: torch.Tensor) -> float:
    a, b = (real_numbers(t).flatten() for t in (x, y))
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


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integers that have the size of a float of so many bytes."""


def max_ulp_distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest distance of finite elements of two tensors in units in the last place.

    The floating-point numbers of a dtype are counted in their order, in which -0.0 and 0.0 are one (Goldberg
    1991, What every computer scientist should know about floating-point arithmetic); of integers and booleans
    the difference is meant.
    """
    a, b = (real_numbers(tensor.detach().cpu()) for tensor in (a, b))
    if a.is_floating_point():
        finite = a.double().isfinite() & b.double().isfinite()
        a, b = _position(a)[finite], _position(b)[finite]
    if not a.numel():
        return 0.0
    a, b = a.long(), b.long()
    # Of 64-bit numbers of different signs, the distance does not fit into 64 bits.
    distance = torch.where((a < 0) == (b < 0), (a - b).abs().double(), a.double().abs() + b.double().abs())
    return float(distance.max())


def _position(tensor: torch.Tensor) -> torch.Tensor:
    """Return the place of each number among those of its dtype, zero being 0."""
    integers = _INTEGERS[tensor.element_size()]
    bits = tensor.contiguous().view(integers)
    return torch.where(bits < 0, torch.iinfo(integers).min - bits.long(), bits.long())
