"""Records what ``torch.compile`` does inside of an unchanged script."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab.author_frames import error_words
from fxlab.compiler.compiling.compiler import Compile, Compiler
from fxlab.compiler.compiling.stack import CompilerStack
from fxlab.compiler.graphs.flat import Frame
from fxlab.compiler.guarded import Guarded
from fxlab.compiler.hooks import PHASES
from fxlab.compiler.recording.recorder import WHOLE, Recorder, Recording
from fxlab.compiler.scripts.hooks import listening_to_script
from fxlab.compiler.scripts.record_folder import write_texts
from fxlab.compiler.sessions.compile_session import CompileSession
from fxlab.compiler.story.story import Story, guards_table, story_table
from fxlab.tracing.dynamo.hooks import origin_of
from fxlab.transformations.candidate_filter import Limit

if TYPE_CHECKING:
    import pandas as pd

_ONCE = "it was recorded while a script ran; a session of fxlab.compile_session has switches"
_ACTIVE = threading.Lock()
_ANSWERS = {"begin_pass": True, "begin_match": True, "captured": lambda *values: None}
"""What a recorder that has raised would answer: the script goes on as without it."""


@dataclass(eq=False)
class CompileRecord:
    """The result of :func:`fxlab.record_compile`; complete when its block has ended.

    Attributes
    ----------
    sessions : Mapping
        A :class:`fxlab.CompileSession` for each stack of passes over each graph that was compiled and run, by
        name: ``graph 1, inference``, or ``graph 1, joint``, ``forward`` and ``backward``.
    remarks : tuple of str
        What could not be recorded, in words.
    """

    sessions: Mapping[str, CompileSession]
    remarks: tuple[str, ...]
    _story: Story = field(default_factory=Story, repr=False, init=False)

    def story(self) -> pd.DataFrame:
        """List what Dynamo has done with each function, in order, in all threads.

        Returns
        -------
        pandas.DataFrame
            A row for each event: Dynamo's number of the ``compile`` (``0/1`` is the second one of the first
            function); the ``function``; the ``kind``; the ``reason``, with ``explanation`` and ``hint`` in
            Dynamo's words where it has some; ``place`` (file and line) and ``code`` of the line that it is
            about; the ``seconds`` of a compile; and the number of the ``graph`` in this record. Kinds are

            ``compile``, ``recompile``
                The function was captured and compiled; a recompile says which value has changed, from what to
                what, and which line reads it.
            ``discard``
                A capture was thrown away and begun anew.
            ``break``, ``skip``, ``limit``, ``error``
                A graph ends at a line; the function is left to Python; it has been compiled too often; its
                compile has raised an error.
            ``symbol``, ``specialise``
                A size is a symbol, in a range or under a condition; a symbol was taken for a number.

        Examples
        --------
        >>> import torch
        >>> double = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
        >>> with record_compile() as record:
        ...     _ = double(torch.ones(2)), double(torch.ones(3))
        >>> record.story()["reason"].tolist()
        ['', 'x.size(0) was 2, is 3 (compile 2 of <lambda>)']
        """
        return story_table(self._story.events)

    def guards(self) -> pd.DataFrame:
        """List the guards of each compile: what a call must fulfil to use it.

        Returns
        -------
        pandas.DataFrame
            A row for each guard: the number of the ``compile``, the ``function``, the ``guard`` in the names
            of the function, and ``place`` and ``code`` of the line because of which it is there, if that is
            known.
        """
        return guards_table(self._story)

    def table(self) -> pd.DataFrame:
        """List the graphs: a row for each stack of passes.

        Returns
        -------
        pandas.DataFrame
            The number of the graph, Dynamo's number of its ``compile``, the stack, how many passes have run
            and changed it, its nodes before and after, and why and at which line Dynamo has ended it; empty
            at the end of the code.
        """
        import pandas as pd

        rows = []
        for name, session in self.sessions.items():
            graph, _, stack = name.partition(", ")
            reason = session.graph_break
            ended = (reason.reason, reason.place) if reason else ("", "")
            number = int(graph.removeprefix("graph "))
            rows.append((number, session.compile_number, stack, *counts_of(session), *ended))
        columns = ["graph", "compile", "stack", *COUNTS, "break_reason", "break_line"]
        return pd.DataFrame(rows, columns=columns)

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write it as a folder of texts, which ``diff -r`` compares with another one, beside a report.

        The folder has ``report.html``, tables (``graphs.csv``, ``story.csv``, ``guards.csv``) and
        ``remarks.txt``. For each stack of passes there is a folder with each stage (a line for each node,
        nested by module), its difference to the stage before it, ``passes.csv``, and ``patterns.csv`` with
        the matches of each pattern and what came of its nearest miss. Nothing is run.

        Parameters
        ----------
        folder
            The folder, which is made if it does not exist.

        Returns
        -------
        pathlib.Path
            The folder.

        Raises
        ------
        OSError
            If it cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> with record_compile() as record:
        ...     _ = torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(file.name for file in record.write(folder).iterdir())
        ['graph-1-inference', 'graphs.csv', 'guards.csv', 'remarks.txt', 'report.html', 'story.csv']
        """
        path = self.write_texts(folder)
        if self.sessions:
            import_module("fxlab.html_report.report").report_several(
                self.sessions, path / "report.html", notes=self.remarks, measure=False, skip_failing=True
            )
        return path

    def write_texts(self, folder: str | os.PathLike[str]) -> Path:
        """Write all of :meth:`write` but the report."""
        tables = {"graphs": self.table(), "story": self.story(), "guards": self.guards()}
        write_texts(Path(folder), tables, self.remarks, self.sessions)
        return Path(folder)

    def __repr__(self) -> str:
        return f"<CompileRecord: {', '.join(self.sessions) or 'nothing was compiled and run'}>"


