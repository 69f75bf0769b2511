"""Model in, executable and readable graph module out."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.parameter import is_lazy

from fxlab.checks import names_in
from fxlab.interrupts import RestoringStack, interrupts_noted
from fxlab.models.model_state import state_kept
from fxlab.tracing.assemble import assemble
from fxlab.tracing.bound_inputs import Argument, bound_arguments
from fxlab.tracing.inputs.example_inputs import example_inputs
from fxlab.tracing.leaf_modules import Choice, LeafModules
from fxlab.tracing.model_code.attributes import attribute_of, has_data
from fxlab.tracing.model_code.caches import caches_bypassed
from fxlab.tracing.model_code.created_tensors import TensorsMade
from fxlab.tracing.model_code.mode_reads import ModeReads, require_modes, set_modes
from fxlab.tracing.model_code.python_builtins import sizes_in_builtins
from fxlab.tracing.model_code.running_calls import Part, Reason, parts_raising
from fxlab.tracing.model_code.source_lines import where_raised
from fxlab.tracing.model_code.threads import OneThread
from fxlab.tracing.model_code.torch_logs import torch_logs_silent
from fxlab.tracing.recording.graph_builder import FEW_OPERATIONS, MOST_OPERATIONS, RecordedNodes, SizeError
from fxlab.tracing.recording.opaque_calls import CannotBeWholeError, WholeParts
from fxlab.tracing.recording.real_tensors import RealTensors
from fxlab.tracing.recording.recorder import Recorder
from fxlab.tracing.report import (
    BATCH,
    DATA,
    DYNAMIC,
    FIXED,
    REAL,
    WHOLE,
    Finding,
    TraceError,
    TraceReport,
    TraceWarning,
)
from fxlab.tracing.shapes.fake_inputs import FakeInputs
from fxlab.tracing.shapes.fake_state import put_fakes
from fxlab.tracing.shapes.size_cache import arithmetic_remembered
from fxlab.tracing.verification.compare_with_eager import Eager, check_against_eager, check_second_run
from fxlab.tracing.verification.size_guards import COSTLY, THOUGH, branches_on_sizes, guard_sizes
from fxlab.values.nested import map_tensors

_MOST_LIMITS = 10
"""Listed in a warning."""
_MOST_RUNS = 12
"""Of a model, to find out which of its parts are to stay whole."""


def symbolic_trace(
    model: nn.Module,
    inputs: Mapping[str, Any] | tuple[Any, ...] | list[Any] | torch.Tensor | None = None,
    *,
    input_names: Iterable[str] | None = None,
    dynamic: bool = True,
    leaf_modules: Iterable[Choice] | Choice | None = None,
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
        Any module, initialized if it is lazy. It is traced in the mode (training or evaluation) that it is
        in; a graph that would be another one in the other mode refuses to run there.
    inputs
        What to call it with: keyword arguments (a mapping), positional arguments (a tuple) or one tensor. For
        a model of transformers they are made by :func:`example_inputs` if left out.
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
        If an argument is not what it should be, inputs are needed and not given, or the model is lazy and has
        never run.
    TraceError
        If the model cannot be recorded, or what was recorded does not compute the same.

    Warns
    -----
    TraceWarning
        If the graph holds for less than the model does: a size or a decision on data was fixed.

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
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model: expected a torch.nn.Module, got {type(model).__name__}. Load or build the model first."
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            f"model: expected a module in Python, got a {type(model).__name__}. Trace what it was made of."
        )
    if type(model).__module__ == "torch._dynamo.eval_frame":  # what torch.compile returns
        model = model.get_submodule("_orig_mod")
    leaves = LeafModules(leaf_modules)
    unknown = leaves.paths - dict(model.named_modules()).keys()
    if unknown:
        raise ValueError(f"leaf_modules: the model has no module {', '.join(sorted(unknown))}")
    if lazy := [
        name for name, tensor in (*model.named_parameters(), *model.named_buffers()) if is_lazy(tensor)
    ]:
        raise ValueError(
            f"model: {', '.join(lazy[:3])}{' and more' if len(lazy) > 3 else ''} not initialized yet, as the "
            "shapes of lazy modules come with the first inputs. Run the model on them once, then trace it."
        )
    names = None if input_names is None else names_in(input_names, "input_names")
    if inputs is None:
        inputs = example_inputs(model, input_names=names)
    elif names is not None:
        if not isinstance(inputs, Mapping) or not set(names) <= inputs.keys():
            raise ValueError(f"input_names: inputs must be a mapping that has each of {', '.join(names)}")
        inputs = {name: inputs[name] for name in names}
    ladder = _Ladder(model, bound_arguments(model, inputs), leaves, check)
    with _not_compiled(), torch_logs_silent(), interrupts_noted() as interrupted:
        return ladder.climb_down(dynamic, interrupted)


@dataclass(frozen=True)
class _Recorded:
    """A run that was recorded, and what it ran on."""

    recorder: Recorder
    fakes: FakeInputs

    def nodes(self) -> RecordedNodes:
        """Return what was recorded, with the branches taken on sizes and what is not in the graph."""
        recording, fakes = self.recorder.recording, self.fakes
        findings = [f for f in recording.findings if f.kind not in ("constant", "kept whole")]
        return recording.nodes_by_name() | {
            "branches": {str(condition) for condition, _ in branches_on_sizes(fakes)},
            "sizes": tuple(str(fakes.expression(size)) for size in fakes.given),
            "findings": tuple((finding.kind, finding.what, finding.detail) for finding in findings),
            "constants": tuple(map(id, recording.constants.values())),
        }


@dataclass(frozen=True)
class _Traced:
    """A graph module, and how it depends on the mode of the model."""

    module: GraphModule
    mode_reads: ModeReads
    is_same: Callable[[bool], bool]
    """Tells whether the same is recorded in training, or in evaluation mode."""


class _Ladder:
    """Ways to record a model, the most general first."""

    def __init__(
        self, model: nn.Module, arguments: tuple[Argument, ...], leaves: LeafModules, check: bool
    ) -> None:
        self._model, self._arguments, self._leaves = model, arguments, leaves
        self._has_data = has_data(model)
        self._wants_check = check
        self._eager = Eager(model, arguments, has_data=self._has_data)
        self._reasons: list[Reason] = []
        self._remainders = 0
        self._failure: Exception | None = None
        self._gradients = True

    def climb_down(self, dynamic: bool, interrupted: Callable[[], bool]) -> GraphModule:
        rungs: list[tuple[str, Callable[[], _Traced]]] = []
        if dynamic:
            rungs.append((DYNAMIC, lambda: self._on_fakes(dynamic=True)))
            if self._has_data:
                rungs.append((DATA, lambda: self._on_fakes(dynamic=True, with_data=True)))
                rungs.append((WHOLE, self._with_parts_whole))
            rungs.append((BATCH, lambda: self._on_fakes(dynamic=True, batch_only=True)))
        rungs.append((FIXED, lambda: self._on_fakes(dynamic=False)))
        if self._has_data:
            rungs.append((REAL, self._on_real_tensors))
        steps: list[_Step] = []
        for rung, record in rungs:
            if rung == DATA and isinstance(self._failure, SizeError):
                continue  # sizes would be as complicated
            try:
                result = record()
            except Exception as error:  # the model's own code runs here, and may raise anything
                if interrupted():
                    raise KeyboardInterrupt from error
                steps.append(_Step.of(rung, error))
                self._failure = error
                continue
            self._failure = None
            if rung in (DYNAMIC, DATA) and self._reasons and (better := self._holding_for_more(result)):
                reason = self._reasons[0]
                steps.append(_Step(rung, f"{reason.what} (at {reason.where})", reason.what))
                rung, result = WHOLE, better
            findings = self._mode_held(result)
            if interrupted():
                raise KeyboardInterrupt
            traced = result.module
            report = TraceReport(
                rung,
                (*traced.meta["trace"], *findings),
                tuple(f"{step.rung}: {step.cause}" for step in steps),
                tuple(f"{step.rung}: {step.raw}" for step in steps),
            )
            traced.meta["trace"] = report
            _warn(report, steps)
            return traced
        last = self._failure
        assert last is not None
        given = {argument.name: argument.value for argument in self._arguments}
        own = self._eager.why_not(given) if self._has_data else None
        if own is not None:
            raise TraceError(
                f"{type(self._model).__name__} itself raises {type(own).__name__} on these inputs: "
                f"{_first_line(own)} {_at(own)}".strip()
            ) from own
        if self._has_data and self._gradients and not self._eager.runs_with_gradients(given):
            self._gradients = False
            return self.climb_down(dynamic, interrupted)
        if isinstance(last, TraceError):
            raise last
        raise TraceError(
            f"{type(self._model).__name__} could not be traced. Run on {rung}, it raised "
            f"{type(last).__name__}: {_first_line(last)} {_at(last)}\n"
            "A module that cannot be recorded can be named in leaf_modules."
        ) from last

    def _mode_held(self, traced: _Traced) -> list[Finding]:
        """Make a graph refuse the other mode, if the model reads its mode and does something else there."""
        reads = traced.mode_reads
        modes = reads.modes_read
        if not modes or (len(modes) == 1 and traced.is_same(True not in modes)):
            return []
        findings = require_modes(traced.module, self._model, reads)
        traced.module.recompile()
        return findings

    def _holding_for_more(self, recorded: _Traced) -> _Traced | None:
        """Return a graph for other sizes and data than those that what was recorded holds for."""
        reasons = self._reasons
        try:
            found = self._with_parts_whole() if self._has_data else None
        except Exception:  # there is a graph that holds for the inputs
            return None
        finally:
            self._reasons = reasons
        if found is None or not all(reason.is_remainder for reason in reasons):
            return found
        # A remainder may be decided on outside of the part too, maybe as a number that the part gives.
        holds_for_more = not self._remainders and _decisions(found.module) <= _decisions(recorded.module)
        return found if holds_for_more and _modules(found.module) <= _modules(recorded.module) else None

    def _with_parts_whole(self) -> _Traced:
        """Keep those parts whole that make a plain number of a size or of data, or cannot be recorded."""
        parts: dict[Part, Reason] = {}
        # Nothing would be left of a model of which all but the head is one node.
        base = attribute_of(self._model, "base_model")
        impossible: set[Part] = {type(self._model)}
        if isinstance(base, nn.Module):
            impossible.add(type(base))
        result: _Traced | None = None
        # The run before this rung has told the first parts.
        failure, reasons = self._failure, self._reasons
        has_other = failure is None  # one that can be read more easily, and holds for as many images
        most_operations = FEW_OPERATIONS if isinstance(failure, SizeError) else MOST_OPERATIONS
        for _ in range(_MOST_RUNS):
            if failure is not None:
                reasons = [Reason(parts_raising(failure), f"raises {_first_line(failure)}", _at(failure))]
            chosen: dict[Part, Reason] = {}
            for reason in reasons:
                part = next((p for p in reason.candidates if p not in impossible and p not in parts), None)
                if part is not None:
                    chosen.setdefault(part, reason)
                elif failure is not None:
                    raise failure
                elif reason.is_number and result is not None and (has_other or not reason.is_count):
                    raise TraceError(f"The model itself {reason.what}")
            if result is not None and not chosen:
                return result
            parts |= chosen
            if not parts:
                raise TraceError("There is no part that would hold for more if it stayed whole")
            result = failure = None
            try:
                result = self._on_fakes(
                    dynamic=True, with_data=True, whole=parts, most_operations=most_operations
                )
                reasons = self._reasons
            except CannotBeWholeError as error:
                impossible.add(error.part)
                reasons = [parts.pop(error.part)]
            except Exception as error:  # the model's own code runs here, and may raise anything
                failure = error
        raise TraceError(f"After {_MOST_RUNS} runs there are still parts that cannot be followed")

    def _on_fakes(
        self,
        *,
        dynamic: bool,
        batch_only: bool = False,
        with_data: bool = False,
        whole: Mapping[Part, Reason] | None = None,
        most_operations: int = MOST_OPERATIONS,
    ) -> _Traced:
        whole = whole and dict(whole)

        def record(training: bool | None = None, expected: RecordedNodes | None = None) -> _Recorded:
            fakes = FakeInputs(self._arguments, dynamic=dynamic, batch_only=batch_only, with_data=with_data)
            model = self._model
            one_thread = fakes.mode.one_thread = OneThread()
            made = TensorsMade()
            kept = state_kept(model, values=False), caches_bypassed(model, made), sizes_in_builtins(model)
            computing = arithmetic_remembered(fakes.shape_env, fakes.work), enable_python_dispatcher()
            # The dispatcher of Python can follow symbolic sizes into operators that are made of others.
            with RestoringStack(*kept, *computing):
                if training is not None:
                    set_modes(model, training)
                originals = put_fakes(self._model, fakes.mode)
                recorder = Recorder(
                    self._model,
                    self._leaves,
                    fakes.as_fake,
                    fakes.shape_env,
                    one_thread,
                    made,
                    originals,
                    whole=None if whole is None else WholeParts(whole, fakes),
                    most_operations=most_operations,
                    expected=expected,
                    after_call=fakes.after_call,
                )
                with RestoringStack(_random_numbers_of_checks(enabled=with_data), made, fakes.mode):
                    recorder.record(self._arguments, fakes.values, gradients=self._gradients)
            if fakes.given_up:
                recorder.recording.put_numbers_for({fakes.symbols[size] for size in fakes.given_up})
                recorder.recording.remove_unused()
            return _Recorded(recorder, fakes)

        first = record()
        nodes = first.nodes() if first.recorder.mode_reads.places else {}

        def is_same(training: bool) -> bool:
            try:
                return record(training, nodes).nodes() == nodes
            except Exception:  # the model's own code runs here, and may raise anything
                return False

        return self._finished(first, is_same, keeps_parts=whole is not None, computed_on_data=with_data)

    def _on_real_tensors(self) -> _Traced:
        fakes = FakeInputs(self._arguments, dynamic=False)
        one_thread, made = OneThread(), TensorsMade()
        real = RealTensors(fakes, one_thread)
        with torch.inference_mode(False):
            values = {a.name: map_tensors(lambda _, t: t.clone(), a.value) for a in self._arguments}
        model = self._model
        kept = state_kept(model), caches_bypassed(model, made)
        with RestoringStack(*kept, _random_numbers_of_checks(), real):
            originals = real.put_in(model)
            recorder = Recorder(
                model, self._leaves, fakes.as_fake, fakes.shape_env, one_thread, made, originals, real
            )
            with made:
                watched = {name: real.watch(value) for name, value in values.items()}
                recorder.record(self._arguments, watched, gradients=self._gradients)
        return self._finished(_Recorded(recorder, fakes), lambda training: False, computed_on_data=True)

    def _finished(
        self,
        recorded: _Recorded,
        is_same: Callable[[bool], bool],
        *,
        computed_on_data: bool,
        keeps_parts: bool = False,
    ) -> _Traced:
        recorder, fakes = recorded.recorder, recorded.fakes
        recording = recorder.recording
        result = assemble(self._model, recording.graph, recording.constants)
        findings = [*recording.findings]
        if self._wants_check and self._has_data:
            findings += check_against_eager(self._eager, result, fakes, on_other_data=computed_on_data)
            if any(finding.kind == "attribute" for finding in findings):
                findings += check_second_run(self._eager, result)
        findings += guard_sizes(
            recorder.conditions, result, fakes, self._eager if self._wants_check else None
        )
        result.recompile()
        result.meta["trace"] = tuple(findings)
        needless = {finding.what for finding in findings if THOUGH in finding.detail}
        self._remainders = len(fakes.remainders)
        self._reasons = fakes.reasons(needless, numbers=keeps_parts)
        return _Traced(result, recorder.mode_reads, is_same)


def _decisions(traced: GraphModule) -> int:
    """Return the number of decisions on data that a graph checks."""
    return sum(finding.kind == "branch on data" for finding in traced.meta["trace"])


def _modules(traced: GraphModule) -> set[Any]:
    """Return the paths of the modules that are one node each."""
    return {node.target for node in traced.graph.find_nodes(op="call_module")}


def _not_compiled() -> AbstractContextManager[None]:
    """Run what torch.compile has made as the Python that it was made of."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()  # nothing was compiled, and importing it takes a second
    return cast("AbstractContextManager[None]", torch.compiler.set_stance("force_eager"))


