"""``fxlab.symbolic_trace``: model in, readable graph module out; the pipeline, and the ladder of ways."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NoReturn

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.base.checks import names_in, require_bool
from fxlab.base.garbage import only_new_garbage
from fxlab.base.interrupts import RestoringStack, interrupts_noted
from fxlab.base.torch_logs import torch_logs_silent
from fxlab.base.words import listed
from fxlab.models.graph_modules.graph_module import KEYWORD_ORDER, code_on_demand
from fxlab.models.graph_modules.parts import give_naming, new_naming
from fxlab.models.hooks import is_compiled
from fxlab.models.running.arguments import Inputs, given_inputs
from fxlab.models.state.settings import GRADIENTS
from fxlab.tracing.assemble import assemble
from fxlab.tracing.bound_inputs import Argument, bound_arguments, with_places
from fxlab.tracing.messages import Step, first_line, placed_line, warn_of_limits
from fxlab.tracing.model_code.given_model import Choice, LeafModules, has_data, is_function, traceable
from fxlab.tracing.model_code.mode_reads import require_modes
from fxlab.tracing.model_code.running_code import Part, Reason
from fxlab.tracing.model_code.surroundings import Surroundings, run_alone
from fxlab.tracing.recording.graph_builder import SizeError
from fxlab.tracing.recording.handlers.control_flow import not_compiled
from fxlab.tracing.recording.opaque_calls import with_parts_whole
from fxlab.tracing.recording.recorder import FIXED_LADDER, LADDER, record_on
from fxlab.tracing.recording.run import RecordingState, TraceStrategy
from fxlab.tracing.report import DATA, DYNAMIC, WHOLE, Finding, Found, Obstacle, TraceError, TraceReport
from fxlab.tracing.shapes.fake_state import TensorKeptError
from fxlab.tracing.sizes_of_one import SizesOfOne
from fxlab.tracing.slices import Outcomes, Recorded, Slices
from fxlab.tracing.torch_private import require_all
from fxlab.tracing.verification import compare_with_eager
from fxlab.tracing.verification.eager import EagerReference
from fxlab.tracing.verification.size_guards import guard_sizes


def symbolic_trace(
    model: nn.Module | Callable[..., Any],
    inputs: Inputs | None = None,
    *,
    input_names: Iterable[str] | None = None,
    dynamic: bool = True,
    leaf_modules: Iterable[Choice] = (),
    check: bool = True,
) -> GraphModule:
    """Trace a model into a graph module that computes the same, for inputs of any size.

    The model is run on tensors without data, and its calls are recorded: once, if the first way to record it
    succeeds, and once more for each further way. A model that reads its mode is recorded in the other mode as
    well. Where it decides on data, it is run on the inputs themselves; so it is for the checks, a few times.
    The model is left as it was; the result shares its parameters.

    Parameters
    ----------
    model
        Any module, initialized if it is lazy, or a function, whose modules are those that it reads from
        variables around it. It is traced in its mode (training or evaluation); a graph that would be another
        one in the other mode refuses to run there.
    inputs
        The inputs of the run: keyword arguments (a mapping, in which a tuple may stand for ``*args`` by its
        name), positional arguments (a tuple) or one tensor. For a model of transformers they are made by
        :func:`example_inputs` if left out.
    input_names
        The parameters of ``forward`` to make inputs for, or to take of ``inputs``.
    dynamic
        Whether the graph follows the sizes of its inputs, or takes the sizes of ``inputs`` only.
    leaf_modules
        Classes and paths of modules that become one ``call_module`` node, besides those of ``torch.nn``. A
        function of a module and its path decides in their place: ``lambda module, path: False`` traces into
        every module, ``nn.Linear`` too.
    check
        Whether to compare the result with the model: on the inputs bit for bit, at other sizes and with
        padded masks. Models without data (on the meta device) are not checked.

    Returns
    -------
    torch.fx.GraphModule
        Called like the model, and returning the model's own output class. ``node.meta`` holds ``val`` (a fake
        tensor: shape and dtype), ``nn_module_stack`` (module paths) and ``stack_trace`` (source lines);
        ``meta["trace"]`` holds the :class:`~fxlab.tracing.report.TraceReport`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind, inputs are needed and not given, or the model is lazy and has
        never run.
    TraceError
        If the model cannot be recorded, or the graph does not compute the same.

    Warns
    -----
    TraceWarning
        If the graph is specialised: a size or a decision on data was fixed.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> traced = symbolic_trace(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), torch.randn(2, 4))
    >>> [node.name for node in traced.graph.nodes]
    ['input_1', '_0', '_1', 'output']
    >>> traced(torch.randn(7, 4)).shape
    torch.Size([7, 8])
    """
    return traced_with_inputs(model, inputs, input_names, dynamic, leaf_modules, check)[0]


def traced_with_inputs(
    model: Any,
    inputs: Any,
    input_names: Any = None,
    dynamic: bool = True,
    leaves: Any = (),
    check: bool = True,
    slices: Slices | None = None,
) -> tuple[GraphModule, Inputs]:
    """Do as :func:`symbolic_trace`, and return the inputs as well.

    Of inputs that are made, the most likely ones are traced at once; others are tried if that fails.
    ``slices``: those that it may end after, by a ``PauseError``.
    """
    slices = slices or Slices()
    require_all()
    inputs = given_inputs(inputs)
    # A run uses up a generator, and trains by a function that calls backward(); a part may stay whole.
    not_run_after = Obstacle.GENERATOR, *([Obstacle.BACKWARD] if is_function(model) else ())
    is_of_source, model, leaves = is_compiled(model), traceable(model), LeafModules(leaves)
    require_bool(dynamic, "dynamic")
    require_bool(check, "check")
    leaves.require_known(model)
    names = None if input_names is None else names_in(input_names, "input_names")
    if inputs is None:
        from fxlab.tracing.inputs.example_inputs import candidate_inputs

        candidates: Iterator[Any] = candidate_inputs(model, input_names=names)
    else:
        candidates = _some_of(inputs, names)

    def trace(given: Inputs) -> tuple[GraphModule, Inputs]:
        given = with_places(model, given)
        bound = bound_arguments(model, given)
        settings = not_compiled(), torch_logs_silent(), _recursion_as_deep_as(model)
        with run_alone(model) as around, RestoringStack(*settings), interrupts_noted() as interrupted:
            slices.inputs = given
            pipeline = _Pipeline(model, around, bound, leaves, check, not_run_after, slices)
            traced = pipeline.climb_down(dynamic, interrupted)
        if is_of_source:
            report = traced.meta["trace"]
            traced.meta["trace"] = replace(report, findings=(*report.findings, Found.COMPILED("the model")))
        return traced, given

    first = next(candidates)
    try:
        return trace(first)
    except TraceError:
        from fxlab.tracing.inputs.example_inputs import first_that_runs

        if (found := first_that_runs(model, chain([first], candidates))) is first:
            raise
    return trace(found)


_CALLS_PER_MODULE = 8  # while it is recorded


@dataclass(frozen=True)
class _Traced:
    """The result of the pipeline on a rung."""

    recorded: Recorded
    findings: tuple[Finding, ...]
    reasons: list[Reason]
    """Why it is specialised."""
    eager: EagerReference
    """The model that it was compared with."""

    @property
    def decisions(self) -> int:
        """The number of decisions on data that the graph checks."""
        return sum(finding.kind == "branch on data" for finding in self.findings)

    @property
    def modules(self) -> set[Any]:
        """The paths of the modules that are one node each."""
        return {node.target for node in self.recorded.module.graph.find_nodes(op="call_module")}


class _Pipeline:
    """Takes a model from its inputs to a graph module that was compared with it.

    ``model``, ``around``, ``arguments``, ``leaves``: the traced model, the Python around it, its inputs, and
    which of its modules are one node each. ``check``: whether to compare. ``not_run_after``: obstacles after
    which the model itself may not run. ``slices``: its work so far.
    """

    def __init__(
        self,
        model: nn.Module,
        around: Surroundings,
        arguments: tuple[Argument, ...],
        leaves: LeafModules,
        check: bool,
        not_run_after: Collection[Obstacle],
        slices: Slices,
    ) -> None:
        self._not_run_after = {obstacle.code for obstacle in not_run_after}
        self._model, self._around, self._arguments, self._leaves = model, around, arguments, leaves
        self._slices, self._has_data = slices, has_data(model)
        self._eager = EagerReference(model, arguments, has_data=self._has_data, around=around)
        self._check, self._compares = check, check and self._has_data
        slices.may_pause = slices.may_pause and self._compares
        # A stand-in for ones has to be compared on the given ones.
        self._ones = SizesOfOne(arguments) if self._compares else None
        self._gradients = True
        self._hides_fakes = False
        self._follows_heights = True

    def climb_down(self, dynamic: bool, interrupted: Callable[[], bool]) -> GraphModule:
        """Trace the model in the most general way that succeeds."""
        steps: list[Step] = []
        failure: Exception | None = None
        kept: list[TensorKeptError] = []
        rungs = LADDER if dynamic else FIXED_LADDER
        for rung in (rung for rung in rungs if self._has_data or not rung.computes):
            if rung.name == DATA and isinstance(failure, SizeError):
                continue  # sizes would be as complicated
            try:
                traced = self._with_parts_whole(failure, []) if rung.name == WHOLE else self._traced(rung)
            except Exception as error:  # the model's own code runs here, and may raise anything
                if interrupted():
                    raise KeyboardInterrupt from error
                if isinstance(error, TraceError) and error.code in self._not_run_after:
                    raise
                if not steps and self._runs_without_gradients_only():
                    self._gradients = False
                    return self.climb_down(dynamic, interrupted)
                steps.append(Step.because_of(error, rung.name))
                failure = error
                kept += [error] if isinstance(error, TensorKeptError) else []
                # A model may compute something else when it notices that it is traced.
                self._hides_fakes = self._hides_fakes or isinstance(error, compare_with_eager.DifferenceError)
                continue
            if rung.name in (DYNAMIC, DATA) and (better := self._holding_for_more(traced)):
                reason = traced.reasons[0]
                steps.append(Step(rung.name, f"{reason.what} (at {reason.where})", reason.what))
                traced = better
            findings = self._hold_mode(traced)
            _require_over(kept)
            if interrupted():
                raise KeyboardInterrupt
            return _reported(traced, findings, steps)
        assert failure is not None
        _require_over(kept)
        return self._after_failure(failure, rung)

    def _traced(self, rung: TraceStrategy) -> _Traced:
        """Take the model through the pipeline; more than once if there are sizes of one."""
        try:
            return self._traced_at_ones(replace(rung, follows_heights=self._follows_heights))
        except SizeError:
            if not rung.dynamic or not self._follows_heights:
                raise
            self._follows_heights = False
            return self._traced_at_ones(replace(rung, follows_heights=False))

    def _traced_at_ones(self, rung: TraceStrategy) -> _Traced:
        rung = replace(rung, hides_fakes=self._hides_fakes)
        return self._traced_on(rung) if self._ones is None else self._ones.trace(rung, self._traced_on)

    def _traced_on(self, rung: TraceStrategy) -> _Traced:
        recorded = self._slices.recorded(rung, partial(self._assembled, rung))
        run = recorded.run
        reads_gradients = GRADIENTS in run.setting_reads.held or not run.rung.gradients
        eager = self._eager.with_gradients(run.rung.gradients) if reads_gradients else self._eager
        with eager.only_run(), only_new_garbage():
            findings = [*run.recording.findings, *self._compared(recorded, eager)]
        needless = {finding.what for finding in findings if finding.code == Found.NEEDLESSLY_FIXED_SIZE.code}
        reasons = run.fakes.reasons(needless, numbers=rung.parts is not None)
        return _Traced(recorded, tuple(findings), reasons, eager)

    def _assembled(self, rung: TraceStrategy, outcomes: Outcomes) -> Recorded:
        run = self._recorded(rung)
        reads = run.mode_reads
        nodes = run.nodes() if reads.places and not reads.gives_numbers else {}
        with only_new_garbage():
            recorded = run.recording
            module = assemble(self._model, recorded.graph, recorded.constants, recorded.branches)
        if extra := tuple(argument.name for argument in self._arguments if argument.is_extra):
            module.meta[KEYWORD_ORDER] = extra
        return Recorded(run, module, nodes, outcomes)

    def _recorded(self, rung: TraceStrategy) -> RecordingState:
        """Record the model: without gradients, as the caller would run it, if it reads whether they are on.

        One that cannot be recorded without gradients is recorded with them, and refuses to run without.
        """
        run = self._record(replace(rung, gradients=self._gradients))
        if GRADIENTS in run.setting_reads.held and run.rung.gradients and not torch.is_grad_enabled():
            try:
                run = self._record(replace(rung, gradients=False))
            except Exception as error:  # the model's own code runs here, and may raise anything
                run.recording.findings.append(Found.NEEDS_GRADIENTS(GRADIENTS, error=first_line(error)))
        return run

    def _record(self, rung: TraceStrategy) -> RecordingState:
        return record_on(rung, self._model, self._around, self._arguments, self._leaves)

    def _compared(self, recorded: Recorded, eager: EagerReference) -> list[Finding]:
        """Put guards on sizes into a graph, and compare it with the model if there is data and it is wanted.

        The given inputs come last, as the graph is to be compared with all its guards.
        """
        run, module = recorded.run, recorded.module
        at_sizes = eager.with_short_products(module) if run.rung.name == DYNAMIC else eager

        def guarded() -> list[Finding]:
            self._slices.may_pause = False
            found = guard_sizes(run.conditions, module, run.fakes, at_sizes if self._check else None)
            reads = run.mode_reads
            return found + (require_modes(module, self._model, reads) if reads.gives_numbers else [])

        if not self._compares:
            guards = guarded()
            return [*self._compared_as_it_is(module, eager), *guards]
        computes = run.fakes.has_data or run.real is not None
        try:
            others = compare_with_eager.check_others(
                at_sizes, module, run.fakes, recorded.outcomes, on_other_data=computes
            )
            guards = guarded()
        except TraceError:
            self._compared_as_it_is(module, eager)  # says more, if the graph is wrong there as well
            raise
        findings = [*self._compared_as_it_is(module, eager), *others]
        if any(finding.kind == "attribute" for finding in run.recording.findings):
            findings += compare_with_eager.check_second_run(eager, module)
        return [*findings, *guards]

    def _compared_as_it_is(self, module: GraphModule, eager: EagerReference) -> list[Finding]:
        """Compare a graph that is complete with the model on the given inputs, if it is to be compared."""
        module.graph.lint()
        with code_on_demand(True):
            module.recompile()
        if self._compares:
            return compare_with_eager.check_given(eager, module)
        why = "the model has no data" if self._check else "check=False"
        return [Found.NOT_COMPARED("the model", reason=why)]

    def _with_parts_whole(self, failure: Exception | None, reasons: list[Reason]) -> _Traced:
        """Keep those parts whole that cannot be recorded, or not for other sizes or data."""
        whole = next(rung for rung in LADDER if rung.name == WHOLE)

        def trace(parts: Mapping[Part, Reason], most_operations: int) -> _Traced:
            return self._traced(replace(whole, parts=parts, most_operations=most_operations))

        return with_parts_whole(self._model, trace, failure, reasons)

    def _holding_for_more(self, traced: _Traced) -> _Traced | None:
        """Return a graph for more sizes and data than the traced one holds for."""
        if not traced.reasons or not self._has_data:
            return None
        try:
            found = self._with_parts_whole(None, traced.reasons)
        except Exception:  # there is a graph that holds for the inputs
            return None
        if not all(reason.is_remainder for reason in traced.reasons):
            return found
        # A remainder may be decided on outside of the part too, maybe as a number that the part gives.
        holds_for_more = not found.recorded.run.fakes.remainders and found.decisions <= traced.decisions
        return found if holds_for_more and found.modules <= traced.modules else None

    def _hold_mode(self, traced: _Traced) -> list[Finding]:
        """Make a graph refuse the other mode, if the model reads its mode and does something else there."""
        reads = traced.recorded.run.mode_reads
        modes = reads.modes_read
        if reads.gives_numbers or not modes:
            return []
        if len(modes) == 1 and self._is_same(traced, training=True not in modes):
            return []
        findings = require_modes(traced.recorded.module, self._model, reads)
        self._compared_as_it_is(traced.recorded.module, traced.eager)
        return findings

    def _is_same(self, traced: _Traced, training: bool) -> bool:
        """Tell whether the same is recorded in training, or in evaluation mode."""
        recorded = traced.recorded
        if recorded.run.rung.is_real:
            return False
        try:
            run = self._record(replace(recorded.run.rung, training=training, expected=recorded.nodes))
        except Exception:  # the model's own code runs here, and may raise anything
            return False
        return run.nodes() == recorded.nodes

    def _runs_without_gradients_only(self) -> bool:
        """Tell whether the model, as FlexAttention on a CPU, raises with gradients and runs without."""
        given = {argument.name: argument.value for argument in self._arguments}
        return (
            self._has_data
            and self._gradients
            and not self._eager.runs_with_gradients(given)
            and self._eager.why_not(given) is None
        )

    def _after_failure(self, failure: Exception, last: TraceStrategy) -> NoReturn:
        """Raise the error that explains the failure."""
        given = {argument.name: argument.value for argument in self._arguments}
        model = type(self._model).__name__
        own = self._eager.why_not(given) if self._has_data else None
        if own is not None:
            message = placed_line(own)
            error = Obstacle.MODEL_RAISES(model=model, error=type(own).__name__, message=message)
            self._put_graph_into(error, own)
            raise error from own
        if isinstance(failure, TraceError):
            raise failure
        if not self._has_data and any("forward" in vars(module) for module in self._model.modules()):
            raise Obstacle.OFFLOADED(model=model) from failure
        message, raised = placed_line(failure), type(failure).__name__
        obstacle = Obstacle.behind(message)
        raise obstacle(model=model, rung=last.name, error=raised, message=message) from failure

    def _put_graph_into(self, error: TraceError, own: Exception) -> None:
        """Record the model up to the call that raises; on data, if that decides."""
        from fxlab.tracing.assemble import FailedRun

        for rung in FIXED_LADDER:
            failed = FailedRun(self._model)
            with suppress(Exception):  # of the model, once more
                self._record(replace(rung, on_failure=failed, gradients=self._gradients))
            if type(failed.error) is type(own):
                failed.put_into(error)
                return


def _some_of(inputs: Any, names: tuple[str, ...] | None) -> Iterator[Any]:
    """Return the inputs that were given, or some of these."""
    if names is None:
        return iter([inputs])
    if not isinstance(inputs, Mapping) or not set(names) <= inputs.keys():
        raise ValueError(f"input_names: inputs must be a mapping that has each of {', '.join(names)}")
    return iter([{name: inputs[name] for name in names}])


def _require_over(kept: list[TensorKeptError]) -> None:
    """Raise if a fake tensor that a run has left behind is still there, and no other run has replaced it."""
    for error in kept:
        if not error.is_over:
            raise error


def _reported(traced: _Traced, more: list[Finding], steps: list[Step]) -> GraphModule:
    """Return a graph module with its report; warn if it is specialised."""
    module = traced.recorded.module
    report = TraceReport(
        traced.recorded.run.rung.name,
        (*traced.findings, *more, *_closed_modules(module)),
        tuple(f"{step.rung}: {step.cause}" for step in steps),
        tuple(f"{step.rung}: {step.raw}" for step in steps),
    )
    module.meta["trace"] = report
    give_naming(module, new_naming())
    warn_of_limits(report, steps)
    return module


def _closed_modules(graph_module: GraphModule) -> Iterator[Finding]:
    """Yield a finding for each class of torch's modules that are a node, though they have modules inside."""
    paths = defaultdict[str, list[str]](list)
    for node in graph_module.graph.find_nodes(op="call_module"):
        module = graph_module.get_submodule(str(node.target))
        if any(True for _ in module.children()) and type(module).__module__.startswith("torch.nn."):
            paths[type(module).__name__].append(str(node.target))
    for name, places in paths.items():
        yield Found.MODULE_OF_TORCH(name, paths=listed(places))


@contextmanager
def _recursion_as_deep_as(model: nn.Module) -> Iterator[None]:
    """Allow more nested calls for deeply nested modules: a recorded module takes more than a plain one."""
    before = sys.getrecursionlimit()
    depth = max(path.count(".") for path, _ in model.named_modules())
    sys.setrecursionlimit(before + _CALLS_PER_MODULE * depth)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
