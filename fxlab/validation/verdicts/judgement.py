"""Judges whether two tensors differ by rounding alone, for every comparison."""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fxlab.base.units import with_unit
from fxlab.operators.node_info import dtype_name
from fxlab.values.tensors import dense, is_floating, real_numbers, same_bits, stored_otherwise, to_float64

ROUNDINGS = 3.0
"""How many times as far as rounding new values once takes them two equal functions may be apart."""

ROUNDINGS_OF_VECTORS = 4.0
"""The same where the numbers that new values were computed from are rounded once as well.

That is as far as new values may be off that were computed in the dtype of the model, with a rounding for each
step, rather than in a wider one.
"""

NEGLIGIBLE = 2.0**-12
"""The share of the original's own error below which a difference of functions does not count.

It cannot be seen in the outputs. A constant in single precision does as much to a half-precision model.
"""

SHOWN = 1.5
"""From how much larger an error on the worse rounding of weights is said to show in an output."""

WORSE = 4.0
"""How much larger than the original's the error of a transformed tensor of many elements may be."""

OTHER_CHOICES = 0.25
"""The share of elements, those with the largest errors, that does not count where decisions are unknown."""

_SAMPLES = 2**20


class Status(enum.StrEnum):
    """The outcomes of a comparison, best first."""

    SAME_BITS = "same bits"
    WITHIN_ROUNDING = "within the model's own rounding"
    NOTHING_COMPARED = "nothing compared"
    DIFFERENT = "different"

    @property
    def rank(self) -> int:
        """The place in this order."""
        return list(Status).index(self)


@dataclass(frozen=True)
class Versions:
    """One tensor as two models compute it, as they are and in float64."""

    original: torch.Tensor
    transformed: torch.Tensor
    exact_original: torch.Tensor
    exact_transformed: torch.Tensor
    rounded_anew: Sequence[torch.Tensor] = ()
    """The transformed one in float64 with its new values rounded again, as often as that was tried."""
    replaced_anew: Sequence[torch.Tensor] = ()
    """The original in float64 with those vectors rounded again that the transformed one does not have."""
    moved: Sequence[Sequence[torch.Tensor]] = ()
    """How far a float64 run moves if values that are inexact even there are rounded again: a few tries."""
    decided: torch.Tensor | None = None
    """The change of the original's float64 run by its own decisions (comparisons, choices)."""
    decided_transformed: torch.Tensor | None = None
    """The same of the transformed one."""
    decisions_unknown: bool = False
    """Whether there are other decisions that float64 runs could not take."""
    lacks_float64: bool = False
    """Whether the transformed one has nodes without a float64 run that the original does not have, such as
    generated code."""

    is_exchanged: bool = False
    """Whether the two have exchanged their roles."""

    def exchanged(self) -> "Versions":
        """Return the same with the roles exchanged, to judge by the one that has a float64 run."""
        return replace(
            self,
            original=self.transformed,
            transformed=self.original,
            exact_original=self.exact_transformed,
            exact_transformed=self.exact_original,
            decided=self.decided_transformed,
            decided_transformed=self.decided,
            is_exchanged=True,
        )


