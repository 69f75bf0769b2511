"""Whether a transformed model is the same, the same up to rounding, or another one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.fx import GraphModule

from fxlab.running import Inputs
from fxlab.validation.arguments import runnable_graph
from fxlab.validation.decisions import may_decide
from fxlab.validation.float64_run import DrawsRandomNumbersError
from fxlab.validation.input_variants import Variants, named_inputs
from fxlab.validation.judgement import Judgement, Status, Versions, judged, judged_by_bits
from fxlab.validation.module_tensors import tensors_of
from fxlab.validation.new_values import TRIES, NewValues, VectorsGone, moved
from fxlab.validation.runs import Runs

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

_NAMED = 3
"""How many nodes are named where there are more."""


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
    in_own_dtype: tuple[str, ...] = ()
    """The nodes of either model that have no float64, so that they ran in their own dtypes in its place."""
    decided_by: str = "as given"
    """The name of the inputs that decided, the worst of all."""
    by_inputs: "dict[str, Verdict]" = field(default_factory=dict)
    """What was found on each of several inputs, by name."""
    not_compared: dict[str, str] = field(default_factory=dict)
    """Inputs that the original refuses, and why."""

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


def verdict(
    original: GraphModule,
    transformed: GraphModule,
    inputs: Inputs | Iterator[Inputs] | None = None,
    *,
    variants: Variants = False,
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
    (and for fused attention against eager), 0.4 to 2.3 times the rounding of new values for batch norms
    folded by fxlab, and 5 (bfloat16), 40 (float16) or 300,000 (float32) times it for weights that are 1% off
    in one layer. Question 3 gives 0.8 to 1.5 for equally good ways to compute the same, 2.7 for folding.

    A fold that rounds after each step (``torch.fx.experimental.optimization.fuse``) makes new values that are
    off by more than one rounding: by up to 12 times it, 112 times where large numbers cancel. So the vectors
    that such values were computed from, and which are gone, are rounded once more as well: correct folds stay
    within 2.8 times that and may be 4 times as far apart. The reason then says that the new values are
    rounded worse, and whether the output shows it.

    Parameters
    ----------
    original
        The reference.
    transformed
        The module to judge. It may share tensors with the original.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor. Left out, they are made
        from the configuration of the original (see :func:`fxlab.example_inputs`). An iterator is one over
        several inputs, and the same as ``variants``; a list holds positional arguments.
    variants
        Other inputs to compare on as well, of which the worst decides: ``True`` for those that
        :func:`input_variants` makes, a mapping of inputs by name, or a list or iterator of inputs. Those that
        the original refuses are not compared, and the answer says so.

    Returns
    -------
    Verdict
        Its ``status`` (a string), ``reason``, ``ratio``, and a ``table`` of all outputs.

    Raises
    ------
    TypeError
        If one of the two is no ``GraphModule``, or ``inputs`` nothing that a model can be called with.
    ValueError
        If one of them does not run on the inputs, or returns no tensors, or has no weights (the meta device),
        or if the original draws random numbers.

    Notes
    -----
    Where a model compares or picks (``>``, ``argmax``, routing to experts, rounding to integers), a rounding
    error may lead to another decision. Decisions of a model that are others in its own dtype than in float64
    are given to another float64 run, so that only rounding is left of its error, in all elements. They may be
    about as frequent as the original's. Integers and booleans in its outputs have to be equal nevertheless.

    Nodes that have no float64, such as grouped, quantized and 8-bit matrix products, run in their own dtypes
    in its place, on rounded values; the reason names them. Numbers that are written into the graph count as
    exact.

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
    return Reference(original, inputs, variants=variants).verdict(transformed)


class Reference:
    """A model that others are judged against. What it computes is computed once.

    Parameters
    ----------
    original
        The model.
    inputs, variants
        As for :func:`verdict`.
    """

    def __init__(
        self,
        original: GraphModule,
        inputs: Inputs | Iterator[Inputs] | None = None,
        *,
        variants: Variants = False,
    ) -> None:
        self.original = runnable_graph(original, "original")
        self.inputs = named_inputs(original, inputs, variants)
        """What the models are run on, by name."""
        self._runs = {name: Runs(original, "original", given) for name, given in self.inputs.items()}

    def verdict(self, transformed: GraphModule) -> Verdict:
        """Judge another model, as :func:`verdict` does."""
        runnable_graph(transformed, "transformed")
        if len(self._runs) == 1:
            (name,) = self._runs
            return self._verdict_on(name, transformed)
        found: dict[str, Verdict] = {}
        refused: dict[str, str] = {}
        for name, runs in self._runs.items():
            try:
                _ = runs.outputs
            except ValueError as error:
                refused[name] = str(error)
                continue
            try:
                found[name] = self._verdict_on(name, transformed)
            except ValueError as error:
                if not str(error).startswith("transformed:"):
                    raise
                found[name] = Verdict(Status.DIFFERENT, str(error), None, {})
        if not found:
            reasons = "; ".join(dict.fromkeys(refused.values()))
            raise ValueError(f"inputs: there are none that the original runs on: {reasons}")
        return _worst(found, refused)

    def _verdict_on(self, name: str, transformed: GraphModule) -> Verdict:
        return _Comparison(self._runs[name], Runs(transformed, "transformed", self.inputs[name])).verdict()


def _worst(found: dict[str, Verdict], refused: dict[str, str]) -> Verdict:
    """Return the verdict on the inputs that decide, with words on the others."""
    order = list(Status)

    def badness(name: str) -> tuple[int, float]:
        return order.index(found[name].status), found[name].ratio or 0.0

    name = max(found, key=badness)
    worst = found[name]
    same = worst.status is Status.SAME_BITS
    where = f"on all {len(found)} inputs" if same else f"on {name!r}, the worst of {len(found)} inputs"
    not_compared = f"; not compared, as the original refuses them: {', '.join(refused)}" if refused else ""
    return replace(
        worst,
        reason=f"{worst.reason} ({where}{not_compared})",
        decided_by=name,
        by_inputs=found,
        not_compared=refused,
    )


_Tries: TypeAlias = Sequence[dict[str, torch.Tensor]]
"""The outputs of a few runs with random changes."""


class _Comparison:
    def __init__(self, original: Runs, transformed: Runs) -> None:
        self._original, self._transformed = original, transformed
        if not original.outputs and not transformed.outputs:
            raise ValueError("original: it returns no tensors, so there is nothing to compare.")

    def verdict(self) -> Verdict:
        """Judge every output, with as few runs as it takes."""
        ours, theirs = self._original.outputs, self._transformed.outputs
        paths = list(dict.fromkeys([*ours, *theirs]))
        found = {path: judged_by_bits(ours.get(path), theirs.get(path)) for path in paths}
        unsettled = [path for path, judgement in found.items() if judgement is None]
        if not unsettled:
            return _summary({path: judgement for path, judgement in found.items() if judgement})
        in_own_dtype = list(self._original.in_own_dtype)
        try:
            in_own_dtype += self._transformed.in_own_dtype
            judged_now = self._judged(unsettled)
        except DrawsRandomNumbersError as error:
            reason = f"node {error.node!r} draws random numbers, which the original does not"
            judged_now = {path: Judgement(Status.DIFFERENT, reason, ours[path].numel()) for path in unsettled}
        outputs = {path: found[path] or judged_now[path] for path in paths}
        return _summary(outputs, tuple(dict.fromkeys(in_own_dtype)))

    def _judged(self, paths: list[str]) -> dict[str, Judgement]:
        original, transformed = self._original, self._transformed
        if not may_decide(transformed.decides_otherwise, original.decides_otherwise):
            reason = (
                f"it rounds worse: {transformed.decides_otherwise} of its comparisons and choices are others "
                f"than in float64, {original.decides_otherwise} of the original's"
            )
            return {
                path: Judgement(Status.DIFFERENT, reason, original.outputs[path].numel()) for path in paths
            }

        def judge(new: _Tries = (), replaced: _Tries = ()) -> dict[str, Judgement]:
            return {
                path: judged(
                    Versions(
                        original.outputs[path],
                        transformed.outputs[path],
                        original.exact[path],
                        transformed.exact[path],
                        [outputs[path] for outputs in new],
                        [outputs[path] for outputs in replaced],
                        [moves[path] for moves in self._moved if path in moves],
                        original.moved_by_decisions.get(path),
                        transformed.moved_by_decisions.get(path),
                        original.has_unknown_decisions or transformed.has_unknown_decisions,
                    )
                )
                for path in paths
            }

        result = judge()
        if _all_same_function(result):
            return result
        result = judge(new := self._rounded_anew())
        return result if _all_same_function(result) else judge(new, self._replaced_anew())

    def _rounded_anew(self) -> _Tries:
        """Return what the transformed model computes in float64 with its new values rounded once more."""
        new = NewValues(self._original.graph_module, self._transformed.graph_module)
        return _tries(self._transformed, new.rounded_anew) if new else ()

    def _replaced_anew(self) -> _Tries:
        """Return what the original computes with the vectors rounded once more that new values came from."""
        gone = VectorsGone(self._original.graph_module, self._transformed.graph_module)
        return _tries(self._original, gone.rounded_anew) if gone else ()

    @cached_property
    def _moved(self) -> list[dict[str, torch.Tensor]]:
        """How far the float64 runs move if all that float64 does not make exact is rounded once more.

        These are the float64 values of the original, as no wider dtype tells what their rounding does, and
        results of nodes that have no float64, unless both models compute the same ones in the same way.
        """
        original, transformed = self._original, self._transformed
        is_wide = any(tensor.dtype == torch.float64 for tensor in tensors_of(original.graph_module))
        alike = original.targets_in_own_dtype == transformed.targets_in_own_dtype
        if alike:
            return [_moves(original)] if is_wide else []
        return [_moves(original), _moves(transformed)]


def _moves(runs: Runs) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def widen(tensor: torch.Tensor) -> torch.Tensor:
        return moved(tensor, generator) if tensor.dtype == torch.float64 else tensor.double()

    moves = runs.exact_with(widen, lambda tensor: moved(tensor, generator))
    return {path: tensor - runs.exact[path] for path, tensor in moves.items() if _is_real(tensor)}


def _is_real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _tries(runs: Runs, change: Callable[[torch.Tensor, torch.Generator], torch.Tensor]) -> _Tries:
    generator = torch.Generator().manual_seed(0)
    return [runs.exact_with(lambda tensor: change(tensor, generator)) for _ in range(TRIES)]


def _all_same_function(judgements: dict[str, Judgement]) -> bool:
    return all(j.errors is None or j.errors.same_function for j in judgements.values())


def _summary(outputs: dict[str, Judgement], in_own_dtype: tuple[str, ...] = ()) -> Verdict:
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
    reason = f"{worst}: {decisive[worst].reason}{others}{_without_float64(in_own_dtype)}"
    return Verdict(status, reason, ratio, outputs, in_own_dtype)


def _without_float64(nodes: tuple[str, ...]) -> str:
    """Say which nodes have no float64."""
    if not nodes:
        return ""
    named = ", ".join(nodes[:_NAMED]) + (", ..." if len(nodes) > _NAMED else "")
    if len(nodes) == 1:
        return f"; 1 node has no float64 and ran in its own dtype ({named})"
    return f"; {len(nodes)} nodes have no float64 and ran in their own dtypes ({named})"


def _row(judgement: Judgement) -> list[Any]:
    errors = judgement.errors
    measured = (
        [None] * 5
        if errors is None
        else [errors.ratio, errors.own, errors.transformed, errors.function, errors.new_values]
    )
    return [str(judgement.status), *measured, judgement.elements, judgement.reason]
