"""``fxlab.verdict``: whether a model computes the same, the same up to rounding, or another function.

``fxlab.compare_stages`` asks it of each stage of a session.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from inspect import isroutine
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.nn import Module

from fxlab.base.checks import check_is, require_bool
from fxlab.base.first_use import pd
from fxlab.front_desk.sources import Model, SessionLike, checked_session, compared_models, inputs_or_examples
from fxlab.graphs.changes import changes_made
from fxlab.graphs.reordering import reordering
from fxlab.models.parallel.ranks import is_in_fake_group, ranks_together
from fxlab.models.running.accelerators import device_errors_raised
from fxlab.models.running.arguments import Inputs
from fxlab.models.state.settings import NumericSettings
from fxlab.models.state.tensor_state import tensors_of
from fxlab.operators.node_info import dtype_name
from fxlab.validation.arguments import as_graph, check_runs, graph_to_run
from fxlab.validation.outputs.compare_outputs import Counterparts
from fxlab.validation.outputs.input_variants import GIVEN, Variants, named_inputs
from fxlab.validation.tensor_values.visited_run import visit_values
from fxlab.validation.verdicts.float64_run import NoFloat64Error
from fxlab.validation.verdicts.gradients import shared_parameters, trained_in_one, trained_parameters
from fxlab.validation.verdicts.judgement import Status
from fxlab.validation.verdicts.result import Verdict
from fxlab.validation.verdicts.runs import Runs
from fxlab.validation.verdicts.runs_compared import RunsCompared
from fxlab.validation.verdicts.sixteen_bits import every_number


def verdict(
    reference: Model,
    candidate: Model,
    inputs: Inputs | None = None,
    *,
    variants: Variants = False,
    gradients: bool = False,
) -> Verdict:
    """Tell whether two models compute the same, up to the rounding that the original does anyway.

    No tolerance is asked for. The expected rounding is measured: the original is run in its own dtypes and in
    float64, node by node, and the distance of the two is its own error. Then three conditions are checked for
    each output tensor, and the first that fails makes it *different*:

    1. Shape, dtype, integers, booleans and the places of NaN and infinity are the same, and with them all
       else that a caller can tell of the call: the memory that outputs share with each other, with inputs
       and with tensors of the model; classes and plain values; the random numbers that are drawn.
    2. *It is the same function.* In float64 the rounding of activations is gone (it is 1e-9 of that in
       float32), so that even a small mistake stands out that the rounding of a bfloat16 model drowns. The
       rounding of weights that the transformation has computed, such as those of a folded batch norm, may
       remain. This is measured as well: the new values are moved by as much as rounding them once does
       (uniformly, within half a unit in the last place), three times, and the float64 run is repeated. The
       two may be 3 times as far apart as that, or 1/4096 of the original's own error.
    3. *It rounds about as well.* The transformed model's error is at most 4 times the original's (with the
       rounding of new values; and more where there are few elements, whose ratio scatters). This finds a
       mistake that float64 hides: a part that now runs in a lower precision.

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
    reference, candidate
        As for :func:`compare_outputs`; they may share tensors. A module that is not traced is run as it is.
    inputs
        Keyword arguments (a mapping), positional arguments (a tuple) or one tensor. Left out, those
        of the session, or made from the configuration of the original (see :func:`fxlab.example_inputs`). An
        iterator is one over several inputs, and the same as ``variants``.
    variants
        Other inputs to compare on as well, of which the worst decides: ``True`` for those that
        :func:`fxlab.validation.input_variants` makes, a mapping of inputs by name, or a list or iterator of
        inputs. Those that the original refuses are not compared, and the answer says so.
    gradients
        Whether to compare gradients as well, of inputs and of the parameters that both have. They are judged
        as outputs are, against those of the float64 run. Parameters that a pass has created (merged or
        folded weights) have no counterpart: ``without_gradients`` names them. One that trains in one of the
        two only, and an output from which gradients flow in one only, is a difference.

    Returns
    -------
    Verdict
        Its ``status`` (a string), ``reason``, ``ratio``, and a ``table`` of all outputs. True if they agree.

    Raises
    ------
    TypeError
        If one of the two is neither a module nor a session, or no model can be called with ``inputs``.
    ValueError
        If one of them does not run on the inputs, or returns no tensors, or has no weights (the meta device),
        or if the original draws random numbers that cannot be given to a float64 run, and bits do not tell.

    Notes
    -----
    Where a model compares or picks (``>``, ``argmax``, routing to experts, rounding to integers), a rounding
    error may lead to another decision. Decisions of a model that differ between its own dtype and float64
    are given to another float64 run, so that only rounding is left of its error, in all elements. They may be
    about as frequent as the original's. Integers and booleans in its outputs have to be equal nevertheless.

    Random numbers are drawn from one seed. Those that operators draw in the run of the model as it is are
    given to the float64 runs, and to a transformed model that draws in the same way and gets other numbers.

    Nodes that have no float64, such as grouped, quantized and 8-bit matrix products, run in their own dtypes
    in its place, on rounded values; the reason names them. Numbers written into the graph are exact.

    Elementwise calls on one tensor of bfloat16 or float16 that a pass has changed are computed for every
    finite number as well, before and after: notes say that these are proved, or how many give other bits.

    Graphs that differ in the order of their nodes alone are not run: data dependences and writes prove that
    they compute the same bits, or the runs have to tell.

    Examples
    --------
    >>> import torch
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
    first, second, known = compared_models(reference, candidate, inputs)
    if any(map(isroutine, (first, second))):
        given = inputs_or_examples(known, first)
        first, second = graph_to_run(first, "reference", given), graph_to_run(second, "candidate", given)
    if not require_bool(gradients, "gradients") and (proved := verdict_on_order(first, second)) is not None:
        return proved
    return Reference(first, known, variants=variants, gradients=gradients).verdict(second)


