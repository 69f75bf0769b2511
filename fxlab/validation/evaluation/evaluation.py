"""The result of ``fxlab.evaluate`` over many batches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

from fxlab.base.first_use import pd
from fxlab.base.results import Judged
from fxlab.base.units import percent, with_unit
from fxlab.base.words import counted
from fxlab.models.running.arguments import Inputs
from fxlab.validation.evaluation.judge_batch import FAILED, REFUSED, SHARE, BatchResult, Measured
from fxlab.validation.verdicts.judgement import Status
from fxlab.validation.verdicts.result import Verdict

_ORDER = {str(status): place for place, status in enumerate(Status)}
_SHOWN = 3
"""How many refused or failed batches are named."""


@dataclass(frozen=True)
class WorstBatch:
    """One of the worst batches of an evaluation, with the objects needed to inspect it."""

    number: int
    """Its place among the batches, from 0 on: it is ``batches[number]``."""
    inputs: Inputs
    """The inputs of the models: for :func:`compare_nodes`, or a session."""
    batch: Any
    """A copy of the batch as it was given, with the parts that only metrics read."""
    verdict: Verdict
    """The verdict on it alone."""
    max_abs_diff: float
    """The largest difference of an element of an output."""
    output: str
    """The output that has it, and ..."""
    index: tuple[int, ...]
    """... its place there: the first number is the element of the batch, where that is the first axis."""

    def __repr__(self) -> str:
        place = f" at {self.output}{list(self.index)}" if self.index else ""
        largest = "" if math.isnan(self.max_abs_diff) else f", {with_unit(self.max_abs_diff)}{place}"
        return f"<batch {self.number}: {self.verdict.status}{largest}>"


@dataclass(frozen=True, repr=False)
class Evaluation(Judged):
    """The result of :func:`fxlab.evaluate`. ``str()`` gives a few lines for people."""

    verdict: Verdict
    """The verdict over all batches: that on the worst, with words on the others."""
    worst: tuple[WorstBatch, ...]
    """The worst batches, the worst first: by their status, then by their error relative to the rounding."""
    rows: tuple[BatchResult, ...] = field(repr=False)
    """The results of all batches, in their order, with short verdicts; :attr:`batches` is the table of them.
    """
    total: int | None = None
    """How many batches there are, if they could be counted."""
    stopped: bool = False
    """Whether it was interrupted before the end."""

    @property
    def not_given(self) -> tuple[str, ...]:
        """The parts of the batches that the model does not take, such as labels: only metrics see them."""
        return tuple(dict.fromkeys(part for row in self.rows for part in row.left))

    @property
    def agrees(self) -> bool:
        """Whether the two models are the same, up to rounding, on all batches that were compared.

        Not if nothing was compared, and not if a batch failed for another reason than that the original's
        graph refuses it. Of an evaluation that was stopped, it holds for the batches that are done.
        """
        return self.verdict.agrees and not any(row.status == FAILED for row in self.rows)

    @property
    def max_abs_diff(self) -> float:
        """The largest difference of an element of an output, over all batches; infinite if some failed."""
        known = [math.inf if row.status == FAILED else row.max_abs_diff for row in self.rows]
        return max((each for each in (*known, self.verdict.max_abs_diff) if each == each), default=math.nan)

    @property
    def batches(self) -> "pd.DataFrame":
        """A row for each batch, by its ``number``, from 0 on.

        ``status`` is that of its verdict, or ``refused`` (by the guards of the original's graph) or
        ``failed``; then ``max_abs_diff``, the ``ratio`` of the error to the original's rounding, the
        ``output`` with the largest difference, a column for each measure, ``elements`` and ``reason``.
        """
        names = self._measures
        rows = [
            {
                "batch": row.number,
                "status": row.status,
                "max_abs_diff": row.max_abs_diff,
                "ratio": row.ratio,
                "output": row.worst_output,
                **{name: _on_one(row.measures.get(name)) for name in names},
                "elements": row.elements,
                "reason": "" if row.status == Status.SAME_BITS else row.reason,
            }
            for row in self.rows
        ]
        columns = ["batch", "status", "max_abs_diff", "ratio", "output", *names, "elements", "reason"]
        return pd.DataFrame(rows, columns=columns).set_index("batch")

    @property
    def table(self) -> "pd.DataFrame":
        """A row for each measure, with its ``value``, the ends and the kind of its interval, and ``n``.

        Intervals are at 95%: of shares after Wilson, of means (over batches, weighted by their elements)
        normal. ``n`` counts decisions or batches. Measures that are not estimates, such as the largest
        difference, have no interval.
        """
        compared = _compared(self.rows)
        same = sum(row.status == Status.SAME_BITS for row in compared)
        agreeing = sum(row.status in (Status.SAME_BITS, Status.WITHIN_ROUNDING) for row in compared)
        known = [row.max_abs_diff for row in compared if not math.isnan(row.max_abs_diff)]
        ratios = [row.ratio for row in compared if not math.isnan(row.ratio)]
        count = len(compared)
        rows = {
            "batches that agree": _share_row(agreeing, count),
            "batches with the same bits": _share_row(same, count),
            "largest difference": _plain_row(max(known, default=math.nan), len(known)),
            "largest ratio to rounding": _plain_row(max(ratios, default=math.nan), len(ratios)),
        }
        for name in self._measures:
            rows[name] = _summary([row.measures[name] for row in self.rows if name in row.measures])
        columns = ["value", "low", "high", "interval", "n"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("measure")

    @property
    def _measures(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row.measures))

    @property
    def words(self) -> str:
        """The lines of ``str()`` without measures, with refusals, failures and batches that are not done."""
        lines = [str(self.verdict)]
        if self.stopped:
            done = len(self.rows)
            of = counted(done, "batch") if self.total is None else f"{done} of {counted(self.total, 'batch')}"
            lines.append(f"partial: it was stopped after {of}")
        for status in (REFUSED, FAILED):
            numbers = [row.number for row in self.rows if row.status == status]
            if numbers:
                more = ", …" if len(numbers) > _SHOWN else ""
                named = ", ".join(map(str, numbers[:_SHOWN])) + more
                first = next(row.reason for row in self.rows if row.status == status)
                lines.append(f"{status}: {counted(len(numbers), 'batch')} ({named}): {first}")
        return "\n".join(lines)

    def __str__(self) -> str:
        lines = [self.words]
        for name, row in self.table.iterrows():
            if row["interval"] == "Wilson":
                ends = f"{percent(row['low'])} to {percent(row['high'])}"
                lines.append(f"{name}: {percent(row['value'])} of {row['n']:,} ({ends})")
            elif row["interval"]:
                ends = f"{with_unit(row['low'])} to {with_unit(row['high'])}"
                lines.append(f"{name}: {with_unit(row['value'])} ({ends})")
        if self.not_given:
            lines.append(f"not given to the model: {', '.join(self.not_given)}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict, and each measure with its interval, as plain values."""
        measures = self.table.drop(columns="interval").to_dict("index")
        return {**self.verdict.as_dict(), "agrees": self.agrees, "measures": measures, "text": str(self)}

    def __repr__(self) -> str:
        return f"<Evaluation of {counted(len(self.rows), 'batch')}: {self.verdict.status}>"


def _compared(rows: Sequence[BatchResult]) -> list[BatchResult]:
    """Return the batches on which something was compared."""
    return [row for row in rows if row.status in _ORDER and row.status != Status.NOTHING_COMPARED]


def badness(result: BatchResult) -> tuple[int, float, float, int]:
    """Return a key that sorts worse batches higher; of two that are as bad, the first is worse."""
    ratio = 0.0 if result.verdict is None or result.verdict.ratio is None else result.ratio
    largest = result.max_abs_diff
    return (
        _ORDER[result.status] if _compared([result]) else -1,
        math.inf if math.isnan(ratio) else ratio,
        math.inf if math.isnan(largest) else largest,
        -result.number,
    )


def verdict_over(worst: BatchResult | None, rows: Sequence[BatchResult]) -> Verdict:
    """Return one verdict over all batches, of the worst and of the numbers kept of the others."""
    told = _compared(rows)
    aside = {
        f"batch {row.number}": row.reason or row.status
        for row in rows
        if row.status in (REFUSED, FAILED, Status.NOTHING_COMPARED)
    }
    counts = {
        words: sum(row.status == status for row in rows)
        for status, words in (
            (REFUSED, "refused by the original's graph"),
            (FAILED, "failed"),
            (Status.NOTHING_COMPARED, "with nothing to compare"),
        )
    }
    words = "".join(f"; {counted(n, 'batch')} {what}" for what, n in counts.items() if n)
    if worst is None or worst.verdict is None or not told:
        first = next(iter(aside.values()), "there are no batches")
        reason = f"no batch could be compared{words}: {first}"
        return Verdict(Status.NOTHING_COMPARED, reason, None, {}, not_compared=aside)
    name = f"batch {worst.number}"
    is_same = worst.verdict.status is Status.SAME_BITS
    same_status = sum(row.status == worst.status for row in told)
    of = counted(len(told), "batch")
    where = f"on all of {of}" if is_same else f"on {name}, the worst of {of}"
    if worst.verdict.status is Status.DIFFERENT:
        where += f", of which {same_status} {'is' if same_status == 1 else 'are'} different"
    return replace(
        worst.verdict,
        reason=f"{worst.verdict.reason} ({where}{words})",
        decided_by=name,
        by_inputs={name: worst.verdict},
        not_compared=aside,
    )


def _on_one(measured: Measured | None) -> float:
    """Return a measure of one batch as a number: a share or a value."""
    if measured is None or not measured.count:
        return math.nan
    return measured.total / measured.count if measured.kind == SHARE else measured.total


def _summary(measured: list[Measured]) -> list[Any]:
    kind = measured[0].kind if measured else SHARE
    if kind == SHARE:
        return _share_row(sum(one.total for one in measured), sum(one.count for one in measured))
    counts = [one.count for one in measured if one.count]
    return [*normal([one.total for one in measured if one.count], counts), "normal", len(counts)]


def _share_row(successes: float, count: float) -> list[Any]:
    value = successes / count if count else math.nan
    return [value, *wilson(successes, count), "Wilson", int(count)]


def _plain_row(value: float, count: int) -> list[Any]:
    return [value, math.nan, math.nan, "", count]


_Z = NormalDist().inv_cdf(0.975)


def wilson(successes: float, count: float) -> tuple[float, float]:
    """Return the interval of a share after Wilson; of nothing counted, all of 0 to 1.

    It holds near 0 and 1 too: if all of ``n`` agree, up to ``z² / (n + z²)`` of others may not. It takes
    the decisions for independent; those of one text or image are not quite. Source: E. B. Wilson, "Probable
    inference, the law of succession, and statistical inference", JASA 22 (1927), 209-212.
    """
    if not count:
        return 0.0, 1.0
    share, spread = successes / count, _Z**2 / count
    middle = share + spread / 2
    half = _Z * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    low = (middle - half) / (1 + spread) if successes else 0.0
    return low, (middle + half) / (1 + spread) if successes < count else 1.0


def normal(values: Sequence[float], weights: Sequence[float]) -> tuple[float, float, float]:
    """Return a weighted mean and its normal interval, which is NaN for fewer than two values.

    The mean is a ratio of sums over batches, and so is its variance: W. G. Cochran, "Sampling techniques"
    (3rd edition, 1977), section 6.4.
    """
    total = math.fsum(weights)
    if not total:
        return math.nan, math.nan, math.nan
    mean = math.fsum(w * x for w, x in zip(weights, values, strict=True)) / total
    count = len(values)
    if count < 2:
        return mean, math.nan, math.nan
    squares = math.fsum((w * (x - mean)) ** 2 for w, x in zip(weights, values, strict=True))
    half = _Z * math.sqrt(squares * count / (count - 1)) / total
    return mean, mean - half, mean + half
