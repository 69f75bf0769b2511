"""The first page of a report: sessions with their verdicts, when it was made, with which versions."""

import importlib.metadata
import os
import platform
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import fx

from fxlab._version import __version__
from fxlab.base.checks import describe
from fxlab.operators.node_info import class_name
from fxlab.session import Session
from fxlab.validation import Status
from fxlab.validation.verdicts.runs_compared import NothingReturnedError
from fxlab.view_model.pass_state import describe_error
from fxlab.view_model.protocol import WrittenContents, WrittenRow
from fxlab.view_model.session_remarks import break_remark
from fxlab.view_model.session_state import model_name
from fxlab.view_model.wire import clip

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
    """Return the words of the first page about the sessions of a report.

    ``notes``: words about all of them, a paragraph each. ``judge``: whether to run models for verdicts.
    ``judged``: known verdicts of some sessions: a few words, whether it agrees, and the reason.
    """
    remarks = dict.fromkeys(
        words
        for one in sessions.values()
        if one._internals.compiled is not None
        for words in one._internals.compiled.remarks
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
        verdict = session.verdict() if judge else session._internals.known_verdict()
    except NothingReturnedError as error:
        return "returns nothing", True, describe_error(error)
    except Exception as error:
        return NOT_JUDGED, None, describe_error(error)
    if verdict is None:
        return NOT_JUDGED, None, "The outputs are not the same bits, and the models were not run in float64."
    if verdict.status is Status.NOTHING_COMPARED and not verdict.outputs:
        return "returns nothing", True, verdict.reason
    agrees = None if verdict.status is Status.NOTHING_COMPARED else verdict.agrees
    return str(verdict.status), agrees, str(verdict)


def _row(name: str, session: Session, judged: Judged) -> WrittenRow:
    words, agrees, reason = judged
    ended = session._internals.compiled.graph_break if session._internals.compiled is not None else None
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


NO_KERNEL = "Passes cannot be switched here: a report has no kernel."


def made_lines(graph_module: fx.GraphModule) -> list[str]:
    """Return the time, the versions of packages, and why nothing can be switched, for the reader of a report.

    ``SOURCE_DATE_EPOCH`` stands for the time, if it is set, so that the same session gives the same report.
    """
    packages = {class_name(node).partition(".")[0] for node in graph_module.graph.nodes} - {"torch"}
    versions = [
        ("fxlab", __version__),
        ("torch", torch.__version__),
        *_versions_of(sorted(packages)),
        ("Python", platform.python_version()),
    ]
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(_seconds()))
    return [f"Made {made} with {', '.join(f'{name} {version}' for name, version in versions)}.", NO_KERNEL]


def _seconds() -> float:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        return time.time()
    if not given.isascii() or not given.isdecimal():
        raise ValueError(f"SOURCE_DATE_EPOCH: expected seconds since 1970, got {describe(given)}.")
    return int(given)


def _versions_of(packages: Iterable[str]) -> list[tuple[str, str]]:
    found = []
    for name in packages:
        # A class may be from a notebook, and the names in a graph are anybody's.
        try:
            found.append((name, importlib.metadata.version(name)))
        except (importlib.metadata.PackageNotFoundError, ValueError):
            continue
    return found