class Reference:
    """A model that others are judged against. It is run once, and its results are kept.

    Parameters
    ----------
    original
        The model.
    inputs, variants, gradients
        As for :func:`verdict`.
    """

    def __init__(
        self,
        original: torch.nn.Module,
        inputs: Inputs | None = None,
        *,
        variants: Variants = False,
        gradients: bool = False,
    ) -> None:
        check_is(torch.nn.Module, original, "original")
        check_runs(original, "original")
        self.original = original
        self.inputs = named_inputs(original, inputs, variants)
        """The inputs of the models, by name."""
        self._asks_others = variants is not False
        self._compares_gradients = require_bool(gradients, "gradients")
        self._settings: NumericSettings | None = None
        self._kept_runs: dict[str, Runs] = {}

    @property
    def _runs(self) -> dict[str, Runs]:
        """The runs of the original on each of the inputs, as torch is set now: others are not kept."""
        now = NumericSettings.now()
        # TF32 and the like change the original's own rounding.
        if self._settings != now:
            self._kept_runs = {name: self._runs_of(self.original, g) for name, g in self.inputs.items()}
            self._settings = now
        return self._kept_runs

    def _runs_of(self, original: torch.nn.Module, inputs: Inputs) -> Runs:
        graph = as_graph(original, inputs)
        trained = {name: name for name in trained_parameters(graph)} if self._compares_gradients else None
        return Runs(graph, "original", inputs, trained)

    def verdict(self, transformed: torch.nn.Module) -> Verdict:
        """Judge another model, as :func:`verdict` does."""
        check_is(torch.nn.Module, transformed, "transformed")
        check_runs(transformed, "transformed")
        with ranks_together(self.original, transformed):
            return self.on_every_number(self._verdict(transformed), transformed)

    def on_every_number(self, found: Verdict, transformed: torch.nn.Module) -> Verdict:
        """Return a verdict that agrees, or another one that all numbers of sixteen bits give.

        Numbers count that the tensor had in a run on the first inputs, and all between: a pass may know that.
        """
        original = self.original
        if not (found.agrees and isinstance(original, GraphModule) and isinstance(transformed, GraphModule)):
            return found
        every = every_number(original, transformed)
        ranges: dict[Node, Any] = dict.fromkeys(chain.begins_at for chain, _ in every.others)

        def note(node: Node, value: Any) -> None:
            if node in ranges:
                ranges[node] = value.min(), value.max()

        if ranges:
            visit_values(original, next(iter(self.inputs.values())), note, name="original")
        for chain, numbers in every.others:
            least, most = ranges[chain.begins_at]
            numbers = numbers[(least <= numbers) & (numbers <= most)]
            numbers = numbers[chain.original(numbers).isfinite()]
            if not len(numbers):
                continue
            judged = Reference(chain.original, {"x": numbers}).verdict(chain.transformed)
            if judged.different:
                of = f"the {len(numbers):,} numbers of {dtype_name(chain.dtype)} that give other bits"
                some = ", ".join(f"{number:g}" for number in numbers[:3].tolist())
                reason = f"{chain.name}, on {of} ({some}): {judged.reason}"
                return replace(found, status=Status.DIFFERENT, reason=reason)
        notes = tuple(every.notes)
        return replace(found, notes=found.notes + notes, reason="; ".join([found.reason, *notes]))

    def _verdict(self, transformed: torch.nn.Module) -> Verdict:
        if len(self._runs) == 1:
            name = next(iter(self._runs))
            only = self._comparison(name, transformed).verdict()
            return self._of_others(only, {name: only})
        found: dict[str, Verdict] = {}
        not_compared: dict[str, str] = {}
        for name, runs in self._runs.items():
            try:
                with device_errors_raised():
                    _ = runs.observed
            except ValueError as error:
                not_compared[name] = str(error)
                continue
            try:
                found[name] = self._comparison(name, transformed).verdict()
            except NoFloat64Error as error:
                found[name] = Verdict(Status.NOTHING_COMPARED, str(error), None, {})
            except ValueError as error:
                # An error of the transformed model alone is a difference; any other is the caller's.
                if not str(error).startswith("transformed:"):
                    raise
                found[name] = Verdict(Status.DIFFERENT, str(error), None, {})
        if not found:
            reasons = "; ".join(dict.fromkeys(not_compared.values()))
            raise ValueError(f"inputs: there are none that the original runs on: {reasons}")
        return self._of_others(_worst(found, not_compared), found)

    def _of_others(self, worst: Verdict, found: Mapping[str, Verdict]) -> Verdict:
        """Return the answer; no success if other inputs were asked for, and none could be compared."""
        others = (verdict for name, verdict in found.items() if name != GIVEN)
        if not (self._asks_others and worst.agrees) or any(each.agrees for each in others):
            return worst
        why = f"of {len(self.inputs) - 1} other inputs none could be compared; on those given: {worst.reason}"
        return replace(worst, status=Status.NOTHING_COMPARED, reason=why)

    def compare(self, transformed: torch.nn.Module) -> RunsCompared:
        """Run another model on the first inputs, to be asked how far apart the two are, and if it matters."""
        check_runs(transformed, "transformed")
        return self._comparison(next(iter(self._runs)), transformed)

    def _comparison(self, name: str, transformed: torch.nn.Module) -> RunsCompared:
        runs, graph = self._runs[name], as_graph(transformed, self.inputs[name])
        asked = None
        if self._compares_gradients:
            only = trained_in_one(graph, runs.graph_module)
            asked = shared_parameters(runs.graph_module, graph) | {name: name for name in only}
        inputs = self.inputs[name]
        names = Counterparts.of(runs.graph_module, graph, inputs)
        ours = Runs(graph, "transformed", inputs, asked, names=names)
        ours = ours.beside(runs.graph_module)
        return RunsCompared(runs.beside(graph), ours)