@contextmanager
def record_compile() -> Iterator[CompileRecord]:
    """Record what ``torch.compile`` does for the code of a block, which is not changed.

    It compiles as it does without: any backend, options, graph breaks and passes of one's own, with
    generated code. So does AOTInductor with exported programs. Compiled graphs are not read from caches on
    disk. What was compiled before the block, and what another thread compiles, is not seen; ``remarks`` name
    the functions.

    Yields
    ------
    CompileRecord
        Complete when the block has ended, also by an exception.

    Raises
    ------
    RuntimeError
        If another record is being made in this process.

    Examples
    --------
    >>> def double(x):
    ...     return x + x
    >>> with record_compile() as record:
    ...     _ = torch.compile(double, backend="eager")(torch.ones(2))
    >>> list(record.sessions)
    ['graph 1, inference']
    >>> record.table()["nodes_before"].item()
    3
    """
    with alone(_ACTIVE, "record_compile"):
        recorder = _ScriptRecorder()
        record = CompileRecord(MappingProxyType({}), ())
        record._story = recorder.story
        remarks: list[str] = []
        listener = Guarded(recorder, recorder.remarks, _ANSWERS)
        try:
            with listening_to_script(listener, recorder.story) as remarks:
                yield record
        finally:
            recorder.finish()
            _complete(record, recorder, remarks)


@contextmanager
def alone(active: threading.Lock, function: str) -> Iterator[None]:
    """Hold a lock while a function records, or raise the ``RuntimeError`` that another one does."""
    if not active.acquire(blocking=False):
        raise RuntimeError(
            f"{function}: another one records in this process, and its patches are those of the process. "
            "Begin this one when that has ended."
        )
    try:
        yield
    finally:
        active.release()


COUNTS = ("passes", "changed", "nodes_before", "nodes_after")


def counts_of(session: CompileSession) -> tuple[int, int, int, int]:
    """Return how many passes have run and how many changed the graph, and its nodes before and after."""
    changed = len(session.passes)
    before, after = (len(module.graph.nodes) for module in (session.original, session.stages[-1]))
    return changed + len(session.unchanged), changed, before, after


def linked(
    sessions: dict[str, CompileSession], remarks: Iterable[str]
) -> tuple[Mapping[str, CompileSession], tuple[str, ...]]:
    """Return the sessions and remarks of a record, which each of the sessions has as well."""
    known, told = MappingProxyType(sessions), tuple(remarks)
    for session in sessions.values():
        session.graphs, session.remarks = known, told
    return known, told


