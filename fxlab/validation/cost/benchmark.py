"""``fxlab.benchmark``: times of the stages of a session."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import Module

from fxlab.base.checks import positive_int
from fxlab.base.first_use import pd
from fxlab.base.interrupts import RestoringStack
from fxlab.base.results import Result
from fxlab.base.units import with_unit
from fxlab.front_desk.sources import SessionLike, checked_session, inputs_or_examples
from fxlab.models.running.arguments import Inputs, call_arguments, given_arguments, named_arguments
from fxlab.models.running.running import call_model, generators_kept, gradients_for, seed_generators
from fxlab.models.state.model_state import state_kept
from fxlab.validation.arguments import check_runs
from fxlab.validation.outputs.computed_tensors import written_inputs

_LEAST_SECONDS = 0.02
"""The seconds that a round runs the first model at least."""
MOST_CALLS = 20
"""How often a model that writes its own state, or its inputs, is called in a round at most."""


@dataclass(frozen=True)
class Spread:
    """Ratios of two times of the same rounds."""

    ratio: float
    """The median: below one is faster."""
    low: float
    """Nine of ten rounds are above."""
    high: float
    """Nine of ten rounds are below."""

    @classmethod
    def of(cls, seconds: Sequence[float], reference: Sequence[float]) -> Spread:
        """Return the spread of the times of one model over those of another, round by round."""
        ratios = sorted(ours / theirs for ours, theirs in zip(seconds, reference, strict=True))
        low, high = (ratios[round(share * (len(ratios) - 1))] for share in (0.1, 0.9))
        return cls(statistics.median(ratios), low, high)

    @property
    def outcome(self) -> str:
        """``faster`` or ``slower`` if the spread is all on one side of one, else ``no clear difference``."""
        return "faster" if self.high < 1 else "slower" if self.low > 1 else "no clear difference"


def seconds_in_turns(models: Mapping[str, Module], inputs: Inputs, rounds: int) -> dict[str, list[float]]:
    """Return the seconds that one call of each model took in each round, in which each has its turn.

    ``models``: the models by name. The first says how often each is called in a round. Each is called once
    before. Raises ValueError if one of them does not run on these inputs.
    """
    first = next(iter(models))
    with RestoringStack(gradients_for(models[first]), generators_kept()):
        try:
            timed = {name: _Timed(model, inputs) for name, model in models.items()}
            for model in timed.values():
                model.seconds(1)
            once = timed[first].seconds(1)
        except Exception as error:  # a model may refuse inputs with any error
            raise ValueError(f"inputs: a model does not run on these: {error}") from error
        calls = max(1, math.ceil(_LEAST_SECONDS / max(once, 1e-9)))
        seconds: dict[str, list[float]] = {name: [] for name in models}
        order = list(models)
        for _ in range(rounds):
            for name in order:
                seconds[name].append(timed[name].seconds(calls))
            # The order turns, as a place in a round may favour a model.
            order = [*order[1:], order[0]]
        return seconds


class _Timed:
    """A model whose calls are timed, each from the same state, on the same inputs and random numbers."""

    def __init__(self, model: Module, inputs: Inputs) -> None:
        self._model, self._inputs = model, inputs
        with state_kept(model) as state:
            args, kwargs = call_arguments(inputs)
            call_model(model, args, kwargs)
            before = named_arguments(model, *given_arguments(inputs))
            self._written = state.copied_parameters
            self._writes = bool(
                state.written() or written_inputs(before, named_arguments(model, args, kwargs))
            )

    def seconds(self, calls: int) -> float:
        """Return the seconds of one call, the mean of some."""
        if self._writes:  # the call alone is timed, and then put back
            return statistics.mean(self._once(1) for _ in range(min(calls, MOST_CALLS)))
        return self._once(calls)

    def _once(self, calls: int) -> float:
        from torch.utils.benchmark import Timer

        args, kwargs = call_arguments(self._inputs)
        variables = {"model": self._model, "args": args, "kwargs": kwargs}
        threads = torch.get_num_threads()
        timer = Timer("model(*args, **kwargs)", globals=variables, num_threads=threads)
        seed_generators(0)
        with state_kept(self._model, watch=False, parameters=self._written):
            return float(timer.timeit(calls).mean)


@dataclass(frozen=True, repr=False)
class Times(Result):
    """The result of :func:`fxlab.benchmark`: a ``table``, and the numbers of its last row.

    That is the row of the last stage.
    """

    _table: pd.DataFrame = field(repr=False)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each stage; see :func:`fxlab.benchmark`."""
        return self._table

    @property
    def time(self) -> float:
        """The seconds of one call, the median of the rounds."""
        return float(self._table["time"].iloc[-1])

    @property
    def before(self) -> float:
        """The seconds of one call of the first."""
        return float(self._table["time"].iloc[0])

    @property
    def after(self) -> float:
        """The seconds of one call of the last: ``time``."""
        return self.time

    @property
    def speedup(self) -> float:
        """The factor by which it is faster than the first."""
        return float(self._table["speedup"].iloc[-1])

    @property
    def outcome(self) -> str:
        """``faster``, ``slower`` or ``no clear difference``; empty if there is one model alone."""
        return str(self._table["outcome"].iloc[-1])

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON or a tracker of experiments."""
        rows = self._table.reset_index().to_dict("records")
        return {"time": self.time, "speedup": self.speedup, "outcome": self.outcome, "rows": rows}

    def __str__(self) -> str:
        name, words = self._table.index[-1], f"{with_unit(self.time, 's')} a call"
        if len(self._table) == 1:
            return f"{name}: {words}"
        return f"{name}: {words}, {self.speedup:.2f} times as fast as {self._table.index[0]} ({self.outcome})"


COLUMNS = ("time", "speedup", "ratio", "ratio_low", "ratio_high", "outcome")


def benchmark(session: SessionLike, *, rounds: int = 15) -> Times:
    """Time each stage of a session: the original, and it with one pass more each time.

    All are timed in turns, in each round once, so that other load on the machine hits all of them, and a
    ratio is always that of two times of the same round.

    Parameters
    ----------
    session
        A session with inputs. Its stages are timed as they are, and not changed.
    rounds
        How often each is timed. A round takes at least 20 ms of the original: short ones are called often.

    Returns
    -------
    Times
        The ``time``, ``speedup`` and ``outcome`` of the last stage. Its ``table`` has a row for each stage,
        indexed by ``original`` and the names of the ``passes`` that are on:

        ``time``
            Median of the rounds, in seconds for one call without gradients, with as many threads as
            ``torch.get_num_threads()`` says.
        ``speedup``
            How many times as fast: ``1 / ratio``.
        ``ratio``
            Median of the ratios to the original: below one is faster.
        ``ratio_low``, ``ratio_high``
            Their spread: nine of ten rounds are above the first, nine of ten below the second.
        ``outcome``
            ``faster`` or ``slower`` if the spread is all on one side of one, else ``no clear difference``;
            empty for the original.

    Raises
    ------
    TypeError
        If ``session`` is no session, or ``rounds`` no integer.
    ValueError
        If the model does not run on the inputs, or has no weights; or ``rounds`` is not positive.

    Examples
    --------
    >>> import torch
    >>> from fxlab import Session, ChangeTrueDivToMulByInverse
    >>> class Halve(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x / 2
    >>> session = Session(Halve(), torch.ones(8), passes=[ChangeTrueDivToMulByInverse()])
    >>> _ = session.apply("change-true-div-to-mul-by-inverse")
    >>> benchmark(session, rounds=3).table.index.tolist()
    ['original', 'change-true-div-to-mul-by-inverse']
    """
    positive_int(rounds, "rounds")
    original = checked_session(session).original
    check_runs(original, "session.original")
    inputs = inputs_or_examples(session.inputs, original)
    names = ["original", *(str(pass_.name) for pass_ in session.applied)]
    seconds = seconds_in_turns(dict(zip(names, session.stages, strict=True)), inputs, rounds)
    first = seconds["original"]
    rows = {name: _row(times, first) for name, times in seconds.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS))
    return Times(table.rename_axis("passes"))


def _row(seconds: list[float], original: list[float]) -> list[Any]:
    spread = Spread.of(seconds, original)
    outcome = "" if seconds is original else spread.outcome
    return [statistics.median(seconds), 1 / spread.ratio, spread.ratio, spread.low, spread.high, outcome]