@dataclass(frozen=True)
class Errors:
    """Root mean squares over the elements of a tensor, relative to the float64 run of the original.

    An element's error is divided by its magnitude, or by the median magnitude where that is larger: neither a
    few huge elements (massive activations) nor those near zero decide alone. Elements that are exact in all
    runs (masks, padding, zeros after a ReLU) tell nothing and are left out. Where rounding leads to another
    comparison or choice now and then, ``own`` and ``transformed`` are the errors left when the float64 run
    has decided alike; if it could not, the quarter with the largest errors does not count in them.
    """

    own: float
    """Of the original."""
    transformed: float
    """Of the transformed."""
    function: float
    """Of the transformed when it runs in float64 as well, where activations are not rounded."""
    new_values: float
    """The part of ``function`` that rounding new weights and constants once explains."""
    replaced: float
    """The part that rounding the vectors once explains from which these were computed."""
    last_rounding: float
    """The error of rounding a result once to its dtype: the least error that can be asked for."""
    float64: float
    """Of the float64 runs themselves: of outputs in float64, and of nodes that have none."""
    lacks_float64: bool = False
    """Whether there is no float64 run of one of the two: then only its rounding is known."""

    @classmethod
    def of(cls, versions: Versions) -> "Errors":
        """Measure them."""
        a, b, exact, other = map(
            _wide,
            (versions.original, versions.transformed, versions.exact_original, versions.exact_transformed),
        )
        finite = a.isfinite() & b.isfinite() & exact.isfinite()
        a, b = a - _effect(versions.decided), b - _effect(versions.decided_transformed)
        compared = finite & ~((a == exact) & (b == exact) & (other == exact))
        exact = exact[compared]
        scale = exact.abs().clamp(min=_median_magnitude(exact))

        def error(x: torch.Tensor) -> float:
            return _root_mean_square((x[compared] - exact) / scale)

        def rounding_error(x: torch.Tensor) -> float:
            errors = ((x[compared] - exact) / scale).abs()
            if versions.decisions_unknown:
                errors = errors.sort().values[: math.ceil((1 - OTHER_CHOICES) * errors.numel())]
            return _root_mean_square(errors)

        whole = _wide(versions.exact_original)

        def movement(tries: Sequence[torch.Tensor]) -> float:
            return _root_mean_square(torch.tensor([error(_wide(x) + whole) for x in tries], device="cpu"))

        # Uniform within half a unit in the last place, so that its deviation is the unit over the root of 12.
        rounding = torch.finfo(versions.original.dtype).eps / math.sqrt(12)
        last_rounding = rounding * _root_mean_square(exact / scale)
        float64 = math.hypot(*map(movement, versions.moved))
        if versions.original.dtype in (torch.float64, torch.complex128):
            float64 = math.hypot(float64, last_rounding) * _scatter(exact.numel())
        new = [error(_wide(x) - other + whole) for x in versions.rounded_anew]
        replaced = [error(_wide(x)) for x in versions.replaced_anew]
        return cls(
            own=rounding_error(a),
            transformed=rounding_error(b),
            function=error(other),
            new_values=_root_mean_square(torch.tensor(new, device="cpu")),
            replaced=_root_mean_square(torch.tensor(replaced, device="cpu")),
            last_rounding=last_rounding,
            float64=float64,
            lacks_float64=versions.lacks_float64,
        )

    @property
    def usual(self) -> float:
        """The original's own error, or that of one last rounding where it happens to be smaller."""
        return math.hypot(max(self.own, self.last_rounding), self.float64)

    @property
    def ratio(self) -> float:
        """The error of the transformed model over that of the original."""
        return self.transformed / self.usual if self.usual else math.nan

    @property
    def is_noise(self) -> bool:
        """Whether both errors exceed the values themselves, as for gradients that are zero in theory."""
        return min(self.own, self.transformed) >= 1

    @property
    def same_function(self) -> bool:
        """Whether the two compute the same, rounding apart."""
        # Rounding each step of their computation explains more.
        return self.new_values_are_rounded_well or self.function <= self._explained_by_many

    @property
    def new_values_are_rounded_well(self) -> bool:
        """Whether rounding new values about once explains how far the two are apart."""
        return self.lacks_float64 or self.function <= self._explained_by_one_rounding

    @property
    def hidden(self) -> float:
        """The largest mistake that would still count as rounding, relative as the errors are.

        A mistake and the rounding error add up to ``function``, or cancel in part. So where ``function`` is
        within its limit, the mistake is no larger than ``function`` and that limit together.
        """
        if self.lacks_float64:
            return self.transformed + WORSE * self.usual
        return self.function + max(self._explained_by_one_rounding, self._explained_by_many)

    @property
    def _explained_by_one_rounding(self) -> float:
        return max(NEGLIGIBLE * self.usual, WORSE * self.float64, ROUNDINGS * self.new_values)

    @property
    def _explained_by_many(self) -> float:
        are_both_known = self.new_values > 0 and self.replaced > 0
        return ROUNDINGS_OF_VECTORS * math.hypot(self.new_values, self.replaced) if are_both_known else 0.0

    def rounds_well(self, elements: int) -> bool:
        """Tell whether the transformed one's error is of the size of the original's."""
        limit = WORSE * _scatter(elements)
        return self.transformed <= limit * math.hypot(self.usual, self.new_values)


@dataclass(frozen=True)
class Judgement:
    """The judgement of one tensor, with the reason."""

    status: Status
    reason: str
    elements: int
    errors: Errors | None = None
    """Where it took a float64 run to tell."""
    compared: int = 0
    """How many elements are numbers in both; NaN and infinities say nothing."""
    max_abs_diff: float = math.nan
    """The largest absolute difference of an element; NaN if it is not known, or nothing was compared."""

    @property
    def hidden(self) -> float | None:
        """The largest relative mistake that could still hide where the two are the same up to rounding.

        It is one of the computed function, on these inputs. It is not known where every bit is the same, as
        that takes no float64 run: a mistake that the output's own dtype rounds away is not seen.
        """
        return self.errors.hidden if self.errors and self.status is Status.WITHIN_ROUNDING else None


