"""Time models, or one with each pass or each combination of passes."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule
from torch.nn import Module

from fxlab.author_frames import error_words
from fxlab.checks import duration, flag, items_of, positive_int
from fxlab.first_use import pd
from fxlab.graphs.graph_diff import graph_diff
from fxlab.interrupts import RestoringStack
from fxlab.models.graph_module import changed_copy
from fxlab.models.model_state import state_kept
from fxlab.models.running import (
    Inputs,
    call_arguments,
    called,
    generators_kept,
    given_arguments,
    gradients_for,
    named_arguments,
    seed_generators,
)
from fxlab.models.weight_files import check_in_memory
from fxlab.results import Result
from fxlab.sources import (
    SessionLike,
    checked_session,
    inputs_or_examples,
)
from fxlab.transformations import Transformation
from fxlab.units import with_unit
from fxlab.validation.arguments import check_runs, passes_of
from fxlab.validation.outputs.computed_tensors import written_inputs

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


def seconds_in_turns(
    models: Mapping[str, Module], inputs: Inputs, rounds: int, min_seconds: float, warmup: int = 1
) -> dict[str, list[float]]:
    """Return the seconds that one call of each model took in each round, in which each has its turn.

    ``models``: the models by name. The first says how often each is called in a round. ``warmup``: how often
    each is called before. Raises ValueError if one of them does not run on these inputs.
    """
    first = next(iter(models))
    with RestoringStack(gradients_for(models[first]), generators_kept()):
        try:
            timed = {name: _Timed(model, inputs) for name, model in models.items()}
            for model in timed.values():
                model.seconds(warmup)
            once = timed[first].seconds(1)
        except Exception as error:  # a model may refuse inputs with any error
            raise ValueError(f"inputs: a model does not run on these: {error}") from error
        calls = max(1, math.ceil(min_seconds / max(once, 1e-9)))
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
            called(model, args, kwargs)
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

    That is the row of all passes together, or of the last model.
    """

    _table: pd.DataFrame = field(repr=False)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each model, or combination of passes; see :func:`fxlab.benchmark`."""
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


MOST_PASSES = 5
"""With n passes there are 2 ** n combinations."""


def benchmark(
    session: SessionLike,
    *,
    passes: Iterable[Transformation | str] | None = None,
    each: bool | None = None,
    rounds: int = 15,
    warmup: int = 1,
    min_seconds: float = 0.02,
) -> Times:
    """Time a model with each combination of passes, or with each pass alone.

    All are timed in turns, in each round once, so that other load on the machine hits all of them, and a
    ratio is always that of two times of the same round.

    Parameters
    ----------
    session
        A session, whose passes are combined.
    passes
        The passes to combine, or their names. Left out, those of a session that are on, or all that change
        something if none of them is on.
    each
        Time each pass alone, and all of them together, instead of all combinations: which passes pay on this
        machine. There may be any number of passes. Left out, whether ``passes`` are left out and more than
        five.
    rounds
        How often each is timed.
    warmup
        How often each is called before.
    min_seconds
        How long a round runs the original at least; short models are called several times.

    Returns
    -------
    Times
        The ``time``, ``speedup`` and ``outcome`` of all passes together, or of the last model. Its ``table``
        has a row for the original and for each combination, indexed by the names of its ``passes``. With
        ``each``, the last row is that of all passes, and a pass that changes nothing alone has no row:

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
        If one of the models is not a model, or it cannot be called with ``inputs``.
    ValueError
        If a name is not that of a pass, a pass fails, there are too many passes to combine, or the model does
        not run.

    Examples
    --------
    >>> import torch
    >>> from fxlab import Session, ChangeTrueDivToMulByInverse
    >>> class Halve(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x / 2
    >>> session = Session(torch.fx.symbolic_trace(Halve()), torch.ones(8))
    >>> benchmark(session, each=True, rounds=3, min_seconds=0.001).table.index.tolist()
    ['original', 'change-true-div-to-mul-by-inverse']
    """
    if each is not None:
        flag(each, "each")
    positive_int(rounds, "rounds")
    positive_int(warmup, "warmup")
    duration(min_seconds, "min_seconds")
    original = checked_session(session).original
    check_runs(original, "session.original")
    check_in_memory(original)
    inputs = inputs_or_examples(session.inputs, original)
    if passes is None:
        chosen = [*session.applied] or [*_that_change_something(original, session.passes)]
        each = len(chosen) > MOST_PASSES if each is None else each
    else:
        chosen = [*passes_of(session.passes, items_of(passes, "passes", "transformations or their names"))]
    models: Mapping[str, Module] = (_alone if each else _combinations)(original, chosen)
    seconds = seconds_in_turns(models, inputs, rounds, min_seconds, warmup)
    first = next(iter(seconds.values()))
    rows = {name: _row(times, first) for name, times in seconds.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS))
    return Times(table.rename_axis("passes"))


def _that_change_something(
    original: GraphModule, offered: Sequence[Transformation]
) -> Iterator[Transformation]:
    """Yield the passes that change the original, or the result of the passes below them."""
    stage = original
    for pass_ in offered:
        after = _applied(pass_, stage)
        if not graph_diff(stage, after).empty:
            stage = after
            yield pass_
        # A pass below may have taken its candidates: it counts if it changes the original alone.
        elif stage is not original and not graph_diff(original, _applied(pass_, original)).empty:
            yield pass_


def _combinations(original: GraphModule, passes: Sequence[Transformation]) -> dict[str, GraphModule]:
    """Return the original, and it with each combination of passes, by the names of the passes."""
    if len(passes) > MOST_PASSES:
        raise ValueError(
            f"passes: {len(passes)} passes have {2 ** len(passes)} combinations. "
            f"Choose up to {MOST_PASSES} of {', '.join(pass_.name for pass_ in passes)}, or give each=True."
        )
    models: dict[tuple[str, ...], GraphModule] = {(): original}
    for size in range(1, len(passes) + 1):
        for chosen in itertools.combinations(passes, size):
            names = tuple(pass_.name for pass_ in chosen)
            models[names] = _applied(chosen[-1], models[names[:-1]])
    return {" + ".join(names) or "original": model for names, model in models.items()}


def _alone(original: GraphModule, passes: Sequence[Transformation]) -> dict[str, GraphModule]:
    """Return the original, it with each pass that changes it, and it with all passes."""
    changed = {pass_.name: _applied(pass_, original) for pass_ in passes}
    models = {name: model for name, model in changed.items() if not graph_diff(original, model).empty}
    together = functools.reduce(lambda model, pass_: _applied(pass_, model), passes, original)
    if len(passes) > 1:
        models[" + ".join(pass_.name for pass_ in passes)] = together
    return {"original": original, **models}


def _applied(pass_: Transformation, graph_module: GraphModule) -> GraphModule:
    try:
        return changed_copy(graph_module, pass_, writes_tensors=not pass_.copies_on_write)
    except Exception as error:
        raise ValueError(
            f"passes: {pass_.name} fails: {error_words(error)}. Name those to time: passes=[...]."
        ) from error


def _row(seconds: list[float], original: list[float]) -> list[Any]:
    spread = Spread.of(seconds, original)
    outcome = "" if seconds is original else spread.outcome
    return [statistics.median(seconds), 1 / spread.ratio, spread.ratio, spread.low, spread.high, outcome]