def _worst(found: dict[str, Verdict], refused: dict[str, str]) -> Verdict:
    """Return the verdict on the inputs that decide, with words on the others."""
    nothing = {name: v.reason for name, v in found.items() if v.status is Status.NOTHING_COMPARED}
    told = {name: v for name, v in found.items() if name not in nothing} or found

    name = max(told, key=lambda name: (told[name].status.rank, told[name].ratio or 0.0))
    worst = told[name]
    same = worst.status is Status.SAME_BITS
    where = f"on all {len(told)} inputs" if same else f"on {name!r}, the worst of {len(told)} inputs"
    aside = f"; not compared, as the original refuses them: {', '.join(refused)}" if refused else ""
    if nothing and told is not found:
        aside += f"; with nothing to compare: {', '.join(nothing)}"
    return replace(
        worst,
        reason=f"{worst.reason} ({where}{aside})",
        decided_by=name,
        by_inputs=found,
        not_compared=refused | nothing,
    )


def verdict_on_order(original: Module, transformed: Module) -> Verdict | None:
    """Return the verdict on two graphs that differ in their order alone; ``None`` if that is not proved.

    Collectives have to start in the same order: ranks that run other graphs meet in them.
    """
    if not (isinstance(original, GraphModule) and isinstance(transformed, GraphModule)):
        return None
    found = reordering(original, transformed)
    return None if found is None or found.collectives else Verdict(Status.SAME_BITS, found.words, None, {})


COLUMNS = ("changes", "nodes", "parameters", "max_abs_diff", "status", "note")


