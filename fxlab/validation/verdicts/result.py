"""Verdicts: the answer to whether two models compute the same, and how judgements of outputs become one."""

import math
from dataclasses import dataclass, field
from typing import Any

from fxlab.base.first_use import pd
from fxlab.base.results import Judged
from fxlab.base.words import listed
from fxlab.validation.outputs.call_differences import is_fact
from fxlab.validation.outputs.computed_tensors import is_output, is_written
from fxlab.validation.verdicts.judgement import Judgement, Status, left_aside

COLUMNS = (
    "status", "ratio", "own_error", "transformed_error", "function_error", "new_values_error", "hidden",
    "elements", "compared", "max_abs_diff", "reason",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Verdict(Judged):
    """The result of :func:`verdict`. ``str()`` gives one line for people."""

    status: Status
    """``same bits``, ``within the model's own rounding``, ``nothing compared`` or ``different``; a
    :class:`str`."""
    reason: str
    """Why, in words, with the numbers of the output that decided."""
    ratio: float | None
    """The largest ratio of the transformed model's error to the original's, where it took a float64 run."""
    outputs: "dict[str, Judgement]"
    """The findings about each output, by its path, each tensor written in place, and gradients."""
    without_gradients: tuple[str, ...] = ()
    """The parameters whose gradients were asked for and not compared, as only one of the two has them."""
    in_own_dtype: tuple[str, ...] = ()
    """The nodes of either model that have no float64, so that they ran in their own dtypes in its place."""
    decided_by: str = "as given"
    """The name of the inputs that decided, the worst of all."""
    by_inputs: "dict[str, Verdict]" = field(default_factory=dict)
    """The findings on each of several inputs, by name."""
    not_compared: dict[str, str] = field(default_factory=dict)
    """Inputs that the original refuses, or on which nothing can be compared, and why."""
    notes: tuple[str, ...] = ()
    """Differences that decide nothing, such as other strides of an output; in ``reason`` too."""
    settings: dict[str, str] = field(default_factory=dict)
    """The settings of torch that both were run under, of those that change numbers."""

    @property
    def agrees(self) -> bool:
        """Whether the two models are the same, up to rounding; not if nothing could be compared."""
        return self.status in (Status.SAME_BITS, Status.WITHIN_ROUNDING)

    @property
    def same_bits(self) -> bool:
        """Whether every bit that was compared is the same."""
        return self.status is Status.SAME_BITS

    @property
    def different(self) -> bool:
        """Whether they were compared, and are not the same up to rounding."""
        return self.status is Status.DIFFERENT

    @property
    def hidden(self) -> float | None:
        """The largest mistake that could still hide in an output whose bits are not all the same.

        Relative, as the errors in :attr:`table`; ``None`` if there is no such output, or no agreement.
        """
        known = [j.hidden for j in self.outputs.values() if j.hidden is not None]
        return max(known, default=None) if self.agrees else None

    @property
    def compared(self) -> int:
        """The number of elements that were compared, which are finite numbers in both models."""
        return sum(judgement.compared for path, judgement in self.outputs.items() if is_output(path))

    @property
    def max_abs_diff(self) -> float:
        """The largest absolute difference of an element, over all tensors compared on any inputs.

        Infinite where one of the two has no such number; NaN if nothing was compared. It decides nothing: the
        verdict says whether it matters.
        """
        found = [judgement.max_abs_diff for judgement in self.outputs.values()]
        found += [each.max_abs_diff for each in self.by_inputs.values()]
        if self.status is Status.DIFFERENT and not found:
            return math.inf
        known = [each for each in found if not math.isnan(each)]
        return max(known, default=0.0 if self.same_bits else math.nan)

    @property
    def table(self) -> "pd.DataFrame":
        """A row for each output, with its ``status`` and ``reason``, and measured relative errors.

        ``own_error`` and ``transformed_error`` are those of the two models, ``ratio`` is how much larger the
        second is; ``function_error`` is how far apart the two are when both run in float64, and
        ``new_values_error`` the part of that which rounding new weights once explains. ``hidden`` is how
        large a mistake could be without being seen, where it took a float64 run to tell that there is none.
        """
        rows = {path: _row(judgement) for path, judgement in self.outputs.items()}
        return pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS)).rename_axis("output")

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON or a tracker of experiments."""
        return {
            "agrees": self.agrees,
            "status": str(self.status),
            "reason": self.reason,
            "ratio": self.ratio,
            "max_abs_diff": self.max_abs_diff if math.isfinite(self.max_abs_diff) else None,
            "compared": self.compared,
            "decided_by": self.decided_by,
            "outputs": {
                path: {"status": str(judgement.status), "reason": judgement.reason}
                for path, judgement in self.outputs.items()
            },
            "notes": list(self.notes),
            "settings": dict(self.settings),
        }

    def __str__(self) -> str:
        times = f" ({self.ratio:.2f} times it)" if self.ratio is not None and self.agrees else ""
        return f"{self.status}{times}: {self.reason}"


def summary(outputs: dict[str, Judgement], in_own_dtype: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict that judgements of outputs come to; the worst decides."""
    # Without the writes: that a counter counts right says nothing about an output that is NaN.
    asked = {path for path in outputs if is_output(path)} or set(outputs)
    nothing = {path: j for path, j in outputs.items() if j.status is Status.NOTHING_COMPARED}
    told = {path: j for path, j in outputs.items() if path not in nothing}
    status = max((j.status for j in told.values()), key=lambda status: status.rank, default=None)
    if status is not Status.DIFFERENT and asked <= nothing.keys():
        return Verdict(Status.NOTHING_COMPARED, _reasons(nothing), None, outputs)
    assert status is not None
    aside = f"; nothing to compare in {_reasons(nothing)}" if nothing else ""
    decisive = {path: judgement for path, judgement in told.items() if judgement.status is status}
    decisive = dict(sorted(decisive.items(), key=lambda item: not is_fact(item[0])))
    errors = {path: j.errors for path, j in told.items() if j.errors and j.errors.usual}
    ratios = {path: 0.0 if each.is_noise else each.ratio for path, each in errors.items()}
    ratio = max(ratios.values(), default=None)
    if status is Status.SAME_BITS:
        only = next(iter(told.values())).reason if len(told) == 1 else ""
        which = _counted(told)
        words = only.replace("every bit", f"every bit of {which}") or f"every bit of {which} is the same"
        elements, compared = (
            sum(getattr(j, name) for j in told.values()) for name in ("elements", "compared")
        )
        rest = "" if only else left_aside(elements, compared)
        return Verdict(status, words + rest + aside, None, outputs)
    worst = max(decisive, key=lambda path: ratios.get(path, float("inf")))
    tensors = [path for path in outputs if not is_fact(path)]
    noun = "outputs" if all(map(is_output, tensors)) else "tensors"
    more = [path for path in tensors if path in decisive and path != worst]
    words = f"{len(more)} of {len(tensors)} {noun} differ too"
    if not is_fact(worst):
        words = f"{len(more)} more of {len(tensors)} {noun} likewise"
    others = f" ({words})" if more else ""
    reason = f"{worst}: {decisive[worst].reason}{others}{aside}{_without_float64(in_own_dtype)}"
    return Verdict(status, reason, ratio, outputs, in_own_dtype=in_own_dtype)


