"""Model in, executable and readable graph module out."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import GraphModule

from fxlab.checks import names_in
from fxlab.interrupts import RestoringStack, interrupts_noted
from fxlab.nested import map_tensors
from fxlab.tracing.arguments import Argument, bound_arguments
from fxlab.tracing.assemble import assemble
from fxlab.tracing.caches import caches_bypassed
from fxlab.tracing.checking import Eager, check_against_eager, check_second_run
from fxlab.tracing.example_inputs import example_inputs
from fxlab.tracing.fake_inputs import FakeInputs
from fxlab.tracing.fake_state import put_fakes
from fxlab.tracing.leaf_modules import Choice, LeafModules
from fxlab.tracing.module_state import attribute_of, has_data, module_state_kept
from fxlab.tracing.parts import Part, Reason, parts_raising
from fxlab.tracing.recorder import Recorder
from fxlab.tracing.recording import FEW_OPERATIONS, MOST_OPERATIONS, SizeError
from fxlab.tracing.report import (
    BATCH,
    DATA,
    DYNAMIC,
    FIXED,
    REAL,
    WHOLE,
    TraceError,
    TraceReport,
    TraceWarning,
)
from fxlab.tracing.size_arithmetic import arithmetic_remembered
from fxlab.tracing.size_builtins import sizes_in_builtins
from fxlab.tracing.size_guards import THOUGH, guard_sizes
from fxlab.tracing.source_lines import where_raised
from fxlab.tracing.tensors_made import TensorsMade
from fxlab.tracing.whole_parts import CannotBeWholeError, WholeParts

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

    The model is run once, on tensors without data, and what it calls is recorded. Where it decides on data,
    it is run on the inputs themselves. The model is left as it was; the result shares its parameters.

    Parameters
    ----------
    model
        Any module. It is traced in the mode (training or not) that it is in.
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
        If an argument is not what it should be, or inputs are needed and not given.
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
    names = None if input_names is None else names_in(input_names, "input_names")
    if inputs is None:
        inputs = example_inputs(model, input_names=names)
    elif names is not None:
        if not isinstance(inputs, Mapping) or not set(names) <= inputs.keys():
            raise ValueError(f"input_names: inputs must be a mapping that has each of {', '.join(names)}")
        inputs = {name: inputs[name] for name in names}
    ladder = _Ladder(model, bound_arguments(model, inputs), leaves, check)
    with _not_compiled(), interrupts_noted() as interrupted:
        return ladder.climb_down(dynamic, interrupted)


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
        self._failure: Exception | None = None

    def climb_down(self, dynamic: bool, interrupted: Callable[[], bool]) -> GraphModule:
        rungs: list[tuple[str, Callable[[], GraphModule]]] = []
        if dynamic:
            rungs.append((DYNAMIC, lambda: self._on_fakes(dynamic=True)))
            if self._has_data:
                rungs.append((DATA, lambda: self._on_fakes(dynamic=True, with_data=True)))
                rungs.append((WHOLE, self._with_parts_whole))
            rungs.append((BATCH, lambda: self._on_fakes(dynamic=True, batch_only=True)))
        rungs.append((FIXED, lambda: self._on_fakes(dynamic=False)))
        if self._has_data:
            rungs.append((REAL, self._on_real_tensors))
        steps: list[str] = []
        for rung, record in rungs:
            if rung == DATA and isinstance(self._failure, SizeError):
                continue  # sizes would be as complicated
            try:
                result = record()
            except Exception as error:  # the model's own code runs here, and may raise anything
                if interrupted():
                    raise KeyboardInterrupt from error
                steps.append(f"{rung}: {_first_line(error)} {_at(error)}".strip())
                self._failure = error
                continue
            self._failure = None
            if rung in (DYNAMIC, DATA) and self._reasons and (better := self._holding_for_more()):
                steps.append(f"{rung}: {self._reasons[0].what} (at {self._reasons[0].where})")
                rung, result = WHOLE, better
            if interrupted():
                raise KeyboardInterrupt
            report = result.meta["trace"] = TraceReport(rung, result.meta["trace"], tuple(steps))
            _warn(report)
            return result
        last = self._failure
        assert last is not None
        if isinstance(last, TraceError):
            raise last
        raise TraceError(
            f"{type(self._model).__name__} could not be traced. Run on {rung}, it raised "
            f"{type(last).__name__}: {_first_line(last)} {_at(last)}\n"
            "Check that the model runs on these inputs; a module that cannot be recorded can be named in "
            "leaf_modules."
        ) from last

    def _holding_for_more(self) -> GraphModule | None:
        """Return a graph for other sizes and data than those that what was recorded holds for."""
        reasons = self._reasons
        try:
            return self._with_parts_whole() if self._has_data else None
        except Exception:  # there is a graph that holds for the inputs
            return None
        finally:
            self._reasons = reasons

    def _with_parts_whole(self) -> GraphModule:
        """Keep those parts whole that make a plain number of a size or of data, or cannot be recorded."""
        parts: dict[Part, Reason] = {}
        # Nothing would be left of a model of which all but the head is one node.
        base = attribute_of(self._model, "base_model")
        impossible: set[Part] = {type(self._model)}
        if isinstance(base, nn.Module):
            impossible.add(type(base))
        result: GraphModule | None = None
        # The run before this rung has told the first parts.
        failure, reasons = self._failure, self._reasons
        has_other = failure is None  # one that can be read more easily, and holds for as many images
        most_operations = FEW_OPERATIONS if isinstance(failure, SizeError) else MOST_OPERATIONS
        for _ in range(_MOST_RUNS):
            if failure is not None:
                reasons = [Reason(parts_raising(failure), f"raises {_first_line(failure)}", _at(failure))]
            chosen: dict[Part, Reason] = {}
            for reason in reasons:
                part = next((p for p in reason.running if p not in impossible and p not in parts), None)
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
    ) -> GraphModule:
        fakes = FakeInputs(self._arguments, dynamic=dynamic, batch_only=batch_only, with_data=with_data)
        model = self._model
        kept = module_state_kept(model), caches_bypassed(model), sizes_in_builtins(model)
        computing = arithmetic_remembered(fakes.shape_env), enable_python_dispatcher()
        # The dispatcher of Python can follow symbolic sizes into operators that are made of others.
        with RestoringStack(*kept, *computing):
            originals = put_fakes(self._model, fakes.mode)
            recorder = Recorder(
                self._model,
                self._leaves,
                fakes.as_fake,
                originals,
                new_decisions=fakes.new_decisions,
                whole=None if whole is None else WholeParts(whole, fakes),
                most_operations=most_operations,
            )
            with RestoringStack(_random_numbers_of_checks(enabled=with_data), fakes.mode):
                recorder.record(self._arguments, fakes.values)
        return self._finished(recorder, fakes, keeps_parts=whole is not None)

    def _on_real_tensors(self) -> GraphModule:
        fakes = FakeInputs(self._arguments, dynamic=False)
        made = TensorsMade()
        recorder = Recorder(self._model, self._leaves, fakes.as_fake, made=made)
        with torch.inference_mode(False):
            values = {a.name: map_tensors(lambda _, t: t.clone(), a.value) for a in self._arguments}
        kept = module_state_kept(self._model, values=True), caches_bypassed(self._model)
        with RestoringStack(*kept, _random_numbers_of_checks(), made):
            recorder.record(self._arguments, values)
        return self._finished(recorder, fakes)

    def _finished(self, recorder: Recorder, fakes: FakeInputs, *, keeps_parts: bool = False) -> GraphModule:
        recording = recorder.recording
        result = assemble(self._model, recording.graph, recording.constants)
        findings = [*recording.findings]
        if self._wants_check and self._has_data:
            findings += check_against_eager(self._eager, result, fakes)
            if any(finding.kind == "attribute" for finding in findings):
                findings += check_second_run(self._eager, result)
        findings += guard_sizes(
            recorder.conditions, result, fakes, self._eager if self._wants_check else None
        )
        result.recompile()
        result.meta["trace"] = tuple(findings)
        needless = {finding.what for finding in findings if THOUGH in finding.detail}
        self._reasons = fakes.reasons(needless, numbers=keeps_parts)
        return result


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


def _warn(report: TraceReport) -> None:
    limits = [
        f"{f.what} {f.detail} {f.where}"
        for f in report.findings
        if f.kind in ("branch on data", "gradient", "state") or THOUGH in f.detail
    ]
    if len(limits) > _MOST_LIMITS:
        limits[_MOST_LIMITS:] = [f"and {len(limits) - _MOST_LIMITS} more, in meta['trace'].table()"]
    if report.steps_down:
        limits.insert(0, f"it was traced on {report.rung}, because of:")
        limits[1:1] = [f"  {step}" for step in report.steps_down]
    if limits:
        lines = "\n  ".join(limits)
        warnings.warn(f"The graph holds for less than the model:\n  {lines}", TraceWarning, stacklevel=4)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _at(error: BaseException) -> str:
    found = where_raised(error)
    return f"(at {found})" if found else ""
