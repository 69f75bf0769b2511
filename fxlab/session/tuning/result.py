"""The decisions of tuning, and the reasons."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxlab.validation import Verdict
from fxlab.validation.cost.in_turns import Spread

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("pass", "where", "kept", "on_top_of", "ratio", "ratio_low", "ratio_high", "verdict", "reason")


class Reason(enum.StrEnum):
    """Why a trial is kept or not."""

    FASTER = "faster"
    NOT_AGAIN = "faster at first, but not when measured again"
    NO_DIFFERENCE = "no clear difference"
    SLOWER = "slower"
    UNCHANGED = "changes nothing"
    FAILED = "the pass raises"
    NOT_SAME = "faster, but not the same model"
    NO_VERDICT = "faster, but there is no verdict"


@dataclass(frozen=True)
class Trial:
    """One pass, or a part of its candidates, that was tried on top of others."""

    pass_: str
    """The name of the pass."""
    where: str
    """``everywhere``; or ``only`` or ``without`` the candidates of some modules, in which ``*`` stands for
    the numbers of layers."""
    on_top_of: tuple[str, ...]
    """The passes that were on when it was tried."""
    reason: Reason
    details: str = ""
    """What the pass has raised, or why the verdict is what it is."""
    spread: Spread | None = None
    """Its times over those of the model with the passes ``on_top_of``; ``None`` if it was not timed."""
    verdict: Verdict | None = None
    """That of the whole stack with it; ``None`` if it is not faster."""

    @property
    def kept(self) -> bool:
        """Whether it is part of the chosen stack."""
        return self.reason is Reason.FASTER


@dataclass(frozen=True)
class Tuning:
    """The result of :func:`fxlab.tune`. ``str()`` of it is one line for people."""

    trials: tuple[Trial, ...]
    """All that was tried: what is kept, in the order in which it was chosen, and then the others."""
    ratio: float
    """Median of the times of the chosen stack over those of the model before: below one is faster."""
    ratio_low: float
    """Nine of ten rounds are above."""
    ratio_high: float
    """Nine of ten rounds are below."""
    verdict: Verdict | None
    """Whether the chosen stack computes what the model before does; ``None`` if nothing was kept."""

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the passes that are kept, in the order in which they were chosen."""
        return tuple(dict.fromkeys(trial.pass_ for trial in self.trials if trial.kept))

    def table(self) -> pd.DataFrame:
        """Return a row for each trial.

        Returns
        -------
        pandas.DataFrame
            ``pass``; ``where`` (``everywhere``, or which of its candidates); ``kept``; ``on_top_of`` (the
            passes that were on); ``ratio`` with ``ratio_low`` and ``ratio_high`` (as of
            :func:`fxlab.benchmark`, over the model with the passes ``on_top_of``; missing if it was not
            timed); ``verdict`` (of the whole stack; empty if it is not faster) and ``reason``.
        """
        import pandas as pd

        return pd.DataFrame([_row(trial) for trial in self.trials], columns=list(COLUMNS))

    def __str__(self) -> str:
        if not self.kept:
            return "Nothing is kept: no pass is faster beyond noise and computes the same."
        return (
            f"{', '.join(self.kept)}: {self.ratio:.2f} of the time "
            f"({self.ratio_low:.2f} to {self.ratio_high:.2f}), "
            f"{'' if self.verdict is None else self.verdict.status}"
        )


def _row(trial: Trial) -> list[Any]:
    found = trial.spread
    spread = (None, None, None) if found is None else (found.ratio, found.low, found.high)
    return [
        trial.pass_,
        trial.where,
        trial.kept,
        ", ".join(trial.on_top_of),
        *spread,
        "" if trial.verdict is None else str(trial.verdict.status),
        f"{trial.reason}: {trial.details}" if trial.details else str(trial.reason),
    ]