def _counted(told: dict[str, Judgement]) -> str:
    """Say which tensors are the same: outputs, written tensors, gradients."""
    outputs, written = sum(map(is_output, told)), sum(map(is_written, told))
    gradients = len(told) - outputs - written
    nouns = (outputs, "output", ""), (written, "tensor", " written in place"), (gradients, "gradient", "")
    words = [
        f"{count} {noun}s{rest}" if count > 1 else f"the {noun}{rest}" for count, noun, rest in nouns if count
    ]
    return " and ".join(words)


def _reasons(judgements: dict[str, Judgement]) -> str:
    return "; ".join(f"{path}: {judgement.reason}" for path, judgement in judgements.items())


def _without_float64(nodes: tuple[str, ...]) -> str:
    """Say which nodes have no float64."""
    if not nodes:
        return ""
    has = "node has no float64 and ran in its own dtype"
    have = "nodes have no float64 and ran in their own dtypes"
    return f"; {len(nodes)} {has if len(nodes) == 1 else have} ({listed(nodes)})"


def _row(judgement: Judgement) -> list[Any]:
    errors = judgement.errors
    measured: list[Any] = [None] * 5
    if errors is not None:
        measured = [errors.ratio, errors.own, errors.transformed, errors.function, errors.new_values]
    return [
        str(judgement.status),
        *measured,
        judgement.hidden,
        judgement.elements,
        judgement.compared,
        judgement.max_abs_diff,
        judgement.reason,
    ]