class _ScriptRecorder(Recorder):
    """Takes each graph of Dynamo for a recording, whatever its backend does with it."""

    def __init__(self) -> None:
        super().__init__(lambda kind, name: True, lambda kind, name, anchor, made: True)
        self.models: dict[int, nn.Module] = {}
        self.inputs: dict[int, dict[str, int]] = {}
        self._waits = self._compiles = False
        self._captured: Recording | None = None

    def captured(
        self, graph_module: GraphModule, model: nn.Module | None, modules: Mapping[str, nn.Module]
    ) -> Callable[..., None]:
        """Begin with a graph of Dynamo; returns what notes the values that it runs on."""
        self.modules_read = modules
        super()._begin_graph(graph_module)
        self._waits, self._compiles, self._given = True, True, weakref.ref(graph_module)
        recording = self._captured = self._recording
        self.models[id(recording)] = nn.Module() if model is None else model
        names = self.inputs[id(recording)] = {}
        for place, node in enumerate(graph_module.graph.find_nodes(op="placeholder")):
            origin = origin_of(node)
            if origin is not None and not origin.in_module:
                names["_".join((origin.root, *origin.steps))] = place

        return self._noting(recording)

    def _noting(self, recording: Recording) -> Callable[..., None]:
        """Return what notes the values that a graph runs on."""

        def note(values: tuple[Any, ...]) -> None:
            current, self._recording = self._recording, recording
            self.called(values)
            self._recording = current

        return note

    def of_other_thread(self, function: str) -> None:
        """Remark on what another thread compiles."""
        words = f"Another thread has compiled {function}; its graphs are not shown, only its story."
        if words not in self.remarks:
            self.remarks.append(words)

    def ran_before(self, function: str) -> None:
        """Remark on code that ran and was compiled before."""
        words = (
            f"{function} was compiled before the record, and ran: its graph is not shown. Compile it inside "
            "of the block, or call torch.compiler.reset() before."
        )
        if words not in self.remarks:
            self.remarks.append(words)

    def begin_part(self) -> None:
        """Note which graph was compiled before."""
        self._before = len(self.recordings)

    def end_part(self, code: Callable[..., Any]) -> Callable[..., None] | None:
        """Return what notes the values of a part of Dynamo's graph; it belongs to the same model."""
        if len(self.recordings) == self._before:
            return None
        recording = self.recordings[-1]
        recording.code = code
        if self._captured is not None:
            self.models[id(recording)] = self.models[id(self._captured)]
        return self._noting(recording)

    def generated(self, code: Callable[..., Any]) -> None:
        """Note what the backend has returned for the graph that was captured last."""
        if self._captured is not None:
            self._captured.code = code

    def compiled(self) -> None:
        """Note that the backend has done its work."""
        self._compiles = False

    def _begin_graph(self, graph_module: GraphModule) -> None:
        """Go on with the graph of Dynamo if the backend has given it on, else begin with another one."""
        if self._waits:
            self._waits = False
            names = [[node.name for node in g.nodes] for g in (self._now.first.graph, graph_module.graph)]
            # A part of it, which a backend compiles alone, may take the same inputs.
            if graph_module is self._given() or names[0] == names[1]:
                self._note_between(graph_module, "pre_grad/before its passes")
                return
        super()._begin_graph(graph_module)

    def _enter(self, phase: str, graph_module: GraphModule) -> None:
        if not self.recordings:
            super()._begin_graph(graph_module)
            return
        saved = _saved_names(graph_module)
        if phase == PHASES[2] and saved is not None and not self._compiles:
            self._find_forward(saved, graph_module)
        super()._enter(phase, graph_module)

    def _find_forward(self, saved: set[str], graph_module: GraphModule) -> None:
        """Go back to the graph that a backward graph belongs to, which is compiled when it first runs."""
        found = [one for one in self.recordings if "backward" not in one.stacks and _saves(one, saved)]
        if len(found) != 1:
            self.remarks.append("A backward graph was compiled late, and it is not known of which graph.")
            # One of its own, which has not run and is not shown.
            super()._begin_graph(graph_module)
            return
        self._recording, self._made = found[0], dict(found[0].stacks["forward"].first.made)


def _saved_names(graph_module: GraphModule) -> set[str] | None:
    """Return what a backward graph reads beside gradients; ``None`` for another graph."""
    names = {node.name for node in graph_module.graph.find_nodes(op="placeholder")}
    tangents = {name for name in names if name.startswith("tangents")}
    return names - tangents if tangents else None


def _saves(recording: Recording, names: set[str]) -> bool:
    """Tell whether the last values that a forward graph returns, which it saves, have these names."""
    stack = recording.stacks.get("forward")
    if stack is None:
        return False
    returned: Any = stack.first.graph.output_node().args[0]
    return {getattr(value, "name", "") for value in returned[len(returned) - len(names) :]} == names


class Recorded(Compiler):
    """Recorded compiles of a script, in place of a compiler."""

    why_no_options = _ONCE
    recorded_by = "with fxlab.record_compile() as record:\n    run()  # what compiles"

    def __init__(self, recorder: Recorder, frames: list[Frame], recordings: list[Recording]) -> None:
        recorder.recordings = recordings
        self.frames, self.remarks = frames, []
        self.first = Compile(frozenset(), {}, {}, recorder)

    def compile(
        self,
        number: int,
        kind: str,
        off: frozenset[str],
        limits: Mapping[str, Limit],
        options: Mapping[str, Any],
        *,
        generates: bool = False,
    ) -> NoReturn:
        """Refuse: what the script did between its compiles is not done again."""
        raise ValueError(f"The passes of this session cannot be switched: {_ONCE}.")


def _complete(record: CompileRecord, recorder: _ScriptRecorder, remarks: list[str]) -> None:
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
    for place, (name, _, recording) in enumerate(frames):
        for kind, stack in recording.stacks.items():
            try:
                session = CompileSession(CompilerStack(compiler, place, kind), tuple(told))
            except Exception as error:
                told.append(f"{name}, {stack.name}: its stages cannot be made: {error_words(error)}")
                continue
            sessions[f"{name}, {stack.name}"] = session
    record.sessions, record.remarks = linked(sessions, told)


def _frame(recorder: _ScriptRecorder, recording: Recording) -> Frame:
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