def with_difference(
    judgement: Judgement, original: torch.Tensor | None, transformed: torch.Tensor | None
) -> Judgement:
    """Return a judgement with the largest difference of the elements of the two tensors.

    It is infinite where only one has a number, or they have not the same elements.
    """
    if original is None or transformed is None or original.shape != transformed.shape:
        return replace(judgement, max_abs_diff=math.inf)
    if judgement.status is Status.NOTHING_COMPARED:
        return judgement
    if judgement.status is Status.SAME_BITS:
        return replace(judgement, max_abs_diff=0.0)
    apart = distances(original, transformed)
    return replace(judgement, max_abs_diff=float(apart.max()) if apart.numel() else 0.0)


def distances(original: torch.Tensor, transformed: torch.Tensor) -> torch.Tensor:
    """Return how far the elements of two tensors are apart, in float64; infinite where only one is NaN.

    Whole numbers that differ are apart by at least one, though float64 may have one number for both.
    """
    a, b = dense(original.detach()), dense(transformed.detach()).to(original.device)
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    x, y = (to_float64(each).to(wide) for each in (a, b))
    apart = torch.where((x == y) | (x.isnan() & y.isnan()), 0.0, (x - y).abs())
    apart = torch.where(apart.isnan(), math.inf, apart)
    is_whole = not (is_floating(a) or is_floating(b))
    return torch.where((a != b).to(apart.device), apart.clamp(min=1.0), 0.0) if is_whole else apart


def judged_by_bits(original: torch.Tensor | None, transformed: torch.Tensor | None) -> Judgement | None:
    """Return the judgement on two tensors without a float64 run, or ``None`` if it takes one."""
    if original is None or transformed is None:
        present = transformed if original is None else original
        which = "transformed" if original is None else "original"
        elements = 0 if present is None else present.numel()
        return Judgement(Status.DIFFERENT, f"only the {which} has it", elements)
    a, b = original.detach(), transformed.detach().to(original.device)
    elements = a.numel()
    if a.shape != b.shape:
        reason = f"the shapes differ: {tuple(a.shape)} and {tuple(b.shape)}"
    elif a.dtype != b.dtype:
        reason = f"the dtypes differ: {dtype_name(a.dtype)} and {dtype_name(b.dtype)}"
    else:
        reason = stored_otherwise(a, b)
    if reason:
        return Judgement(Status.DIFFERENT, reason, elements)
    compared = compared_elements(a, b)
    if same_bits(a, b):
        if not compared:
            return _nothing_compared(elements)
        reason = f"every bit is the same{left_aside(elements, compared)}{_constant(a)}"
        return Judgement(Status.SAME_BITS, reason, elements, compared=compared)
    if not is_floating(a):
        unequal = int((dense(a) != dense(b)).sum())
        reason = f"{unequal} of {elements} {dtype_name(a.dtype)} elements differ"
        return Judgement(Status.DIFFERENT, reason, elements, compared=compared)
    x, y = _wide(a), _wide(b)
    other_kind = (x.isfinite() != y.isfinite()) | (~x.isfinite() & (x != y) & ~(x.isnan() & y.isnan()))
    if unequal := int(other_kind.sum()):
        signs = int((x.isinf() & y.isinf() & (x != y)).sum())
        alone = f"{unequal - signs} of {x.numel()} numbers are NaN or infinite in one of the two only"
        other = f"{signs} of {x.numel()} infinite numbers have the other sign"
        reason = "; ".join([alone] * (unequal > signs) + [other] * bool(signs))
        return Judgement(Status.DIFFERENT, reason, elements, compared=compared)
    return None if compared else _nothing_compared(elements)


def compared_elements(a: torch.Tensor, b: torch.Tensor) -> int:
    """Return how many elements are numbers in both of two tensors of the same shape and dtype."""
    if not is_floating(a):
        return a.numel()
    return int((_finite(a) & _finite(b).to(a.device)).sum())


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    elements = dense(tensor.detach())
    try:
        return elements.isfinite()
    except RuntimeError:  # dtypes of eight bits
        return elements.to(torch.float32).isfinite()


