"""Judges the runs of two models on one input, tensor by tensor: verdict, compare and evaluate ask it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from fxlab.base.exchanged import cached_property
from fxlab.base.first_use import pd
from fxlab.base.words import listed
from fxlab.models.graph_modules.generated_code import is_written_otherwise
from fxlab.models.parallel.ranks import ranks_together
from fxlab.models.running.attention import states_of_generators
from fxlab.models.running.call_record import ALIASED_LATER
from fxlab.models.running.running import needs_gradients
from fxlab.models.state.settings import NumericSettings
from fxlab.validation.outputs.call_differences import (
    RANDOM_NUMBERS,
    aliasing_notes,
    gradient_notes,
    other_parts,
    shared_otherwise,
    stride_notes,
)
from fxlab.validation.outputs.compare_outputs import compared, compared_rows
from fxlab.validation.outputs.computed_tensors import GRADIENT, is_output, is_written
from fxlab.validation.verdicts.decisions import may_decide
from fxlab.validation.verdicts.float64_run import DrawsRandomNumbersError
from fxlab.validation.verdicts.gradients import parameters_apart, trained_in_one, trained_parameters
from fxlab.validation.verdicts.judgement import (
    OTHER_CHOICES,
    Judgement,
    Status,
    Versions,
    judged,
    judged_by_bits,
    with_difference,
)
from fxlab.validation.verdicts.new_values import TRIES, NewValues, VectorsGone, moved
from fxlab.validation.verdicts.random_numbers import random_numbers
from fxlab.validation.verdicts.result import Verdict, summary
from fxlab.validation.verdicts.runs import Runs
from fxlab.values.tensors import dense, has_float64, is_floating

_WIDE = torch.float64, torch.complex128
_Tries: TypeAlias = Sequence[dict[str, torch.Tensor]]
"""The outputs of a few runs with random changes."""


class NothingReturnedError(ValueError):
    """Neither model returns or writes a tensor, so that there is nothing in which they could differ."""


class RunsCompared:
    """An original and another model, each with its runs on the same inputs."""

    def __init__(self, original: Runs, transformed: Runs) -> None:
        self._random_numbers = random_numbers(original, transformed)
        if self._random_numbers.given is not None:
            transformed = transformed.given(self._random_numbers.given)
            if original.draws.has_seeds:  # by which it has drawn others than its float64 run is given
                original = original.given(self._random_numbers.given)
        elif self._random_numbers.replayed is not None:
            transformed.replay(self._random_numbers.replayed)
        self._original, self._transformed = original, transformed
        ours, theirs = original.observed, transformed.observed
        if not ours.everything and not theirs.everything:
            raise NothingReturnedError("original: it returns no tensors, so there is nothing to compare.")
        self._expected, self._outputs = ours.beside(theirs), theirs.beside(ours)
        self._without_gradients: tuple[str, ...] = ()
        if original.has_gradients:
            self._without_gradients = self._apart()
            apart = {GRADIENT + name for name in self._without_gradients}
            self._expected |= {path: g for path, g in original.gradients.items() if path not in apart}
            self._outputs |= transformed.gradients

    @property
    def outputs(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """The outputs of both models by path, without gradients and tensors written in place."""
        ours, theirs = self._original.observed, self._transformed.observed
        return ours.returned, theirs.returned

    @property
    def runs(self) -> tuple[Runs, Runs]:
        """The runs of both, with their random numbers."""
        return self._original, self._transformed

    @property
    def settings(self) -> NumericSettings:
        """The settings of torch under which both were run."""
        return self._original.settings

    @property
    def table(self) -> "pd.DataFrame":
        """The distances of the outputs, as :func:`compare_outputs` tells them."""
        return compared(self._expected, self._outputs)

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows of :attr:`table`."""
        return compared_rows(self._expected, self._outputs)

    def verdict(self) -> Verdict:
        """Judge every output, with as few runs as possible."""
        with ranks_together(self._original.graph_module, self._transformed.graph_module):
            return self._verdict()

    def _verdict(self) -> Verdict:
        if why := self._random_numbers.why_not_judged:
            tensors = {path: self._expected.get(path, self._outputs.get(path)) for path in self._paths}
            sizes = {path: 0 if tensor is None else tensor.numel() for path, tensor in tensors.items()}
            judged = {path: Judgement(Status.NOTHING_COMPARED, why, size) for path, size in sizes.items()}
            return Verdict(Status.NOTHING_COMPARED, why, None, judged)
        found = self._judged_by_bits
        unsettled = [path for path in self._paths if path not in found]
        if not unsettled:
            return self._summary(found)
        in_own_dtype = list(self._original.in_own_dtype)
        try:
            in_own_dtype += self._transformed.in_own_dtype
            judged_now = self._with_code(self._judged(unsettled))
        except DrawsRandomNumbersError as error:
            reason = f"node {error.node!r} draws random numbers, which the original does not"
            if self._original.observed.record.draws:
                reason = str(error)
            judged_now = {path: self._different(path, reason) for path in unsettled}
        verdict = self._summary(found | judged_now, tuple(dict.fromkeys(in_own_dtype)))
        # Without float64 errors nothing was excused, and there may be no float64 run to ask.
        if all(j.errors is None for j in judged_now.values()) or not self._unknown_decisions:
            return verdict
        return replace(verdict, reason=verdict.reason + _excused(self._unknown_decisions))

    def _with_code(self, judged: dict[str, Judgement]) -> dict[str, Judgement]:
        """Return the judgements, of graphs whose code computes something else than their nodes another one.

        The float64 run is one of the nodes. That is asked where an error is too large to be one of rounding.
        """
        large = [path for path, judgement in judged.items() if is_output(path) and _is_large(judgement)]
        for name, runs in zip(("original", "transformed"), self.runs, strict=True) if large else ():
            if runs.code_differs:
                nodes = [n.name for n in runs.graph_module.graph.nodes if is_written_otherwise(n)]
                why = (
                    f": torch writes {listed(nodes)} otherwise" if nodes else "; graph_module.recompile() it"
                )
                reason = f"the code of the {name} computes something else than its nodes{why}"
                return judged | {path: self._different(path, reason) for path in large}
        return judged

    def known_verdict(self) -> Verdict | None:
        """Return the verdict if it takes no float64 run."""
        if self._random_numbers.why_not_judged:
            return self._verdict()
        found = self._judged_by_bits
        is_known = len(found) == len(self._paths)
        is_known |= any(judgement.status is Status.DIFFERENT for judgement in found.values())
        return self._summary(found) if is_known else None

    def _apart(self) -> tuple[str, ...]:
        """Return the trained parameters whose gradients have no counterpart.

        The other model may hold them and not train them, or have nothing that trains in their place: then
        their gradients are missing.
        """
        ours, theirs = self._original.graph_module, self._transformed.graph_module
        apart = parameters_apart(ours, theirs)
        missing = trained_in_one(ours, theirs).keys() | trained_in_one(theirs, ours).keys()
        if not any(name in apart for name in trained_parameters(theirs)):
            missing |= {*apart}
        asked = self._transformed.asked_for
        known = missing | asked.keys() | {*asked.values()}
        return tuple(name for name in apart if name not in known)

    @cached_property
    def _paths(self) -> list[str]:
        paths = dict.fromkeys([*self._expected, *self._outputs])
        return sorted(paths, key=lambda path: (not is_output(path), not is_written(path)))

    @cached_property
    def _judged_by_bits(self) -> dict[str, Judgement]:
        ours, theirs = self._expected, self._outputs
        states = states_of_generators(self._original.graph_module)
        found = {path: _judged_by_bits(path, ours.get(path), theirs.get(path)) for path in self._paths}
        for path in states & {*found}:
            found[path] = Judgement(Status.NOTHING_COMPARED, "the state of a kernel's generator", 1)
        known = {path: judgement for path, judgement in found.items() if judgement is not None}
        for path, reason in self._other_calls():
            judgement = known.get(path)
            if judgement is None or judgement.status is not Status.DIFFERENT:
                tensor = ours.get(path)
                elements = 0 if tensor is None else tensor.numel()
                compared = elements if judgement is None else judgement.compared
                known[path] = Judgement(Status.DIFFERENT, reason, elements, compared=compared)
        return known

    def _other_calls(self) -> Iterator[tuple[str, str]]:
        """Yield the rows in which the two calls differ in more than numbers, and the reasons."""
        ours, theirs = self._original.observed.record, self._transformed.observed.record
        for output, reason in shared_otherwise(ours, theirs, self._held_by_both, self._aliased_later):
            yield output.path, reason
        yield from other_parts(ours, theirs)
        flow = self._original.gradients_flow_from ^ self._transformed.gradients_flow_from
        for path in sorted(flow if self._take_gradients_alike else ()):
            if path in ours.layouts and path in theirs.layouts:
                is_cut = path in self._original.gradients_flow_from
                does, others = ("no gradients flow", "do") if is_cut else ("gradients flow", "do not")
                yield path, f"{does} from it; the original's {others}"
        if reason := self._random_numbers.reason:
            yield RANDOM_NUMBERS, reason

    @property
    def _held_by_both(self) -> set[str]:
        ours, theirs = (set(runs.names.state.values()) for runs in self.runs)
        return ours & theirs

    @property
    def _aliased_later(self) -> set[str]:
        """The outputs that one of the two models has as views of inputs only after its graph has run."""
        return {path for runs in self.runs for path in runs.graph_module.meta.get(ALIASED_LATER, ())}

    @property
    def _flow(self) -> list[dict[str, bool]]:
        """The outputs of each model of which it is known whether gradients would flow from them."""
        floating = {path for path, tensor in self._expected.items() if is_floating(tensor)}
        both = self._original.gradients_would_flow, self._transformed.gradients_would_flow
        return [{path: flows for path, flows in one.items() if path in floating} for one in both]

    @property
    def _elsewhere(self) -> str:
        """Say where the float64 runs were, if not where the models are."""
        devices = {tensor.device for tensor in self._expected.values() if not has_float64(tensor.device)}
        names = ", ".join(sorted({device.type for device in devices}))
        return f"; judged on the CPU, as {names} has no float64" if names else ""

    @cached_property
    def _take_gradients_alike(self) -> bool:
        """Whether both take derivatives themselves, or neither: from results of one no gradients flow."""
        ours, theirs = self._original.graph_module, self._transformed.graph_module
        return needs_gradients(ours) == needs_gradients(theirs)

    @property
    def _unknown_decisions(self) -> dict[str, str]:
        """Nodes that choose otherwise than in float64, where no float64 run can choose so, and why."""
        return self._original.unknown_decisions | self._transformed.unknown_decisions

    def _different(self, path: str, reason: str) -> Judgement:
        return Judgement(Status.DIFFERENT, reason, self._expected[path].numel())

    def _summary(self, judgements: dict[str, Judgement], in_own_dtype: tuple[str, ...] = ()) -> Verdict:
        measured = {
            path: with_difference(judgements[path], self._expected.get(path), self._outputs.get(path))
            for path in self._paths
            if path in judgements
        }
        judgements = measured | {path: each for path, each in judgements.items() if path not in measured}
        records = self._original.observed.record, self._transformed.observed.record
        notes = *stride_notes(*records), *aliasing_notes(*records, self._held_by_both, self._aliased_later)
        if self._take_gradients_alike and not self._original.has_gradients:
            notes += tuple(gradient_notes(*self._flow))
        notes += (self._random_numbers.note,) if self._random_numbers.note else ()
        found = summary(judgements, in_own_dtype)
        words = "".join(f"; note: {note}" for note in notes)
        if any(judgement.errors is not None for judgement in judgements.values()):
            words += self._elsewhere
        if unusual := self.settings.unusual:
            words += f"; run with {', '.join(unusual)}"
        settings = dict(self.settings.values)
        found = replace(found, reason=found.reason + words, notes=notes, settings=settings)
        if not self._original.has_gradients:
            return found
        apart, are_there = self._without_gradients, any(path.startswith(GRADIENT) for path in found.outputs)
        note = "" if are_there else "; there are no gradients to compare"
        if apart:
            only = f"the gradients of {len(apart)} parameters that only one has"
            note += f"; not compared: {only} ({listed(apart)})"
        return replace(found, reason=found.reason + note, without_gradients=apart)

    def _judged(self, paths: list[str]) -> dict[str, Judgement]:
        original, transformed = self._original, self._transformed
        expected, outputs = (
            {path: dense(tensors[path]) for path in paths} for tensors in (self._expected, self._outputs)
        )
        if not may_decide(transformed.decides_otherwise, original.decides_otherwise):
            reason = (
                f"it rounds worse: {transformed.decides_otherwise} of its comparisons and choices are others "
                f"than in float64, {original.decides_otherwise} of the original's"
            )
            return {path: self._different(path, reason) for path in paths}

        # A tensor that only one of the two writes has no float64 value of the other: its own stands in.
        def judge(new: _Tries = (), replaced: _Tries = ()) -> dict[str, Judgement]:
            versions = {
                path: Versions(
                    expected[path],
                    outputs[path],
                    original.exact.get(path, expected[path]),
                    transformed.exact.get(path, outputs[path]),
                    [run.get(path, outputs[path]) for run in new],
                    [run.get(path, expected[path]) for run in replaced],
                    [[moves[path] for moves in tries if path in moves] for tries in self._moved],
                    original.moved_by_decisions.get(path),
                    transformed.moved_by_decisions.get(path),
                    bool(self._unknown_decisions),
                    lacks_float64=not self._are_rounded_alike,
                )
                for path in paths
            }
            if original.in_own_dtype and not transformed.in_own_dtype:
                versions = {path: each.exchanged() for path, each in versions.items()}
            return {path: judged(each) for path, each in versions.items()}

        result = judge()
        if _all_same_function(result):
            return result
        result = judge(new := self._rounded_anew())
        return result if _all_same_function(result) else judge(new, self._replaced_anew())

    def _rounded_anew(self) -> _Tries:
        """Return the transformed model's results in float64 with its new values rounded once more."""
        new = NewValues(self._original.graph_module, self._transformed.graph_module)
        return _tries(self._transformed, new.rounded_anew) if new else ()

    def _replaced_anew(self) -> _Tries:
        """Return the original's results in float64 with the vectors behind new values rounded once more."""
        gone = VectorsGone(self._original.graph_module, self._transformed.graph_module)
        return _tries(self._original, gone.rounded_anew) if gone else ()

    @property
    def _is_one_generated(self) -> bool:
        return self._original.is_generated or self._transformed.is_generated

    @property
    def _are_rounded_alike(self) -> bool:
        """Whether both compute the same nodes in their own dtypes, if any."""
        return not self._is_one_generated and (
            self._original.targets_in_own_dtype == self._transformed.targets_in_own_dtype
        )

    @cached_property
    def _moved(self) -> list[_Tries]:
        """The distances by which float64 runs move if all numbers that are not exact are rounded again.

        These are all numbers of models whose outputs are in float64, as no wider dtype shows the effect of
        their rounding, and results of nodes that have no float64, unless both models compute the same ones in
        the same way. A few runs of each model that has such numbers. Of two models that are compiled, the
        rounding of the original without its compiler is how far rounding moves it.
        """
        original, transformed = self._original, self._transformed
        if original.is_generated and transformed.is_generated:
            return [[original.own_rounding_without_compiling]]
        if self._is_one_generated:
            return []
        is_wide = any(tensor.dtype in _WIDE for tensor in self._expected.values())
        alike = self._are_rounded_alike
        if alike and not is_wide:
            return []
        return [_moves(runs, is_wide) for runs in ([original] if alike else [original, transformed])]


