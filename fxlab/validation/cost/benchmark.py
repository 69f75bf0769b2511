"""Time a model with each combination of passes."""

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule

from fxlab.checks import described, items_of, number, positive_int
from fxlab.interrupts import RestoringStack
from fxlab.models.graph_module import changed_copy
from fxlab.models.model_state import state_kept
from fxlab.models.running import (
    Inputs,
    call_arguments,
    generators_kept,
    given_arguments,
    gradients_for,
    named_arguments,
    seed_generators,
)
from fxlab.transformations import Transformation
from fxlab.transformations.pass_names import find_name
from fxlab.validation.arguments import SessionLike, check_runs, checked_session, inputs_or_examples
from fxlab.validation.graphs.graph_diff import graph_diff
from fxlab.validation.outputs.computed_tensors import written_inputs

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("time", "ratio", "ratio_low", "ratio_high", "outcome")

MOST_PASSES = 5
"""With n passes there are 2 ** n combinations."""


MOST_CALLS = 20
"""How often a model that writes its own state, or its inputs, is called in a round at most."""


def benchmark(
    session: SessionLike,
    inputs: Inputs | None = None,
    *,
    passes: Iterable[Transformation | str] | None = None,
    rounds: int = 15,
    min_seconds: float = 0.02,
) -> "pd.DataFrame":
    """Time a model with each combination of passes against the original.

    All are timed in turns, in each round once, so that what else the machine does hits all of them, and a
    ratio is always that of two times of the same round.

    Parameters
    ----------
    session
        The model and its passes. It is not changed.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor. Left out, those of the
        session.
    passes
        The passes to combine, or their names. Left out, all of the session that change something.
    rounds
        How often each is timed.
    min_seconds
        How long a round runs the original at least; short models are called several times.

    Returns
    -------
    pandas.DataFrame
        One row for the original and for each combination, indexed by the names of its ``passes``:

        ``time``
            Median of the rounds, in seconds for one call without gradients, with as many threads as
            ``torch.get_num_threads()`` says.
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
        If ``session`` is none, or ``inputs`` nothing that a model can be called with.
    ValueError
        If a name is not that of a pass, there are too many passes to combine, or the model does not run.

    Examples
    --------
    >>> from fxlab import Session, ChangeTrueDivToMulByInverse
    >>> class Halve(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x / 2
    >>> session = Session(torch.fx.symbolic_trace(Halve()), torch.ones(8))
    >>> benchmark(session, rounds=3, min_seconds=0.001).index.tolist()
    ['original', 'change-true-div-to-mul-by-inverse']
    """
    import pandas as pd

    checked_session(session)
    positive_int(rounds, "rounds")
    number(min_seconds, "min_seconds", at_least=0)
    original = session.original
    check_runs(original, "session.original")
    inputs = inputs_or_examples(session.inputs if inputs is None else inputs, original)
    if passes is None:
        chosen = _that_change_something(original, session.passes)
    else:
        chosen = _chosen(session.passes, passes)
    models = _combinations(original, list(chosen))
    seconds = _times(models, inputs, rounds, min_seconds)
    rows = {name: _row(times, seconds["original"]) for name, times in seconds.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS)).rename_axis("passes")


def _chosen(
    offered: Sequence[Transformation], asked_for: Iterable[Transformation | str]
) -> Iterator[Transformation]:
    given = items_of(asked_for, "passes", "transformations or their names")
    for pass_ in given:
        if not isinstance(pass_, Transformation | str):
            raise TypeError(f"passes: expected transformations or their names, got {described(pass_)}.")
    names = [str(pass_.name) for pass_ in offered]
    asked = (pass_ if isinstance(pass_, str) else str(pass_.name) for pass_ in given)
    wanted = {find_name(name, names, "passes") for name in asked}
    return (pass_ for pass_ in offered if pass_.name in wanted)


def _that_change_something(
    original: GraphModule, offered: Sequence[Transformation]
) -> Iterator[Transformation]:
    """Yield the passes that change the original, or what those below them have made of it."""
    stage = original
    for pass_ in offered:
        after = _applied(pass_, stage)
        if not graph_diff(stage, after).empty:
            stage = after
            yield pass_
        elif stage is not original and not graph_diff(original, _applied(pass_, original)).empty:
            yield pass_


def _combinations(original: GraphModule, passes: Sequence[Transformation]) -> dict[str, GraphModule]:
    """Return the original, and it with each combination of passes, by the names of the passes."""
    if len(passes) > MOST_PASSES:
        raise ValueError(
            f"passes: {len(passes)} passes have {2 ** len(passes)} combinations. "
            f"Choose up to {MOST_PASSES} of {', '.join(pass_.name for pass_ in passes)}."
        )
    models: dict[tuple[str, ...], GraphModule] = {(): original}
    for size in range(1, len(passes) + 1):
        for chosen in itertools.combinations(passes, size):
            names = tuple(pass_.name for pass_ in chosen)
            models[names] = _applied(chosen[-1], models[names[:-1]])
    return {" + ".join(names) or "original": model for names, model in models.items()}


def _applied(pass_: Transformation, graph_module: GraphModule) -> GraphModule:
    return changed_copy(graph_module, pass_, writes_tensors=not pass_.copies_on_write)


def _times(
    models: dict[str, GraphModule], inputs: Inputs, rounds: int, min_seconds: float
) -> dict[str, list[float]]:
    """Return the seconds that one call of each model took in each round."""
    with RestoringStack(gradients_for(models["original"]), generators_kept()):
        try:
            timed = {name: _Timed(model, inputs) for name, model in models.items()}
            for model in timed.values():
                model.seconds(1)
            once = timed["original"].seconds(1)
        except Exception as error:  # whatever a model raises for inputs that it does not take
            raise ValueError(f"session: its model does not run on these inputs: {error}") from error
        calls = max(1, math.ceil(min_seconds / max(once, 1e-9)))
        seconds: dict[str, list[float]] = {name: [] for name in models}
        order = list(models)
        for _ in range(rounds):
            for name in order:
                seconds[name].append(timed[name].seconds(calls))
            order = [*order[1:], order[0]]
        return seconds


class _Timed:
    """A model whose calls are timed, each from the same state, on the same inputs and random numbers."""

    def __init__(self, model: GraphModule, inputs: Inputs) -> None:
        self._model, self._inputs = model, inputs
        with state_kept(model) as state:
            args, kwargs = call_arguments(inputs)
            model(*args, **kwargs)
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
        timer = Timer("model(*args, **kwargs)", globals=variables, num_threads=torch.get_num_threads())
        seed_generators(0)
        with state_kept(self._model, watch=False, parameters=self._written):
            return float(timer.timeit(calls).mean)


def _row(seconds: list[float], original: list[float]) -> list[Any]:
    ratios = sorted(ours / theirs for ours, theirs in zip(seconds, original, strict=True))
    low, high = (ratios[round(share * (len(ratios) - 1))] for share in (0.1, 0.9))
    outcome = "faster" if high < 1 else "slower" if low > 1 else "no clear difference"
    if seconds is original:
        outcome = ""
    return [statistics.median(seconds), statistics.median(ratios), low, high, outcome]