def _nothing_compared(elements: int) -> Judgement:
    reason = f"all {elements} elements are NaN or infinite in both" if elements else "it has no elements"
    return Judgement(Status.NOTHING_COMPARED, reason, elements)


def left_aside(elements: int, compared: int) -> str:
    """Tell how many elements were not compared, if there are any."""
    rest = elements - compared
    return f"; {rest} of {elements} elements are NaN or infinite in both" if rest else ""


def _constant(tensor: torch.Tensor) -> str:
    """Tell that all elements are the same number, which says little of the computation behind them."""
    if tensor.numel() < 2 or tensor.layout is not torch.strided or tensor.is_quantized:
        return ""
    first = tensor.flatten()[0]
    return f"; all elements are {first.item():.6g}" if bool((tensor == first).all()) else ""


def judged(versions: Versions) -> Judgement:
    """Judge a tensor that :func:`judged_by_bits` has nothing to say of.

    Two questions are asked, in this order. Do the two compute the same function: in float64, are they as
    close as the rounding of new values explains? And does the transformed one round about as well as the
    original?
    """
    errors, elements = Errors.of(versions), versions.original.numel()
    compared = compared_elements(versions.original, versions.transformed)
    if not versions.exact_original.isfinite().any():
        reason = "the float64 run of the original has no finite element to compare with"
        return Judgement(Status.NOTHING_COMPARED, reason, elements)
    rest = left_aside(elements, compared)

    def told(status: Status, reason: str) -> Judgement:
        return Judgement(status, reason + rest, elements, errors, compared)

    if not errors.same_function:
        explained = (
            f"{with_unit(errors.function / errors.new_values)} times the rounding error of its new values"
            if errors.new_values
            else "and no new values whose rounding could explain it"
        )
        away = with_unit(errors.function)
        return told(Status.DIFFERENT, f"a different function: relative error {away} in float64, {explained}")
    if not errors.rounds_well(elements):
        beside = f"its error is {with_unit(errors.transformed)} (relative)"
        if errors.usual:
            beside += f", {with_unit(errors.ratio)} times the original's"
        if errors.lacks_float64:
            return told(Status.DIFFERENT, f"a different function, or it rounds worse: {beside}")
        return told(Status.DIFFERENT, f"it computes the same, but rounds worse: {beside}")
    if errors.is_noise:
        reason = "rounding leaves no digit of it right in either: in float64 it is next to zero"
        return told(Status.WITHIN_ROUNDING, reason)
    its, own = with_unit(errors.transformed), with_unit(errors.own)
    if versions.is_exchanged:
        its, own = own, its
    reason = f"its error is {its} (relative), the original's own {own}"
    if not errors.new_values_are_rounded_well:
        times = f"{with_unit(errors.function / errors.new_values)} times as much as rounding them once does"
        shown = "the output does not show it" if errors.ratio < SHOWN else "the output shows it"
        reason = f"its new values are rounded worse ({times}); {shown}: {reason}"
    reason += f"; a mistake of more than {with_unit(errors.hidden)} would show"
    return told(Status.WITHIN_ROUNDING, reason)


def _scatter(elements: int) -> float:
    """Return how much larger one of two equal errors of few elements may happen to be.

    Four standard deviations of the logarithm of their ratio, ``1 / sqrt(elements)`` each (Fisher's z).
    """
    return math.exp(4 / math.sqrt(max(elements, 1)))


def _effect(difference: torch.Tensor | None) -> torch.Tensor:
    """Return the change of a tensor by other decisions, where that is a number."""
    if difference is None:
        return torch.zeros((), dtype=torch.float64, device="cpu")
    effect = _wide(difference)
    return torch.where(effect.isfinite(), effect, 0.0)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return the real numbers of a tensor in float64, in one dimension."""
    tensor = dense(tensor)
    return real_numbers(tensor).detach().cpu().to(torch.float64).flatten()


def _median_magnitude(values: torch.Tensor) -> torch.Tensor:
    """Return the median magnitude of the numbers that are not zero, of a sample if there are very many."""
    sample = values[:: max(1, values.numel() // _SAMPLES)].abs()
    sample = sample[sample > 0]
    return sample.median() if sample.numel() else torch.ones((), dtype=torch.float64, device="cpu")


def _root_mean_square(values: torch.Tensor) -> float:
    return float(values.double().square().mean().sqrt()) if values.numel() else 0.0
