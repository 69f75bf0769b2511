"""The first page of a report on several sessions: a row for each, with its verdict and what has ended it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from fxlab.html_report.made import made_lines
from fxlab.validation import Status
from fxlab.validation.verdicts.comparison import NothingReturnedError
from fxlab.view_model.pass_state import describe_error
from fxlab.view_model.protocol import WrittenContents, WrittenRow
from fxlab.view_model.session_remarks import break_remark
from fxlab.view_model.session_state import model_name
from fxlab.view_model.wire import clip

if TYPE_CHECKING:
    from fxlab.session import Session

MOST_NAME = 200
"""Characters of the name of a session."""
NOT_JUDGED = "not judged"
Judged: TypeAlias = tuple[str, bool | None, str]
"""The verdict on a session in a few words, whether it agrees, and the reason in full."""


def contents(
    sessions: Mapping[str, Session],
    title: str,
    notes: Iterable[str],
    *,
    judge: bool,
    judged: Mapping[str, Judged] = MappingProxyType({}),
) -> WrittenContents:
    """Return what the first page says of the sessions of a report.

    ``notes``: what is said of all of them, a paragraph each. ``judge``: whether to run models for verdicts.
    ``judged``: what is known of some sessions: a few words, whether it agrees, and the reason.
    """
    remarks = dict.fromkeys(
        words for one in sessions.values() if one.compiled is not None for words in one.compiled.remarks
    )
    return {
        "title": clip(title, MOST_NAME),
        "notes": [clip(words) for words in notes],
        "remarks": [clip(words) for words in remarks],
        "graphs": [
            _row(name, session, judged.get(name) or verdict_words(session, judge=judge))
            for name, session in sessions.items()
        ],
        "made": made_lines(next(iter(sessions.values())).original)[0],
    }


def verdict_words(session: Session, *, judge: bool) -> Judged:
    """Return the verdict in a few words, whether it agrees (``None``: not judged), and the reason."""
    if not session.applied:
        return "no pass changed it", True, ""
    if session.inputs is None:
        return NOT_JUDGED, None, "Its inputs are not known."
    try:
        verdict = session.verdict() if judge else session.known_verdict()
    except NothingReturnedError as error:
        return "returns nothing", True, describe_error(error)
    except Exception as error:
        return NOT_JUDGED, None, describe_error(error)
    if verdict is None:
        return NOT_JUDGED, None, "The outputs are not the same bits, and the models were not run in float64."
    agrees = None if verdict.status is Status.NOTHING_COMPARED else verdict.agrees
    return str(verdict.status), agrees, str(verdict)


def _row(name: str, session: Session, judged: Judged) -> WrittenRow:
    words, agrees, reason = judged
    ended = session.compiled.graph_break if session.compiled is not None else None
    return {
        "name": clip(name, MOST_NAME),
        "model": clip(model_name(session), MOST_NAME),
        "stages": len(session.stages),
        "nodesBefore": len(session.original.graph.nodes),
        "nodesAfter": len(session.graph_module.graph.nodes),
        "verdict": clip(words, MOST_NAME),
        "agrees": agrees,
        "reason": clip(reason, 600),
        "ended": None if ended is None else break_remark(ended),
    }
