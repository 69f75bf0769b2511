"""``fxlab.report``: a session as one HTML file that needs neither a kernel nor a network."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fxlab.base.checks import check_is, describe, require_bool, type_error
from fxlab.base.first_use import pd
from fxlab.base.garbage import only_new_garbage
from fxlab.front_desk.sources import checked_session
from fxlab.graphs.unfolded import unfolded
from fxlab.html_report.contents import Judged, contents, made_lines
from fxlab.html_report.page import checked_path, page, write
from fxlab.html_report.written_values import written_values
from fxlab.overlays import SOURCES, Overlay, Subject, source
from fxlab.overlays.overlay import is_overlay_file, overlays_of
from fxlab.session import Session
from fxlab.view_model import pass_state
from fxlab.view_model.details import Describer
from fxlab.view_model.graph_data.metrics import METRICS, PAINTS
from fxlab.view_model.graph_data.session_graphs import SessionGraphs
from fxlab.view_model.measurements import COLLECTIVES, DATA, STAGES, WORST_BATCHES, summary_of_stages
from fxlab.view_model.protocol import ExtraTable, Outputs, Tables, WrittenReport
from fxlab.view_model.session_remarks import session_remarks
from fxlab.view_model.session_state import changed_nodes_state, model_name, outputs_state
from fxlab.view_model.table_state import table_state
from fxlab.view_model.wire import clip, to_json

ANY_TWO = 9
"""Stages, the original included, of which any two can be compared. Of more, each can be compared with the
stage below and with the original, so that a file grows with the number of stages and not with its square."""


def report(
    session: Session | Mapping[str, Session],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    measure: bool = True,
    values: bool = False,
    overlay: str | os.PathLike[str] | pd.Series[Any] | pd.DataFrame | Overlay | Sequence[Any] | None = None,
) -> Path:
    """Write a session to one HTML file: the interactive graph of every stage, and the tables.

    The file needs no kernel and no network, so it can be attached to a bug report or a CI run. Groups are
    opened and closed, nodes searched and looked at as in :func:`fxlab.inspect`; transformations cannot be
    switched, but each stage of the stack can be looked at, alone or beside another. It opens at the changes
    of the passes, and says when it was made (``SOURCE_DATE_EPOCH``, if that is set) and with which versions.
    It holds the names, shapes and source lines of the model, and no weights unless ``values`` are asked for.

    Parameters
    ----------
    session
        A session, whose passes that are on become the stages. Several sessions by name, such as those of
        :func:`fxlab.compiler.record_compile`, become one file, which begins with a list of them.
    path
        The file to write, ending in ``.html``. One that exists is replaced when the new one is complete.
    title
        The title of the page. Left out, the name of the model.
    measure
        Whether to run the model for measurements that take many runs: the verdict (:func:`fxlab.verdict`),
        and the costs and errors of the nodes of each stage, by which the graph can be coloured.
    values
        Whether to write the values of the nodes that passes have changed and of those that read them, the
        original's, their difference and the weights: statistics, a histogram and a map of at most 48 x 48
        cells of each, of at most 24 nodes. It takes two runs or three for each node, and at most 2 MB.
    overlay
        The values to colour the graph by at first, as for :func:`fxlab.draw`; or a list, of which the page
        offers all. Those with values have a table, too.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    TypeError
        If ``session`` is no session, or ``path`` no path.
    ValueError
        If ``path`` does not end in ``.html``, there is no session in a mapping, or ``SOURCE_DATE_EPOCH`` is
        set and not a number.
    OSError
        If the file cannot be written, for example because its folder does not exist.
    RuntimeError
        If the package was installed without its front end.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from torch import nn
    >>> from fxlab import Session
    >>> model = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    >>> session = Session(model, torch.ones(1, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report(session, f"{folder}/report.html").name
    'report.html'
    """
    file = checked_path(path)
    check_is(str, title, "title")
    require_bool(measure, "measure")
    require_bool(values, "values")
    if isinstance(session, Mapping):
        sessions = dict(_checked(session))
        if not sessions:
            raise ValueError("session: there is no session in this mapping, so there is nothing to report.")
        if overlay is not None:
            raise ValueError("overlay: expected one session to colour, got several. Report each by itself.")
        return report_several(sessions, file, title=title, measure=measure, values=values)
    checked_session(session)
    colours = _Colours.of(overlay)
    colours.check(session)
    data = _data(session, measure, values, colours)
    if session._internals.is_comparison:
        data["row"] = [*range(len(session.stages))]
    text = page(title or model_name(session), {"fxlab-session": data})
    write(file, text.encode())
    return file


def report_several(
    sessions: Mapping[str, Session],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    notes: Iterable[str] = (),
    measure: bool,
    values: bool = False,
    skip_failing: bool = False,
    judged: Mapping[str, Judged] = MappingProxyType({}),
) -> Path:
    """Write sessions to one HTML file, which begins with a title, notes and a list of them.

    With ``skip_failing``, a session that cannot be written is a note. ``judged``: verdicts that are known.
    """
    file, told, data = checked_path(path), [*notes], {}
    for name, session in sessions.items():
        try:
            data[name] = _data(session, measure, values)
        except Exception as error:
            if not skip_failing or (not data and name == [*sessions][-1]):
                raise
            told.append(f"{name} is not shown: {pass_state.describe_error(error)}")
    shown = {name: sessions[name] for name in data}
    heading = title or " · ".join(dict.fromkeys(map(model_name, shown.values())))
    written = {f"fxlab-session-{number}": one for number, one in enumerate(data.values(), 1)}
    first = contents(shown, heading, told, judge=measure, judged=judged)
    write(file, page(heading, {"fxlab-contents": first, **written}).encode())
    return file


def _checked(sessions: Mapping[str, Session]) -> Iterator[tuple[str, Session]]:
    for name, session in sessions.items():
        if not isinstance(name, str):
            raise TypeError(f"session: expected sessions by name, but {describe(name)} is the name of one.")
        if not isinstance(session, Session):
            raise type_error("session", f"a Session under {name!r}", session)
        yield name, session


@dataclass(frozen=True)
class _Colours:
    """The overlays of a report, and the one that it shows at first."""

    first: str = ""
    own: tuple[Overlay, ...] = ()

    @classmethod
    def of(cls, given: Any) -> _Colours:
        several = given if isinstance(given, list | tuple) else [] if given is None else [given]
        names: list[str] = []
        own: list[Overlay] = []
        for each in several:
            if isinstance(each, str) and not is_overlay_file(each):
                names.append(source(each).name)
            else:
                found = overlays_of(each)
                names += [overlay.name for overlay in found]
                own += found
        return cls(names[0] if names else "", tuple(own))

    def check(self, session: Session) -> None:
        """Raise a ``ValueError`` for values of another graph."""
        drawn = [*map(unfolded, session.stages)] if self.own else []
        for overlay in self.own:
            for stage in drawn:
                with contextlib.suppress(ValueError):
                    overlay.check_is_of(stage)
                    break
            else:
                overlay.check_is_of(drawn[0])

    def tables(self) -> list[ExtraTable]:
        """Return a table of the values that were given."""
        if not self.own:
            return []
        columns = {overlay.title: pd.Series(dict(overlay.values)) for overlay in self.own}
        frame = pd.DataFrame(columns)
        frame = frame.where(frame.notna() | frame.dtypes.map(pd.api.types.is_numeric_dtype), "")
        words = "The values by which the graph can be coloured, of nodes and modules."
        return [_table("overlays", "Overlays", words, frame, "Node", jumps=True)]


@only_new_garbage()
def _data(
    session: Session, measure: bool, values: bool = False, colours: _Colours | None = None
) -> WrittenReport:
    with session._internals.held():
        return _data_now(session, measure, values, colours or _Colours())


def _data_now(session: Session, measure: bool, values: bool, colours: _Colours) -> WrittenReport:
    explained = pass_state.explain_all(session)
    cards = pass_state.pass_states(session, explained)
    unchanged = pass_state.explain_unchanged(session)
    graphs = _graphs(session, explained | unchanged, measure, colours.own)
    last = len(session.applied)
    of_last = [graphs.alone(last), *([graphs.merged(last, 0)] if last else [])]
    outputs = outputs_state(session)
    tables = _tables(session, outputs, explained, unchanged, measure)
    tables["more"] += colours.tables()
    data = graphs.data.take()
    data |= {"metrics": METRICS, "paints": PAINTS, "matches": pass_state.matched_nodes(explained)}
    data["remarks"] = session_remarks(session)
    return {
        "data": data,
        "stages": graphs.state(),
        "passes": {
            "passes": cards,
            "canUndo": False,
            "canRedo": False,
            "code": session.to_python(),
            "fixed": True,
            "made": made_lines(session.original),
        },
        "tables": tables,
        "colours": colours.first,
        "values": written_values(session, of_last) if values else None,
    }


def _graphs(
    session: Session, explained: dict[str, pd.DataFrame | str], measure: bool, given: Sequence[Overlay] = ()
) -> SessionGraphs:
    """Write every stage, and its differences from others, as one graph and as two."""
    graphs, last = SessionGraphs(session), len(session.applied)
    data = graphs.data
    for number, stage in enumerate(session.stages):
        alone = graphs.alone(number)
        graphs.code(number)
        measured = _overlays(Subject(stage, session.original, session.inputs), measure)
        for overlay in (*measured, *given):
            data.add_overlay(alone, overlay)
        for before in _compared_with(number, last + 1):
            graphs.merged(number, before)
            graphs.pair(number, before)
            graphs.code(number, before)
    flops: dict[Any, float | None] = {}
    for number in data.numbers:
        gone = data.shown(number).gone
        data.add_extras(number, Describer(data.hierarchy(number), explained, gone=gone, flops=flops))
    data.lay_out(graphs.alone(last))
    return graphs


def _compared_with(number: int, stages: int) -> list[int]:
    """Return the numbers of the stages that a stage can be compared with."""
    return list(range(number)) if stages <= ANY_TWO else sorted({0, number - 1}) if number else []


def _overlays(subject: Subject, measure: bool) -> list[Overlay]:
    """Measure as many overlays as possible: a model may have no inputs or no weights."""
    found = []
    for known in SOURCES:
        with contextlib.suppress(Exception):
            found.append(known.overlay(subject, run=measure))
    return found


def _tables(
    session: Session,
    outputs: Outputs,
    explained: dict[str, pd.DataFrame | str],
    unchanged: dict[str, pd.DataFrame | str],
    measure: bool,
) -> Tables:
    more: list[ExtraTable] = []
    if outputs["state"] == "ready" and measure:
        try:
            session.verdict()
        except Exception as error:
            outputs["text"] = clip(f"There is no verdict: {pass_state.describe_error(error)}", 600)
        else:
            outputs = outputs_state(session)
    more.append(_candidates(session, explained, unchanged))
    if (known := COLLECTIVES).is_made_of(session):
        frame, words = known.make(session)
        more.append(_table(known.name, known.title, words, frame, known.index_title, jumps=True))
    if session._internals.evaluation is not None:
        for kind in (DATA, WORST_BATCHES):
            frame, words = kind.make(session)
            more.append(_table(kind.name, kind.title, words, frame, kind.index_title))
    if session.applied:
        made = ((STAGES, summary_of_stages(session, in_float64=measure)),)
        for kind, (frame, words) in made:
            table = _table(kind.name, kind.title, words, None, jumps=kind.leads != "stages")
            table["table"] = kind.table(frame, ())
            more.append(table)
    return {"outputs": {**outputs, "canJudge": False}, "nodes": changed_nodes_state(session), "more": more}


def _candidates(
    session: Session, explained: dict[str, pd.DataFrame | str], unchanged: dict[str, pd.DataFrame | str]
) -> ExtraTable:
    """Return the ``explain`` frames of all passes as one table."""
    named = [(pass_state.readable_name(p), explained[p.signature]) for p in session.passes]
    parts = [
        frame[["matched", "reason"]].assign(pass_=name)
        for name, frame in (*named, *unchanged.items())
        if isinstance(frame, pd.DataFrame) and len(frame)
    ]
    if not parts:
        return _table("candidates", "Candidates", "No candidates.", None)
    frame = pd.concat(parts)[["pass_", "matched", "reason"]]
    words = (
        "Candidates of each pass at the stage it is applied to: changed, to be changed, or refused and why."
    )
    return _table("candidates", "Candidates", words, frame, "Node", jumps=True)


def _table(
    name: str, title: str, text: str, frame: pd.DataFrame | None, index: str = "", *, jumps: bool = False
) -> ExtraTable:
    table = None if frame is None else table_state(frame, index)
    return {"name": name, "title": title, "text": to_json(text), "table": table, "jumps": jumps}
