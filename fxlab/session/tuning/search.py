"""Forward selection of passes by their times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from torch.fx import GraphModule

from fxlab.graphs.graph_diff import graph_diff
from fxlab.models.running import Inputs
from fxlab.session.errors import TransformationError
from fxlab.session.history import Candidate, Stack, Switches
from fxlab.session.stages import Stages
from fxlab.session.tuning.candidate_groups import candidate_groups
from fxlab.session.tuning.result import Reason, Trial, Tuning
from fxlab.transformations import Transformation
from fxlab.validation import Reference, Verdict
from fxlab.validation.cost.in_turns import Spread

EVERYWHERE = "everywhere"
MOST_GROUPS = 4
"""The most groups of candidates of a pass that are tried one by one."""
MOST_REFINEMENTS = 4
"""The most exclusions that are kept, each after measuring all of them anew."""

Measure: TypeAlias = Callable[[str, Mapping[str, GraphModule]], dict[str, list[float]]]
"""Times models in turns: words for the progress, and models by name -> seconds in each round, by name."""


@dataclass(frozen=True)
class _Choice:
    """Switches that may be the next ones."""

    pass_: str
    where: str
    switches: Switches
    module: GraphModule

    @property
    def name(self) -> str:
        return f"{self.pass_} {self.where}"


class Search:
    """Looks for the fastest stack that computes the same.

    Parameters
    ----------
    original
        The lowest stage.
    limited
        Returns a pass by its name, without some candidates.
    start
        The switches to begin with, in which nothing is on that may be chosen.
    names
        The passes that may be chosen.
    inputs
        What verdicts are made on.
    measure
        Times models.
    """

    def __init__(
        self,
        original: GraphModule,
        limited: Callable[[str, tuple[Candidate, ...]], Transformation],
        start: Switches,
        names: tuple[str, ...],
        inputs: Inputs,
        measure: Measure,
    ) -> None:
        self._limited, self._names, self._measure = limited, names, measure
        self._stages = Stages(original, limited)
        self._start = self._now = start
        self._reference = Reference(self._module(start), inputs)
        self._kept: list[Trial] = []
        self._others: dict[tuple[str, str], Trial] = {}

    def run(self, *, exclusions: bool) -> tuple[Tuning, Switches]:
        """Return what was found, and the switches that are best."""
        self._reference.compare(self._module(self._start))  # raises now if nothing can be compared
        self._choose_passes()
        if exclusions:
            for _ in range(MOST_REFINEMENTS):
                if self._choose([*self._refined()], "some candidates") is None:
                    break
        return self._tuning(), self._now

    def _choose_passes(self) -> None:
        remaining = [*self._names]
        while remaining:
            choices = [choice for name in remaining if (choice := self._with(name))]
            chosen = self._choose(choices, f"{len(choices)} passes")
            if chosen is None:
                return
            # On top of this one they may pay, or find something to change; the others have had their chance.
            again = (Reason.NO_DIFFERENCE, Reason.UNCHANGED)
            given_up = {trial.pass_ for trial in self._others.values() if trial.reason not in again}
            remaining = [name for name in remaining if name != chosen.pass_ and name not in given_up]

    def _choose(self, choices: list[_Choice], words: str) -> _Choice | None:
        """Let the fastest choice that holds be the present one; return it, or ``None`` if none holds."""
        if not choices:
            return None
        faster = []
        for choice, spread in self._timed(choices, words):
            if spread.outcome == "faster":
                faster.append((spread.ratio, choice))
            else:
                self._note(choice, Reason(spread.outcome), spread)
        for _, choice in sorted(faster, key=lambda pair: pair[0]):
            # Measured once more: the best of many is there by luck as well.
            ((_, again),) = self._timed([choice], choice.name)
            if again.outcome != "faster":
                self._note(choice, Reason.NOT_AGAIN, again)
            elif self._holds(choice, again):
                self._now = choice.switches
                self._stages.keep(self._stages.built(self._now.stack()))
                return choice
        return None

    def _timed(self, choices: list[_Choice], words: str) -> list[tuple[_Choice, Spread]]:
        """Return the choices with the ratios of their times to the present stack."""
        now = "the present stack"
        models = {now: self._module(self._now)} | {choice.name: choice.module for choice in choices}
        seconds = self._measure(words, models)
        return [(choice, Spread.of(seconds[choice.name], seconds[now])) for choice in choices]

    def _holds(self, choice: _Choice, spread: Spread) -> bool:
        try:
            verdict = self._reference.verdict(choice.module)
        except ValueError as error:
            self._note(choice, Reason.NO_VERDICT, spread, details=str(error))
            return False
        if not verdict.agrees:
            self._note(choice, Reason.NOT_SAME, spread, details=verdict.reason, verdict=verdict)
            return False
        self._others.pop((choice.pass_, choice.where), None)
        self._kept.append(Trial(choice.pass_, choice.where, self._on(), Reason.FASTER, "", spread, verdict))
        return True

    def _with(self, name: str) -> _Choice | None:
        """Return the choice of a pass as a whole, or note why there is none."""
        switches = replace(self._now, on=self._now.on | {name})
        try:
            module = self._module(switches)
        except TransformationError as error:
            self._note_untimed(name, Reason.FAILED, str(error.__cause__ or error))
            return None
        if graph_diff(self._module(self._now), module).empty:
            self._note_untimed(name, Reason.UNCHANGED)
            return None
        return _Choice(name, EVERYWHERE, switches, module)

    def _refined(self) -> Iterator[_Choice]:
        """Yield choices in which a pass that is on leaves a group out, or one that is off takes one alone."""
        for name in self._names:
            is_on = name in self._now.on
            tried = self._others.get((name, EVERYWHERE))
            if not is_on and (tried is None or tried.reason not in (Reason.NO_DIFFERENCE, Reason.SLOWER)):
                continue
            switches = replace(self._now, on=self._now.on | {name})
            groups = self._groups(name, switches)
            if not 1 < len(groups) <= MOST_GROUPS:
                continue
            for place, candidates in groups.items():
                others = [c for other, found in groups.items() if other != place for c in found]
                excluded = {(name, candidate) for candidate in (candidates if is_on else others)}
                refined = replace(switches, excluded=switches.excluded | excluded)
                where = f"{'without' if is_on else 'only'} {place}"
                before = self._others.get((name, where))
                if before is not None and before.on_top_of == self._on():
                    continue
                try:
                    yield _Choice(name, where, refined, self._module(refined))
                except TransformationError as error:  # of a pass above, which needs the candidates
                    raised = Trial(name, where, self._on(), Reason.FAILED, str(error.__cause__ or error))
                    self._others[name, where] = raised

    def _groups(self, name: str, switches: Switches) -> dict[str, tuple[Candidate, ...]]:
        below = self._stages.built(switches.stack(below=name))[switches.stack(below=name)]
        pass_ = self._limited(name, switches.excluded_from(name))
        return candidate_groups(pass_, below, self._module(switches))

    def _module(self, switches: Switches) -> GraphModule:
        stack: Stack = switches.stack()
        return self._stages.built(stack)[stack]

    def _on(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._now.stack())

    def _note(
        self,
        choice: _Choice,
        reason: Reason,
        spread: Spread,
        *,
        details: str = "",
        verdict: Verdict | None = None,
    ) -> None:
        trial = Trial(choice.pass_, choice.where, self._on(), reason, details, spread, verdict)
        self._others[choice.pass_, choice.where] = trial

    def _note_untimed(self, name: str, reason: Reason, details: str = "") -> None:
        # What was measured before says more than that there is nothing left to change on top of others.
        trial = Trial(name, EVERYWHERE, self._on(), reason, details)
        self._others.setdefault((name, EVERYWHERE), trial)

    def _tuning(self) -> Tuning:
        trials = (*self._kept, *self._others.values())
        if not self._kept:
            return Tuning(trials, 1.0, 1.0, 1.0, None)
        names = "before", "the chosen stack"
        models = dict(zip(names, (self._module(self._start), self._module(self._now)), strict=True))
        seconds = self._measure(names[1], models)
        spread = Spread.of(seconds[names[1]], seconds[names[0]])
        return Tuning(trials, spread.ratio, spread.low, spread.high, self._kept[-1].verdict)
