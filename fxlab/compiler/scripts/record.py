"""``compiler.record_compile``: record the work of ``torch.compile`` inside an unchanged script."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, Self

import torch
from torch import nn

from fxlab.base.first_use import pd
from fxlab.base.words import error_words
from fxlab.compiler.compile_session import CompileSession, linked
from fxlab.compiler.compiling.compiler import Compile, Compiler
from fxlab.compiler.compiling.stack import CompilerStack
from fxlab.compiler.graphs.flat import Frame
from fxlab.compiler.recording.recorder import Recorder
from fxlab.compiler.recording.steps import WHOLE, Recording
from fxlab.compiler.scripts.hooks import listening_to_script
from fxlab.compiler.scripts.script_recorder import ScriptRecorder
from fxlab.compiler.story.story import Story, story_table

_ONCE = "it was recorded while a script ran; a session of fxlab.compiler.compile_session has switches"
_ACTIVE = threading.Lock()
_ANSWERS = {"begin_pass": True, "begin_match": True, "captured": lambda *values: None}
"""The answers in place of a recorder that has raised: the script goes on as without it."""
_USAGE = "Write `with fxlab.compiler.record_compile() as record:` around the code to record."


@dataclass(eq=False, repr=False)
class CompileRecord:
    """The result of :func:`fxlab.compiler.record_compile`; complete when its one block has ended.

    Attributes
    ----------
    sessions : Mapping
        A :class:`fxlab.compiler.CompileSession` for each stack of passes over each graph that was compiled
        and run, by name: ``graph 1, inference``, or ``graph 1, joint``, ``forward`` and ``backward``.
    remarks : tuple of str
        The parts that could not be recorded, in words.
    """

    sessions: Mapping[str, CompileSession] = field(init=False)
    remarks: tuple[str, ...] = field(init=False)
    _story: Story = field(init=False)
    _block: AbstractContextManager[None] | None = field(init=False, default=None)

    def __repr__(self) -> str:
        names = ", ".join(vars(self).get("sessions", ()))
        return f"<CompileRecord: {names or 'nothing was compiled and run'}>"

    def story(self) -> pd.DataFrame:
        """List Dynamo's events of each function, in order, in all threads.

        Returns
        -------
        pandas.DataFrame
            A row for each event: Dynamo's number of the ``compile`` (``0/1`` is the second one of the first
            function); the ``function``; the ``kind``; the ``reason``, with ``explanation`` and ``hint`` in
            Dynamo's words where it has some; ``place`` (file and line) and ``code`` of the line that it is
            about; the ``seconds`` of a compile; and the number of the ``graph`` in this record. Kinds are

            ``compile``, ``recompile``
                The function was captured and compiled; a recompile names the guard that has failed, in
                Dynamo's words, and the line because of which it is there.
            ``break``, ``skip``, ``limit``, ``error``
                A graph ends; the function is left to Python, was compiled too often, or its compile raised.

        Examples
        --------
        >>> import torch
        >>> double = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
        >>> with record_compile() as record:
        ...     _ = double(torch.ones(2)), double(torch.ones(3))
        >>> record.story()["kind"].tolist()
        ['compile', 'recompile']
        """
        return story_table(self._story.events)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each stack of passes over a graph, which it names by its number.

        It has Dynamo's number of the ``compile``, how many passes have run and changed the graph, its nodes
        before and after, and why and at which line Dynamo has ended it; empty at the end of the code.
        """
        rows = []
        for name, session in self.sessions.items():
            graph, _, stack = name.partition(", ")
            reason = session.graph_break
            ended = (reason.reason, reason.place) if reason else ("", "")
            number, changed = int(graph.removeprefix("graph ")), len(session.passes)
            before, after = (len(module.graph.nodes) for module in (session.original, session.stages[-1]))
            counts = changed + len(session.unchanged), changed, before, after
            rows.append((number, session.compile_number, stack, *counts, *ended))
        counted = "passes", "changed", "nodes_before", "nodes_after"
        columns = ["graph", "compile", "stack", *counted, "break_reason", "break_line"]
        return pd.DataFrame(rows, columns=columns)

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write its tables and remarks into a folder: ``graphs.csv``, ``story.csv`` and so on; runs nothing.

        ``folder``: is made if it does not exist, and returned. Raises OSError if it cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> with record_compile() as record:
        ...     _ = torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(file.name for file in record.write(folder).iterdir())
        ['graphs.csv', 'remarks.txt', 'story.csv']
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in (("graphs", self.table), ("story", self.story())):
            table.to_csv(folder / f"{name}.csv", index=False)
        (folder / "remarks.txt").write_text("".join(f"{line}\n" for line in self.remarks), "utf-8")
        return folder

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Record, and fill the fields."""
        if not _ACTIVE.acquire(blocking=False):
            raise RuntimeError(
                "record_compile: another one records in this process, and its patches are those of the "
                "process. Begin this one when that has ended; one of `fxlab compile -- COMMAND` ends with "
                "the process."
            )
        try:
            recorder = ScriptRecorder()
            self.sessions, self.remarks, self._story = MappingProxyType({}), (), recorder.story
            remarks: list[str] = []
            listener: Any = Guarded(recorder, recorder.remarks, _ANSWERS)
            try:
                with listening_to_script(listener, recorder.story) as remarks:
                    yield
            finally:
                recorder.finish()
                self.sessions, self.remarks = linked(*_sessions(recorder, remarks))
        finally:
            _ACTIVE.release()

    def __enter__(self) -> Self:
        """Begin to record."""
        if self._block is not None:
            raise RuntimeError(f"A record has one block, and this one has had its. {_USAGE}")
        block = self._recording()
        block.__enter__()
        self._block = block
        return self

    def __exit__(self, *error: Any) -> bool | None:
        """Complete the record."""
        return None if self._block is None else self._block.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        if self._block is None:
            raise AttributeError(f"Nothing has been recorded yet. {_USAGE}", name="", obj=None)
        raise AttributeError(f"'CompileRecord' object has no attribute {name!r}")


def record_compile() -> CompileRecord:
    """Record the work of ``torch.compile`` for the code of a block, which is not changed.

    It compiles as it does without: any backend, options, graph breaks and passes of one's own, with generated
    code. Compiled graphs are not read from caches on disk. Code compiled before the block is not seen: call
    ``torch.compiler.reset()`` before. Nor is that of another thread, of which ``remarks`` tell.

    Returns
    -------
    CompileRecord
        For one ``with`` block; complete when that has ended, also by an exception.

    Raises
    ------
    RuntimeError
        When the block begins, if another record is being made in this process.

    Examples
    --------
    >>> def double(x):
    ...     return x + x
    >>> with record_compile() as record:
    ...     _ = torch.compile(double, backend="eager")(torch.ones(2))
    >>> list(record.sessions)
    ['graph 1, inference']
    >>> record.table["nodes_before"].item()
    3
    """
    return CompileRecord()


class Recorded(Compiler):
    """Recorded compiles of a script, in place of a compiler."""

    recorded_by = "with fxlab.compiler.record_compile() as record:\n    run()  # what compiles"

    def __init__(self, recorder: Recorder, frames: list[Frame], recordings: list[Recording]) -> None:
        recorder.recordings = recordings
        self.frames, self.remarks = frames, []
        self.first = Compile(frozenset(), {}, recorder)

    def compile(self, *asked: Any, **settings: Any) -> NoReturn:
        """Refuse: the script's own work between its compiles cannot be repeated."""
        raise ValueError(f"The passes of this session cannot be switched: {_ONCE}.")


