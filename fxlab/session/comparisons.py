"""Comparisons of a session's stages with the original, each made once for as long as its stage is kept."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, TypeVar

from torch.fx import GraphModule

from fxlab.models.parallel.ranks import is_in_fake_group
from fxlab.models.running.arguments import Inputs
from fxlab.models.state.settings import NumericSettings
from fxlab.session.history import Stack
from fxlab.values.results_on_disk import check_files

if TYPE_CHECKING:
    import pandas as pd

    from fxlab.validation import Evaluation, Reference, Variants, Verdict
    from fxlab.validation.verdicts.runs_compared import RunsCompared

T = TypeVar("T")

_ON_INPUTS = ("outputs", "verdict", "verdict with gradients")
"""Kinds of results that depend on the session's inputs."""


class NothingToRunError(ValueError):
    """An original that cannot be run: it has no weights, or there are no inputs."""


class Comparisons:
    """Results about stages.

    ``original``: the model that stages are compared with. ``after_run``: called after each run, which writes
    buffers of the original and restores them.
    """

    def __init__(self, original: GraphModule, after_run: Callable[[], None]) -> None:
        self._original, self._after_run = original, after_run
        self.forget()

    def forget(self) -> None:
        """Forget all results."""
        self._results: dict[tuple[Any, ...], Any] = {}
        self._reference: Reference | None = None
        self._latest: tuple[Stack, RunsCompared] | None = None
        """The stage whose outputs were compared last, to be judged without another run."""

    def forget_inputs(self) -> None:
        """Forget results on the session's inputs."""
        self._results = {key: result for key, result in self._results.items() if key[0] not in _ON_INPUTS}
        self._reference = self._latest = None

    def keep(self, stacks: Container[Stack]) -> None:
        """Forget the results about other stacks."""
        self._results = {key: result for key, result in self._results.items() if key[1] in stacks}
        if self._latest is not None and self._latest[0] not in stacks:
            self._latest = None

    def remembered(self, kind: str, stack: Stack, make: Callable[[], T], detail: str = "") -> T:
        """Return the result of a kind about a stack; it is computed if there is none under these settings."""
        key = kind, stack, detail, NumericSettings.now()
        if key not in self._results:
            self._results[key] = make()
        result: T = self._results[key]
        return result

    def remembered_of_run(self, kind: str, stack: Stack, make: Callable[[], T]) -> T:
        """Return the result of a kind for which the stage is run, as :meth:`remembered` does."""

        def run() -> T:
            result = make()
            self._after_run()
            return result

        check_files(self._original)
        return self.remembered(kind, stack, run)

    def evaluation(self, stack: Stack) -> Evaluation | None:
        """Return the evaluation of a stage on a data set, if it is known."""
        return self._results.get(("evaluation", stack, ""))

    def note_evaluation(self, stack: Stack, found: Evaluation) -> None:
        """Keep the evaluation of a stage on a data set."""
        self._results["evaluation", stack, ""] = found
        self._after_run()

    def outputs(
        self, stack: Stack, stage: GraphModule, inputs: Inputs | None
    ) -> tuple[pd.DataFrame, Verdict | None]:
        """Return how far the outputs are apart, and the verdict if bits decide it."""
        reference = self.reference_on(inputs)

        def compare() -> tuple[pd.DataFrame, Verdict | None]:
            comparison = reference.compare(stage)
            self._latest = stack, comparison
            known = comparison.known_verdict()
            return comparison.table, known and reference.on_every_number(known, stage)

        return self.remembered_of_run("outputs", stack, compare)

    def known_verdict(self, stack: Stack, stage: GraphModule, inputs: Inputs | None) -> Verdict | None:
        """Return the verdict if there is one already, or if bits decide it."""
        known: Verdict | None = self._results.get(("verdict", stack, "", NumericSettings.now()))
        if known is None:
            known = self._verdict_on_order(stack, stage)
        return self.outputs(stack, stage, inputs)[1] if known is None else known

    def verdict(
        self, stack: Stack, stage: GraphModule, inputs: Inputs | None, variants: Variants, gradients: bool
    ) -> Verdict:
        """Return the verdict on a stage; one on other inputs as well is not remembered."""
        failure = "There is no verdict"
        if not gradients and (proved := self._verdict_on_order(stack, stage)) is not None:
            return proved
        if variants is False and not gradients:
            reference, latest = self.reference_on(inputs, failure), self._latest
            if latest is not None and (latest[0], latest[1].settings) == (stack, NumericSettings.now()):
                found, known = latest[1], self.outputs(stack, stage, inputs)[1]
                return self.remembered_of_run(
                    "verdict", stack, lambda: known or reference.on_every_number(found.verdict(), stage)
                )
            return self.remembered_of_run("verdict", stack, lambda: reference.verdict(stage))
        asked = self._new_reference(inputs, failure, variants=variants, gradients=gradients)
        if variants is not False:
            return asked.verdict(stage)
        return self.remembered_of_run("verdict with gradients", stack, lambda: asked.verdict(stage))

    def _verdict_on_order(self, stack: Stack, stage: GraphModule) -> Verdict | None:
        """Return the verdict if only the order of the stage differs from the original."""
        from fxlab.validation.verdicts.verdict import verdict_on_order

        return self.remembered("order", stack, lambda: verdict_on_order(self._original, stage))

    def reference_on(self, inputs: Inputs | None, failure: str = "Outputs cannot be compared") -> Reference:
        """Return the original on inputs, which is run once; ``failure`` begins the error if that fails."""
        if self._reference is None:
            self._reference = self._new_reference(inputs, failure)
        return self._reference

    def _new_reference(self, inputs: Inputs | None, failure: str, **choices: Any) -> Reference:
        if inputs is None:
            raise NothingToRunError(
                f"{failure}: the session has no inputs. Give them: Session(model, inputs)."
            )
        if any(parameter.is_meta for parameter in self._original.parameters()):
            raise NothingToRunError(
                f"{failure}: the model is on the meta device and has no weights. "
                "Name the folder that has them: Session(model, inputs, weights=folder)."
            )
        from fxlab.validation import Reference

        try:
            return Reference(self._original, inputs, **choices)
        except ValueError as error:
            if is_in_fake_group(self._original):
                raise NothingToRunError(f"{failure}: {error}") from None
            raise