def _moves(runs: Runs, is_wide: bool) -> _Tries:
    generator = torch.Generator().manual_seed(0)
    tries = range(TRIES if is_wide else 1)
    return [runs.exact_moved(lambda tensor: moved(tensor, generator), everywhere=is_wide) for _ in tries]


def _tries(runs: Runs, change: Callable[[torch.Tensor, torch.Generator], torch.Tensor]) -> _Tries:
    generator = torch.Generator().manual_seed(0)
    return [runs.exact_with(lambda tensor: change(tensor, generator)) for _ in range(TRIES)]


def _is_large(judgement: Judgement) -> bool:
    """Tell whether the error of one of the two is larger than rounding explains: half of all digits."""
    errors = judgement.errors
    return errors is not None and max(errors.own, errors.transformed) > math.sqrt(errors.last_rounding)


def _all_same_function(judgements: dict[str, Judgement]) -> bool:
    return all(j.errors is None or j.errors.same_function for j in judgements.values())


def _judged_by_bits(path: str, ours: torch.Tensor | None, theirs: torch.Tensor | None) -> Judgement | None:
    judgement = judged_by_bits(ours, theirs)
    if judgement is None or is_output(path) or (ours is not None and theirs is not None):
        return judgement
    which = "transformed" if ours is None else "original"
    does = "writes it" if is_written(path) else "has a gradient here"
    return replace(judgement, reason=f"only the {which} {does}")


def _excused(nodes: dict[str, str]) -> str:
    """Say which choices float64 runs could not take, and that some errors are not judged for that."""
    node, why = next(iter(nodes.items()))
    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    return (
        f"; not judged: the largest {OTHER_CHOICES:.0%} of the errors, since node {node}{more} chooses "
        f"otherwise than in float64, where its choices could not be taken ({why})"
    )
