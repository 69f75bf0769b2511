"""Records the passes of a pipeline inside unchanged code."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType, MappingProxyType
from typing import Any

from torch.export import ExportedProgram

from fxlab.base.author_frames import error_words
from fxlab.base.checks import items_of, type_error
from fxlab.base.first_use import pd
from fxlab.compiler.compiling.compiler import StageFrame
from fxlab.compiler.compiling.stack import CompilerStack
from fxlab.compiler.pipelines.hooks import listening_to_passes
from fxlab.compiler.pipelines.pipeline import PassRecorder, Pipeline, PipelineFrame
from fxlab.compiler.recording.recorder import Guarded, Recorder
from fxlab.compiler.scripts.record import COUNTS, Recorded, RecordingContext, alone, counts_of
from fxlab.models.running.running import Inputs, given_arguments

_ACTIVE = threading.Lock()


@dataclass(eq=False, repr=False)
class PassRecord(RecordingContext):
    """The result of :func:`fxlab.compiler.record_passes`; complete when its block has ended.

    Its ``sessions`` are those of each graph that passes were run on, ``pipeline 1`` and so on; ``remarks``
    name what is missing.
    """

    _inputs: Inputs | ExportedProgram | None = field(init=False)
    _functions: tuple[FunctionType, ...] = field(init=False)
    _function = "record_passes"
    _nothing = "no pass has run"

    @property
    def table(self) -> pd.DataFrame:
        """The passes of each graph that have run and changed it, counted, and its nodes before and after.

        ``seconds`` is the time that the passes have taken; ``times()`` has that of each.
        """
        seconds = self.times().groupby("pipeline")["seconds"].sum()
        rows = [
            (name, *counts_of(session), seconds.get(name, 0.0)) for name, session in self.sessions.items()
        ]
        return pd.DataFrame(rows, columns=["pipeline", *COUNTS, "seconds"])

    def times(self) -> pd.DataFrame:
        """List the passes that have run: ``pipeline``, ``pass``, whether it ``changed`` it, ``seconds``."""
        rows = [
            (name, step.name, step.is_change, step.seconds)
            for name, session in self.sessions.items()
            for step in session.steps
            if not math.isnan(step.seconds)
        ]
        return pd.DataFrame(rows, columns=["pipeline", "pass", "changed", "seconds"])

    @contextmanager
    def _recording(self) -> Iterator[None]:
        with alone(_ACTIVE, self._function):
            self.sessions, self.remarks, recorder = MappingProxyType({}), (), PassRecorder()
            remarks: list[str] = []
            listener: Any = Guarded(recorder, recorder.remarks, {})
            try:
                with listening_to_passes(listener, self._functions) as remarks:
                    yield
            finally:
                told = [*remarks, *recorder.remarks]
                self._complete(*_stacks(recorder.pipelines, told, self._inputs))


def record_passes(
    inputs: Inputs | ExportedProgram | None = None, *, functions: Iterable[Callable[..., Any]] = ()
) -> PassRecord:
    """Record the passes that the code of a block runs, which is not changed.

    These are passes that derive from torch's ``PassBase``, those that a ``PassManager`` runs, functions too,
    ``ExportedProgram.run_decompositions``, and the ``functions``. Of passes inside of passes, only the
    outermost is recorded. Each that has changed a graph becomes a stage, under the name of its class or
    function; changes between passes are stages too.

    Parameters
    ----------
    inputs
        The inputs of the graphs, to judge them, as for :class:`fxlab.Session`; or the exported program that
        they are the graph of, which also has their parameters. A program that is decomposed in the block
        tells both by itself. Unknown inputs are made up of the shapes in ``meta["val"]``: random numbers, and
        zeros for whole numbers. A graph without shapes has no inputs.
    functions
        Plain functions whose first argument is a graph module, such as PT2E's ``prepare_pt2e`` and
        ``convert_pt2e``, or ``functools.partial`` of such: each call of one in the block is a pass, under
        every name it is called by.

    Returns
    -------
    PassRecord
        For one ``with`` block; complete when that has ended, also by an exception.

    Raises
    ------
    TypeError
        If no model can be called with ``inputs``, or one of ``functions`` is not a function
        that is written in Python.
    RuntimeError
        When the block begins, if another record is being made in this process.

    Examples
    --------
    >>> import torch
    >>> from torch.fx.passes.infra.pass_base import PassBase, PassResult
    >>> class ReplaceRelu(PassBase):
    ...     def call(self, graph_module):
    ...         for node in graph_module.graph.find_nodes(op="call_function", target=torch.relu):
    ...             node.target = torch.sigmoid
    ...         return PassResult(graph_module, True)
    >>> with record_passes(torch.ones(2)) as record:
    ...     _ = ReplaceRelu()(torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1))
    >>> print(record.sessions["pipeline 1"].verdict("ReplaceRelu").status)
    different
    """
    if inputs is not None and not isinstance(inputs, ExportedProgram):
        given_arguments(inputs)
    passes: dict[FunctionType, None] = {}
    for function in items_of(functions, "functions", "functions of a graph module"):
        while isinstance(function, functools.partial):
            function = function.func
        if not isinstance(function, FunctionType):
            raise type_error("functions", "functions that are written in Python", function)
        passes[function] = None
    record = PassRecord()
    record._inputs, record._functions = inputs, tuple(passes)
    return record


class _RecordedPipelines(Recorded):
    """Recorded pipelines, in place of a compiler."""

    recorded_by = "with fxlab.compiler.record_passes() as record:\n    run()  # the pipeline"

    def __init__(self, frames: list[PipelineFrame]) -> None:
        super().__init__(Recorder(), [], [frame.pipeline.recording for frame in frames])
        self._frames = frames

    def frame_of(self, number: int) -> StageFrame:
        """Return the facts that the stages of a pipeline have in common."""
        return self._frames[number]


def _stacks(
    pipelines: list[Pipeline], remarks: list[str], inputs: Inputs | ExportedProgram | None
) -> tuple[dict[str, Callable[[], CompilerStack]], list[str]]:
    """Return what makes the stacks of all pipelines, by name, and the remarks."""
    told = list(dict.fromkeys(remarks))
    frames: dict[str, PipelineFrame] = {}
    for number, pipeline in enumerate(pipelines, 1):
        name = f"pipeline {number}"
        pipeline.finish()
        told += [f"{name}: {words}" for words in pipeline.remarks]
        try:
            try:
                frames[name] = PipelineFrame(pipeline, inputs)
            except ValueError as error:
                told.append(f"{name}: its inputs are made up: {error}.")
                frames[name] = PipelineFrame(pipeline, None)
        except Exception as error:
            told.append(f"{name}: its stages cannot be made: {error_words(error)}")
    recorded = _RecordedPipelines([*frames.values()])
    made = {
        name: functools.partial(CompilerStack, recorded, place, "whole") for place, name in enumerate(frames)
    }
    return {**made}, told
