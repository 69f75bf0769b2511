"""Whether a transformed model is the same, the same up to rounding, or another one."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule

from fxlab.running import Inputs
from fxlab.tensors import tensors_by_path
from fxlab.validation.arguments import inputs_or_examples, runnable_graph
from fxlab.validation.compare_outputs import compared
from fxlab.validation.float64_run import Float64Mode, Widen, run_in_float64
from fxlab.validation.gradients import (
    gradients_in_float64,
    gradients_of,
    parameters_apart,
    shared_parameters,
)
from fxlab.validation.judgement import Judgement, Status, Versions, judged, judged_by_bits
from fxlab.validation.module_tensors import tensors_of
from fxlab.validation.new_values import TRIES, NewValues, moved
from fxlab.validation.outputs import GRADIENT, Observed, is_output, is_written, observed

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "status",
    "ratio",
    "own_error",
    "transformed_error",
    "function_error",
    "new_values_error",
    "elements",
    "compared",
    "reason",
)


@dataclass(frozen=True)
class Verdict:
    """What :func:`verdict` found. ``str()`` of it is one line for people."""

    status: Status
    """``same bits``, ``within the model's own rounding``, ``nothing compared`` or ``different``; a
    :class:`str`."""
    reason: str
    """Why, in words, with the numbers of the output that decided."""
    ratio: float | None
    """The largest ratio of the transformed model's error to the original's, where it took a float64 run."""
    outputs: "dict[str, Judgement]"
    """What was found of each output, by its path, of all that was written in place, and of gradients."""
    without_gradients: tuple[str, ...] = ()
    """The parameters whose gradients were asked for and not compared, as only one of the two has them."""

    @property
    def agrees(self) -> bool:
        """Whether the two models are the same, up to rounding; not if nothing could be compared."""
        return self.status in (Status.SAME_BITS, Status.WITHIN_ROUNDING)

    @property
    def compared(self) -> int:
        """How many elements of the outputs were compared: those that are numbers in both models."""
        return sum(judgement.compared for path, judgement in self.outputs.items() if is_output(path))

    @property
    def table(self) -> "pd.DataFrame":
        """A row for each output: its ``status`` and ``reason``, and what was measured (relative errors).

        ``own_error`` and ``transformed_error`` are those of the two models, ``ratio`` is how much larger the
        second is; ``function_error`` is how far apart the two are when both run in float64, and
        ``new_values_error`` what rounding new weights once explains of that.
        """
        import pandas as pd

        rows = {path: _row(judgement) for path, judgement in self.outputs.items()}
        return pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS)).rename_axis("output")

    def __str__(self) -> str:
        times = f" ({self.ratio:.2f} times it)" if self.ratio is not None and self.agrees else ""
        return f"{self.status}{times}: {self.reason}"


def verdict(
    original: GraphModule,
    transformed: GraphModule,
    inputs: Inputs | None = None,
    *,
    gradients: bool = False,
) -> Verdict:
    """Tell whether two graph modules compute the same, up to the rounding that the original does anyway.

    No tolerance is asked for. How much rounding is to be expected is measured: the original is run in its
    own dtypes and in float64, node by node, and what the two are apart is its own error. Then three things
    are asked of each output tensor, and the first that is not so makes it *different*:

    1. Shape, dtype, integers, booleans and the places of NaN and infinity are the same.
    2. *It is the same function.* In float64 the rounding of activations is gone (it is 1e-9 of what it is in
       float32), so that even a small mistake stands out that the rounding of a bfloat16 model drowns. What
       may remain is the rounding of weights that the transformation has computed anew, such as those of a
       folded batch norm. This is measured as well: the new values are moved by what rounding them once does
       (uniformly, within half a unit in the last place), three times, and the float64 run is repeated. The
       two may be 3 times as far apart as that, or 1/4096 of the original's own error.
    3. *It rounds about as well.* The transformed model's error is at most 4 times the original's (with the
       rounding of new values; and more where there are few elements, whose ratio scatters). This finds what
       float64 hides: a part that now runs in a lower precision.

    Errors are root mean squares over a tensor (of errors relative to an element's magnitude, or the median
    magnitude if that is larger), never single elements. The original's is at least that of rounding the
    result once, as it may happen to be exact.

    The bounds were set where correct passes and planted mistakes are farthest apart. Measured on tiny models
    in three dtypes: question 2 gives 0 to 6e-9 of the original's own error for passes that only move weights
    (and for fused attention against eager), 0.4 to 1.7 times the rounding of new values for batch norm
    folding, and 5 (bfloat16), 40 (float16) or 300,000 (float32) times it for weights that are 1% off in one
    layer. Question 3 gives 0.8 to 1.5 for equally good ways to compute the same, 2.5 for folding.

    Parameters
    ----------
    original
        The reference.
    transformed
        The module to judge. It may share tensors with the original.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor. Left out, they are made
        from the configuration of the original (see :func:`fxlab.example_inputs`).
    gradients
        Whether to compare gradients as well, of inputs and of the parameters that both have. They are judged
        as outputs are, against those of the float64 run. Parameters that a pass has made anew (merged or
        folded weights) have no counterpart: ``without_gradients`` names them.

    Returns
    -------
    Verdict
        Its ``status`` (a string), ``reason``, ``ratio``, and a ``table`` of all outputs.

    Raises
    ------
    TypeError
        If one of the two is no ``GraphModule``, or ``inputs`` nothing that a model can be called with.
    ValueError
        If one of them does not run on the inputs, draws random numbers or cannot be run in float64, has no
        weights (the meta device), or returns no tensors.

    Notes
    -----
    A model that picks by comparing (``argmax``, routing to experts) picks the same in both float64 runs
    unless the function is another one. In its own dtype it may pick otherwise now and then, so the quarter of
    the elements with the largest errors does not count in question 3; integers and booleans in its outputs
    have to be equal nevertheless. Numbers that are written into the graph count as exact.

    Examples
    --------
    >>> from torch import nn
    >>> from fxlab import FuseBatchNorm2dInConv2d
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> fused = FuseBatchNorm2dInConv2d()(torch.fx.symbolic_trace(model))
    >>> x = torch.randn(1, 3, 8, 8)
    >>> print(verdict(torch.fx.symbolic_trace(model), fused, x).status)
    within the model's own rounding
    >>> with torch.no_grad():
    ...     _ = fused.get_submodule("0").weight.mul_(1.001)
    >>> print(verdict(torch.fx.symbolic_trace(model), fused, x).status)
    different
    """
    return Reference(original, inputs, gradients=gradients).verdict(transformed)


class Reference:
    """A model that others are judged against. What it computes is computed once.

    Parameters
    ----------
    original
        The model.
    inputs, gradients
        As for :func:`verdict`.
    """

    def __init__(
        self, original: GraphModule, inputs: Inputs | None = None, *, gradients: bool = False
    ) -> None:
        self.compares_gradients = gradients
        self.original = runnable_graph(original, "original")
        self.inputs = inputs_or_examples(inputs, original)
        self._mode = Float64Mode()

    def verdict(self, transformed: GraphModule) -> Verdict:
        """Judge another model, as :func:`verdict` does."""
        return self.compare(transformed).verdict()

    def compare(self, transformed: GraphModule) -> "Comparison":
        """Run another model, to be asked how far its outputs are away and whether that matters."""
        return Comparison(self, runnable_graph(transformed, "transformed"))

    @cached_property
    def observed(self) -> Observed:
        """What it computes, and what it writes."""
        return observed(self.original, "original", self.inputs)

    @cached_property
    def exact(self) -> dict[str, torch.Tensor]:
        """What it computes in float64."""
        written = self.observed.written
        exact = _exact(self.original, "original", self.inputs, mode=self._mode, written=written)
        return exact | self._gradients_in_float64()

    @cached_property
    def gradients(self) -> dict[str, torch.Tensor]:
        """Its gradients, if they are to be compared."""
        if not self.compares_gradients:
            return {}
        return _gradients_of(self.original, "original", self.inputs, self._trained)

    @property
    def _trained(self) -> dict[str, str]:
        return {name: name for name, p in self.original.named_parameters() if p.requires_grad}

    def _gradients_in_float64(self, widen: Widen | None = None) -> dict[str, torch.Tensor]:
        if not self.compares_gradients:
            return {}
        return gradients_in_float64(self.original, self.inputs, self._trained, widen)

    @property
    def picks(self) -> bool:
        """Whether it compares floating-point numbers, which is known once :attr:`exact` is."""
        return self._mode.picks

    @cached_property
    def moved_anew(self) -> dict[str, torch.Tensor]:
        """The same with all float64 values moved by their rounding: no wider dtype tells what that does."""
        if not any(tensor.dtype == torch.float64 for tensor in tensors_of(self.original)):
            return {}
        generator = torch.Generator().manual_seed(0)

        def widen(tensor: torch.Tensor) -> torch.Tensor:
            return moved(tensor, generator) if tensor.dtype == torch.float64 else tensor.double()

        written = self.observed.written
        exact = _exact(self.original, "original", self.inputs, widen, written=written)
        return exact | self._gradients_in_float64(widen)


class Comparison:
    """Another model beside a :class:`Reference`, which :meth:`Reference.compare` makes."""

    def __init__(self, reference: Reference, transformed: GraphModule) -> None:
        self._reference, self._transformed = reference, transformed
        ours = reference.observed
        theirs = observed(transformed, "transformed", reference.inputs)
        if not ours.everything and not theirs.everything:
            raise ValueError("original: it returns no tensors, so there is nothing to compare.")
        self._expected, self._outputs = ours.beside(theirs), theirs.beside(ours)
        self._without_gradients: tuple[str, ...] = ()
        if reference.compares_gradients:
            self._shared = shared_parameters(reference.original, transformed)
            self._without_gradients = parameters_apart(reference.original, transformed)
            apart = {GRADIENT + name for name in self._without_gradients}
            self._expected |= {path: g for path, g in reference.gradients.items() if path not in apart}
            self._outputs |= _gradients_of(transformed, "transformed", reference.inputs, self._shared)

    @property
    def table(self) -> "pd.DataFrame":
        """How far the outputs are apart, as :func:`compare_outputs` tells it."""
        return compared(self._expected, self._outputs)

    def verdict(self) -> Verdict:
        """Judge every output, with as few runs as it takes."""
        result = self._judged_by_bits
        unsettled = [path for path in self._paths if path not in result]
        return self._summary(result | (self._judged(unsettled) if unsettled else {}))

    def known_verdict(self) -> Verdict | None:
        """Return the verdict if it takes no float64 run."""
        found = self._judged_by_bits
        is_known = len(found) == len(self._paths)
        is_known |= any(judgement.status is Status.DIFFERENT for judgement in found.values())
        return self._summary(found) if is_known else None

    @cached_property
    def _paths(self) -> list[str]:
        return sorted(dict.fromkeys([*self._expected, *self._outputs]), key=_place_in_table)

    @cached_property
    def _judged_by_bits(self) -> dict[str, Judgement]:
        ours, theirs = self._expected, self._outputs
        found = {path: _judged_by_bits(path, ours.get(path), theirs.get(path)) for path in self._paths}
        return {path: judgement for path, judgement in found.items() if judgement is not None}

    def _summary(self, judgements: dict[str, Judgement]) -> Verdict:
        found = _summary({path: judgements[path] for path in self._paths if path in judgements})
        if not self._reference.compares_gradients:
            return found
        apart, compared = self._without_gradients, any(path.startswith(GRADIENT) for path in found.outputs)
        note = "" if compared else "; there are no gradients to compare"
        if apart:
            names = ", ".join(apart[:3]) + (", …" if len(apart) > 3 else "")
            note += f"; not compared: the gradients of {len(apart)} parameters that only one has ({names})"
        return replace(found, reason=found.reason + note, without_gradients=apart)

    def _judged(self, paths: list[str]) -> dict[str, Judgement]:
        reference = self._reference
        expected, exact = reference.exact, self._exact()

        def judge(rounded_anew: list[dict[str, torch.Tensor]]) -> dict[str, Judgement]:
            return {
                path: judged(
                    Versions(
                        self._expected[path],
                        self._outputs[path],
                        expected.get(path, self._expected[path]),
                        exact.get(path, self._outputs[path]),
                        [outputs[path] for outputs in rounded_anew],
                        reference.moved_anew.get(path),
                        reference.picks,
                    )
                )
                for path in paths
            }

        result = judge([])
        if any(judgement.errors and not judgement.errors.same_function for judgement in result.values()):
            result = judge(self._rounded_anew())
        return result

    def _rounded_anew(self) -> list[dict[str, torch.Tensor]]:
        new = NewValues(self._reference.original, self._transformed)
        if not new:
            return []
        generator = torch.Generator().manual_seed(0)

        def widen(tensor: torch.Tensor) -> torch.Tensor:
            return new.rounded_anew(tensor, generator)

        return [self._exact(widen) for _ in range(TRIES)]

    def _exact(self, widen: Widen | None = None) -> dict[str, torch.Tensor]:
        written = [path for path in self._outputs if is_written(path)]
        inputs = self._reference.inputs
        exact = _exact(self._transformed, "transformed", inputs, widen, written=written)
        if self._reference.compares_gradients:
            exact |= gradients_in_float64(self._transformed, inputs, self._shared, widen)
        return exact


def _exact(
    module: GraphModule,
    name: str,
    inputs: Inputs,
    widen: Widen | None = None,
    mode: Float64Mode | None = None,
    written: Collection[str] = (),
) -> dict[str, torch.Tensor]:
    try:
        result = run_in_float64(module, inputs, widen=widen, mode=mode, written=written)
        output, now = result if written else (result, {})
        exact: dict[str, torch.Tensor] = tensors_by_path(output) | now
        return exact
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _summary(outputs: dict[str, Judgement]) -> Verdict:
    order = list(Status)
    # What is written stands beside the outputs: that a counter counts says nothing of an output that is NaN.
    asked = {path for path in outputs if is_output(path)} or set(outputs)
    nothing = {path: j for path, j in outputs.items() if j.status is Status.NOTHING_COMPARED}
    told = {path: j for path, j in outputs.items() if path not in nothing}
    status = max((judgement.status for judgement in told.values()), key=order.index, default=None)
    if status is not Status.DIFFERENT and asked <= nothing.keys():
        return Verdict(Status.NOTHING_COMPARED, _reasons(nothing), None, outputs)
    assert status is not None
    aside = f"; nothing to compare in {_reasons(nothing)}" if nothing else ""
    decisive = {path: judgement for path, judgement in told.items() if judgement.status is status}
    ratios = {path: j.errors.ratio for path, j in told.items() if j.errors and j.errors.usual}
    ratio = max(ratios.values(), default=None)
    if status is Status.SAME_BITS:
        only = next(iter(told.values())).reason if len(told) == 1 else ""
        which = _counted(told)
        words = only.replace("every bit", f"every bit of {which}") or f"every bit of {which} is the same"
        return Verdict(status, words + (_partly(told) if not only else "") + aside, None, outputs)
    worst = max(decisive, key=lambda path: ratios.get(path, float("inf")))
    noun = "outputs" if all(map(is_output, outputs)) else "tensors"
    others = f" ({len(decisive) - 1} more of {len(outputs)} {noun} likewise)" if len(decisive) > 1 else ""
    return Verdict(status, f"{worst}: {decisive[worst].reason}{others}{aside}", ratio, outputs)


def _counted(told: dict[str, Judgement]) -> str:
    """Say what is the same: outputs, written tensors, gradients."""
    outputs, written = sum(map(is_output, told)), sum(map(is_written, told))
    gradients = len(told) - outputs - written
    nouns = (outputs, "output", ""), (written, "tensor", " written in place"), (gradients, "gradient", "")
    words = [
        f"{count} {noun}s{rest}" if count > 1 else f"the {noun}{rest}" for count, noun, rest in nouns if count
    ]
    return " and ".join(words)


def _place_in_table(path: str) -> int:
    return 0 if is_output(path) else 1 if is_written(path) else 2


def _gradients_of(
    module: GraphModule, name: str, inputs: Inputs, parameters: dict[str, str]
) -> dict[str, torch.Tensor]:
    try:
        return gradients_of(module, inputs, parameters)
    except Exception as error:  # whatever a backward pass raises
        raise ValueError(f"{name}: its gradients cannot be computed: {error}") from error


def _judged_by_bits(path: str, ours: torch.Tensor | None, theirs: torch.Tensor | None) -> Judgement | None:
    judgement = judged_by_bits(ours, theirs)
    if is_written(path) and judgement is not None and (ours is None or theirs is None):
        which = "transformed" if ours is None else "original"
        return replace(judgement, reason=f"only the {which} writes it")
    if path.startswith(GRADIENT) and judgement is not None and (ours is None or theirs is None):
        which = "transformed" if ours is None else "original"
        return replace(judgement, reason=f"only the {which} has a gradient here")
    return judgement


def _reasons(judgements: dict[str, Judgement]) -> str:
    return "; ".join(f"{path}: {judgement.reason}" for path, judgement in judgements.items())


def _partly(told: dict[str, Judgement]) -> str:
    """Tell how many elements of outputs that agree are no numbers."""
    rest = sum(judgement.elements - judgement.compared for judgement in told.values())
    total = sum(judgement.elements for judgement in told.values())
    return f"; {rest} of {total} elements are NaN or infinite in both" if rest else ""


def _row(judgement: Judgement) -> list[Any]:
    errors = judgement.errors
    measured = (
        [None] * 5
        if errors is None
        else [errors.ratio, errors.own, errors.transformed, errors.function, errors.new_values]
    )
    return [str(judgement.status), *measured, judgement.elements, judgement.compared, judgement.reason]