def compare_stages(session: SessionLike, *, in_float64: bool = True) -> "pd.DataFrame":
    """Tell the contents of each stage of a session, the changes of its pass, and how far its outputs moved.

    Parameters
    ----------
    session
        A :class:`fxlab.Session`. Its stages are run on its inputs, if it has any, and judged.
    in_float64
        Whether stages may be run in float64 for that. Left out, they are, where bits do not settle it.

    Returns
    -------
    pandas.DataFrame
        One row for each stage: ``original``, and the names of the passes that are on (``stage``), with

        ``changes``
            How often the pass has rewritten the stage below, and which nodes became which, as
            :meth:`fxlab.Session.changes` says it; empty for the original.
        ``nodes``
            How many there are.
        ``parameters``
            How many elements all parameters have.
        ``max_abs_diff``
            The largest difference of an output from the original's, as in :func:`fxlab.compare_outputs`; NaN
            where nothing could be compared.
        ``status``
            The status of the :func:`fxlab.verdict` on the stage; ``None`` where there is none.
        ``note``
            Why they could not, or other differences.

    Raises
    ------
    TypeError
        If ``session`` is not a session.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from fxlab import FuseBatchNorm2dInConv2d, Session
    >>> layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
    >>> graph = torch.fx.symbolic_trace(nn.Sequential(*layers).eval())
    >>> session = Session(graph, torch.randn(4, 3, 16, 16))
    >>> _ = session.apply("fuse-batch-norm2d-in-conv2d")
    >>> compare_stages(session)[["nodes", "parameters", "status"]].values.tolist()
    [[5, 240, 'same bits'], [5, 224, "within the model's own rounding"]]
    """
    stages = checked_session(session).stages
    reference = _reference(session)
    in_float64 = require_bool(in_float64, "in_float64")
    steps = zip(stages, stages[1:], session.applied, strict=False)
    changes = ["", *(str(changes_made(below, above, pass_)) for below, above, pass_ in steps)]
    rows = []
    for words, stage in zip(changes, stages, strict=True):
        found = (
            _not_run(session, stage)
            if reference is None
            else _compared(session, reference, stage, in_float64=in_float64)
        )
        rows.append([words, len(stage.graph.nodes), sum(p.numel() for p in stage.parameters()), *found])
    index = pd.Index(["original", *(p.name for p in session.applied)], name="stage", dtype=object)
    table = pd.DataFrame(rows, index=index, columns=list(COLUMNS))
    statuses = [row[COLUMNS.index("status")] for row in rows]
    table["status"] = pd.Series(statuses, index=index, dtype=object)  # strings of pandas have NaN for None
    return table


def _reference(session: SessionLike) -> Reference | None:
    """Return the original, which is run once; ``None`` if it cannot be."""
    original = session.stages[0]
    if session.inputs is None or any(tensor.is_meta for tensor in tensors_of(original)):
        return None
    try:
        reference: Reference = session._internals.reference_run()
    except ValueError:
        if is_in_fake_group(original):  # which exchanges nothing
            return None
        raise
    return reference


def _compared(
    session: SessionLike, reference: Reference, stage: GraphModule, *, in_float64: bool
) -> list[Any]:
    """Return the difference, the status and the note of a stage beside the original."""
    try:
        # Of its present stage, a session remembers both.
        comparison = None if stage is session.graph_module else reference.compare(stage)
        table = session._internals.compare_outputs() if comparison is None else comparison.table
    except ValueError as error:
        return [math.nan, None, str(error)]
    notes = list(dict.fromkeys(note for note in table["note"] if note))
    largest = float(table["max_abs_diff"].max()) if table["compared"].any() else math.nan
    try:
        if comparison is None:
            found = session.verdict() if in_float64 else session._internals.known_verdict()
        else:
            found = comparison.verdict() if in_float64 else comparison.known_verdict()
    except ValueError as error:
        return [largest, None, "; ".join([*notes, f"there is no verdict: {error}"])]
    return [largest, None if found is None else str(found.status), "; ".join(notes)]


def _not_run(session: SessionLike, stage: GraphModule) -> list[Any]:
    """Return the same of a stage that is not run."""
    original = session.stages[0]
    if (proved := verdict_on_order(original, stage)) is not None:
        return [0.0, str(proved.status), proved.reason]
    why = "its process group is fake" if is_in_fake_group(original) else "the model has no weights"
    return [math.nan, None, "the session has no inputs" if session.inputs is None else why]