@contextmanager
def _random_numbers_of_checks(enabled: bool = True) -> Iterator[None]:
    """Draw the random numbers that a run for a comparison draws, in case that a model decides on them."""
    with torch.random.fork_rng(enabled=enabled):
        if enabled:
            torch.manual_seed(0)
        yield


@dataclass(frozen=True)
class _Step:
    """A rung of the ladder that was left."""

    rung: str
    cause: str
    """Why, in words and with the line of the model."""
    raw: str
    """What was raised, in full."""

    @classmethod
    def of(cls, rung: str, error: Exception) -> _Step:
        return cls(rung, f"{_cause(error)} {_at(error)}".strip(), f"{type(error).__name__}: {error}")


def _cause(error: Exception) -> str:
    if isinstance(error, GuardOnDataDependentSymNode):
        return "Python decides on data, or on a size that data decides on"
    return _first_line(error)


def _warn(report: TraceReport, steps: list[_Step]) -> None:
    limits = [
        f"{f.what} {f.detail} {f.where}"
        for f in report.findings
        if f.kind in ("branch on data", "gradient", "state") or THOUGH in f.detail or COSTLY in f.detail
    ]
    if len(limits) > _MOST_LIMITS:
        limits[_MOST_LIMITS:] = [f"and {len(limits) - _MOST_LIMITS} more, in meta['trace'].table()"]
    if report.steps_down:
        limits.insert(0, f"it was traced on {report.rung}, because of:")
        rungs: dict[str, list[str]] = {}
        for step in steps:
            rungs.setdefault(step.cause, []).append(step.rung)
        limits[1:1] = [f"  {'; '.join(names)}: {cause}" for cause, names in rungs.items()]
    if limits:
        lines = "\n  ".join(limits)
        warnings.warn(f"The graph holds for less than the model:\n  {lines}", TraceWarning, stacklevel=4)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _at(error: BaseException) -> str:
    found = where_raised(error)
    return f"(at {found})" if found else ""