def _sessions(recorder: ScriptRecorder, remarks: list[str]) -> tuple[dict[str, CompileSession], list[str]]:
    """Return the sessions of all graphs, by name, and the remarks."""
    crash = [] if recorder.crash is None else [f"{recorder.crash}. The stages before it are shown."]
    told = list(dict.fromkeys([*crash, *remarks, *recorder.remarks]))
    frames: list[tuple[str, Frame, Recording]] = []
    for number, recording in enumerate(recorder.recordings, 1):
        if not recording.copies and recording.stacks[WHOLE].first.graph.find_nodes(op="placeholder"):
            told.append(
                f"graph {number}: its inputs are not known: it has not run, or a backend made it of another."
            )
            continue
        for stack in recording.stacks.values():
            for step in stack.steps:
                step.fixed, step.can_exclude = _ONCE, False
        try:
            frames.append((f"graph {number}", frame := _frame(recorder, recording), recording))
            told += [words for words in frame.remarks if words not in told]
        except Exception as error:  # of a backend that gives on a graph of another kind
            told.append(f"graph {number}: its stages cannot be made: {error_words(error)}")
    compiler = Recorded(recorder, [frame for _, frame, _ in frames], [one for _, _, one in frames])
    sessions: dict[str, CompileSession] = {}
    for place, (graph, _, recording) in enumerate(frames):
        for kind, stack in recording.stacks.items():
            name = f"{graph}, {stack.name}"
            try:
                sessions[name] = CompileSession(CompilerStack(compiler, place, kind))
            except Exception as error:
                told.append(f"{name}: its stages cannot be made: {error_words(error)}")
    return sessions, told


def _frame(recorder: ScriptRecorder, recording: Recording) -> Frame:
    model = recorder.models.get(id(recording), nn.Module())
    held = {id(value) for value in (*model.parameters(), *model.buffers())}
    places = {
        name: place
        for name, place in recorder.inputs.get(id(recording), {}).items()
        if isinstance(recording.values[place], torch.Tensor) and id(recording.values[place]) not in held
    }
    ran = {name: recording.values[place] for name, place in places.items()}
    given = {name: recording.copies[place] for name, place in places.items()}
    # Where some have no name that is known, all are inputs under Dynamo's names.
    tensors = sum(isinstance(value, torch.Tensor) and id(value) not in held for value in recording.values)
    known = (given, ran) if len(places) == tensors else ({}, {})
    return Frame(model, *known, recording)


class Guarded:
    """Forwards calls to a listener. After its first exception, records a remark and returns ``answers``."""

    def __init__(self, listener: Any, remarks: list[str], answers: Mapping[str, Any]) -> None:
        self._listener, self._remarks, self._answers = listener, remarks, answers
        self._has_raised = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self._call, getattr(self._listener, name), self._answers.get(name))

    def _call(self, method: Callable[..., Any], answer: Any, *args: Any, **kwargs: Any) -> Any:
        if self._has_raised:
            return answer
        try:
            result = method(*args, **kwargs)
        except Exception as error:
            self._has_raised = True
            self._remarks.append(f"Nothing was recorded any more when this was raised: {error_words(error)}")
            return answer
        return functools.partial(self._call, result, None) if callable(result) else result
