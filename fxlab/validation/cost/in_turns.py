"""Models timed in turns, and how far the ratios of their times spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import Module

from fxlab.interrupts import RestoringStack
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
    models: Mapping[str, Module],
    inputs: Inputs,
    rounds: int,
    min_seconds: float,
) -> dict[str, list[float]]:
    """Return the seconds that one call of each model took in each round, in which each has its turn.

    ``models``: the models by name. The first says how often each is called in a round. Raises ValueError if
    one of them does not run on these inputs.
    """
    first = next(iter(models))
    with RestoringStack(gradients_for(models[first]), generators_kept()):
        try:
            timed = {name: _Timed(model, inputs) for name, model in models.items()}
            for model in timed.values():
                model.seconds(1)
            once = timed[first].seconds(1)
        except Exception as error:  # whatever a model raises for inputs that it does not take
            raise ValueError(f"inputs: a model does not run on these: {error}") from error
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

    def __init__(self, model: Module, inputs: Inputs) -> None:
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
        threads = torch.get_num_threads()
        timer = Timer("model(*args, **kwargs)", globals=variables, num_threads=threads)
        seed_generators(0)
        with state_kept(self._model, watch=False, parameters=self._written):
            return float(timer.timeit(calls).mean)
