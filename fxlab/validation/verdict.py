"""Whether a transformed model is the same, the same up to rounding, or another one."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule

from fxlab.running import Inputs
from fxlab.tensors import tensors_by_path
from fxlab.validation.arguments import inputs_or_examples, runnable_graph
from fxlab.validation.float64_run import Float64Mode, Widen, run_in_float64
from fxlab.validation.judgement import Judgement, Status, Versions, judged, judged_by_bits
from fxlab.validation.module_tensors import tensors_of
from fxlab.validation.new_values import TRIES, NewValues, moved
from fxlab.validation.outputs import outputs_of

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
    "reason",
)


@dataclass(frozen=True)
class Verdict:
    """What :func:`verdict` found. ``str()`` of it is one line for people."""

    status: Status
    """``same bits``, ``within the model's own rounding`` or ``different``; a :class:`str`."""
    reason: str
    """Why, in words, with the numbers of the output that decided."""
    ratio: float | None
    """The largest ratio of the transformed model's error to the original's, where it took a float64 run."""
    outputs: "dict[str, Judgement]"
    """What was found of each output, by its path."""

    @property
    def agrees(self) -> bool:
        """Whether the two models are the same, up to rounding."""
        return self.status is not Status.DIFFERENT

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


def verdict(original: GraphModule, transformed: GraphModule, inputs: Inputs | None = None) -> Verdict:
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
    return Reference(original, inputs).verdict(transformed)


class Reference:
    """A model that others are judged against. What it computes is computed once.

    Parameters
    ----------
    original
        The model.
    inputs
        As for :func:`verdict`.
    """

    def __init__(self, original: GraphModule, inputs: Inputs | None = None) -> None:
        self.original = runnable_graph(original, "original")
        self.inputs = inputs_or_examples(inputs, original)
        self._mode = Float64Mode()

    def verdict(self, transformed: GraphModule) -> Verdict:
        """Judge another model, as :func:`verdict` does."""
        return _Comparison(self, runnable_graph(transformed, "transformed")).verdict()

    @cached_property
    def outputs(self) -> dict[str, torch.Tensor]:
        """What it computes."""
        return outputs_of(self.original, "original", self.inputs)

    @cached_property
    def exact(self) -> dict[str, torch.Tensor]:
        """What it computes in float64."""
        return _exact(self.original, "original", self.inputs, mode=self._mode)

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

        return _exact(self.original, "original", self.inputs, widen)


class _Comparison:
    def __init__(self, reference: Reference, transformed: GraphModule) -> None:
        self._reference, self._transformed = reference, transformed
        expected = reference.outputs
        self._outputs = outputs_of(transformed, "transformed", reference.inputs)
        if not expected and not self._outputs:
            raise ValueError("original: it returns no tensors, so there is nothing to compare.")

    def verdict(self) -> Verdict:
        """Judge every output, with as few runs as it takes."""
        ours, theirs = self._reference.outputs, self._outputs
        paths = list(dict.fromkeys([*ours, *theirs]))
        found = {path: judged_by_bits(ours.get(path), theirs.get(path)) for path in paths}
        unsettled = [path for path, judgement in found.items() if judgement is None]
        result = {path: judgement for path, judgement in found.items() if judgement is not None}
        result.update(self._judged(unsettled) if unsettled else {})
        return _summary({path: result[path] for path in paths})

    def _judged(self, paths: list[str]) -> dict[str, Judgement]:
        reference = self._reference
        expected, exact = reference.exact, self._exact()

        def judge(rounded_anew: list[dict[str, torch.Tensor]]) -> dict[str, Judgement]:
            return {
                path: judged(
                    Versions(
                        reference.outputs[path],
                        self._outputs[path],
                        expected[path],
                        exact[path],
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
        return _exact(self._transformed, "transformed", self._reference.inputs, widen)


def _exact(
    module: GraphModule,
    name: str,
    inputs: Inputs,
    widen: Widen | None = None,
    mode: Float64Mode | None = None,
) -> dict[str, torch.Tensor]:
    try:
        return tensors_by_path(run_in_float64(module, inputs, widen=widen, mode=mode))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _summary(outputs: dict[str, Judgement]) -> Verdict:
    order = list(Status)
    status = max((judgement.status for judgement in outputs.values()), key=order.index)
    decisive = {path: judgement for path, judgement in outputs.items() if judgement.status is status}
    ratios = {path: j.errors.ratio for path, j in outputs.items() if j.errors and j.errors.usual}
    ratio = max(ratios.values(), default=None)
    if status is Status.SAME_BITS:
        which = f"{len(outputs)} outputs" if len(outputs) > 1 else "the output"
        return Verdict(status, f"every bit of {which} is the same", None, outputs)
    worst = max(decisive, key=lambda path: ratios.get(path, float("inf")))
    others = f" ({len(decisive) - 1} more of {len(outputs)} outputs likewise)" if len(decisive) > 1 else ""
    return Verdict(status, f"{worst}: {decisive[worst].reason}{others}", ratio, outputs)


def _row(judgement: Judgement) -> list[Any]:
    errors = judgement.errors
    measured = (
        [None] * 5
        if errors is None
        else [errors.ratio, errors.own, errors.transformed, errors.function, errors.new_values]
    )
    return [str(judgement.status), *measured, judgement.elements, judgement.reason]
