"""The passes of a session as cards of a page: candidates and reasons; errors in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Literal, TypeAlias

from torch import fx

from fxlab.base.author_frames import author_line, stretches
from fxlab.base.first_use import pd
from fxlab.base.reasons import Reason
from fxlab.base.words import counted, error_words
from fxlab.graphs.changes import counted_kinds, kinds_by_name
from fxlab.graphs.unfolded import unfolded
from fxlab.session import Session, TransformationError
from fxlab.transformations import CandidatePass, Transformation
from fxlab.transformations.base import explanation
from fxlab.transformations.signature import arguments_of
from fxlab.view_model import protocol
from fxlab.view_model.protocol import Argument, Pass, PassError, Rewrite, Stretch
from fxlab.view_model.wire import clip

_Kind: TypeAlias = Literal["matched", "excluded", "refused"]

MOST_NODES = 200
"""Names of candidates listed for one reason."""
MOST_ARGUMENTS = 20
MOST_WORDS = 300
PREVIEW_TELLS = "Only running this pass tells what it changes: Preview runs it."


def pass_states(session: Session, explained: Mapping[str, pd.DataFrame | str]) -> list[Pass]:
    """Describe the stack of a session; ``explained``: the words of passes that were asked, by signature."""
    stages, number, states = session.stages, 0, list[Pass]()
    kinds_at = cache(lambda stage: kinds_by_name(stages[stage]))
    for p in session.passes:
        is_on = session._internals.is_on(p)
        state = _pass_state(session, p, explained.get(p.signature), partial(kinds_at, number))
        number += is_on
        state["stage"] = number if is_on else None
        states.append(state)
    return states


def explain_all(session: Session) -> dict[str, pd.DataFrame | str]:
    """Return every pass's explanation of its candidates; a pass that fails to explain is quoted."""
    return {p.signature: explain(session, p) for p in session.passes}


def explain_unchanged(session: Session) -> dict[str, pd.DataFrame | str]:
    """Return, by name, explanations of nodes by passes of torch's compiler that have changed nothing."""
    try:
        return (
            {}
            if session._internals.compiled is None
            else dict(session._internals.compiled.explain_unchanged())
        )
    except Exception:  # of a compile that fails now; its passes say so
        return {}


def explain(session: Session, p: Transformation) -> pd.DataFrame | str:
    """Return a pass's explanation of its candidates, or in words why there is none.

    A function that can only be run to be explained may do anything; it is run on demand.
    """
    try:
        if p.explains_by_running:
            return _changed_by(session, p) if session._internals.is_on(p) else PREVIEW_TELLS
        return _checked(session.explain(p))
    except (Exception, SystemExit) as error:
        return f"Its candidates are unknown: {located_error(error)}"


def _changed_by(session: Session, p: Transformation) -> pd.DataFrame:
    """Return the nodes that a pass has marked as candidates that it has changed."""
    stage = session.stages[1 + [other.name for other in session.applied].index(p.name)]
    names = [node.name for node in p.get_transformed_nodes(unfolded(stage))]
    return explanation((name, True, "changed", "", number) for number, name in enumerate(names))


def _checked(frame: object) -> pd.DataFrame:
    """Return a frame of candidates from a pass, which may be foreign code."""
    columns = ["matched", "reason"]
    if not isinstance(frame, pd.DataFrame) or not {*columns} <= {*frame.columns} or "node" in frame:
        came = list(frame.columns) if isinstance(frame, pd.DataFrame) else type(frame).__name__
        raise TypeError(
            f"explain should return a DataFrame indexed by node, with columns {columns}, but returned {came}."
        )
    # A pass of somebody's own may take each node for a candidate.
    frame = frame if "code" in frame else frame.assign(code="")
    return frame if "candidate" in frame else frame.assign(candidate=range(len(frame)))


def matched_nodes(explained: Mapping[str, pd.DataFrame | str]) -> dict[str, list[str]]:
    """Return, by signature, the names of the nodes that each pass would change."""
    return {
        signature: [str(name) for name in frame.index[frame["matched"].astype(bool)]]
        for signature, frame in explained.items()
        if isinstance(frame, pd.DataFrame) and len(frame)
    }


def describe_error(error: BaseException) -> str:
    """Return an error in words: its message, or its type where it has none."""
    try:
        words = str(error).strip()
    except Exception:
        words = ""
    return clip(words or type(error).__name__, 4_000)


def located_error(error: BaseException) -> str:
    """Return an error in words, and the line of a pass's or model's own code that it came through."""
    line = author_line(error)
    return f"{describe_error(error)} ({line.place})" if line else describe_error(error)


def readable_name(p: Transformation) -> str:
    """Return a pass's name as people write it: ``merge-linears`` becomes ``Merge linears``; paths stay."""
    if "/" in str(p.name):  # a path, such as those that compilers give their passes
        return clip(str(p.name), 80)
    words = str(p.name).replace("-", " ").replace("_", " ").strip()
    return clip(words[:1].upper() + words[1:], 80)


def _pass_state(
    session: Session,
    p: Transformation,
    explained: pd.DataFrame | str | None,
    kinds_below: Callable[[], Mapping[str, str]],
) -> Pass:
    frame = None if isinstance(explained, str) else explained
    matched = refused = None
    excluded = {node for candidate in session._internals.excluded(p) for node in candidate}
    groups: list[protocol.Reason] = []
    candidates = ""
    if frame is not None and type(p).explain is not Transformation.explain:
        matched = refused = 0
    if frame is not None and len(frame):
        flags = frame["matched"].astype(bool)
        excluded = excluded_nodes(session, p, frame)
        are_excluded = pd.Series(frame.index.isin(excluded), frame.index)
        kinds: dict[_Kind, pd.Series[bool]] = {
            "matched": flags,
            "excluded": are_excluded,
            "refused": ~flags & ~are_excluded,
        }
        matched, refused = (frame["candidate"][kinds[kind]].nunique() for kind in ("matched", "refused"))
        below = kinds_below()
        candidates = clip(
            f"{counted(matched, 'candidate')}: {_kinds_of(frame.index[flags], below)}", MOST_WORDS
        )
        groups = [group for kind, rows in kinds.items() for group in _by_reason(frame[rows], kind, below)]
    is_on = session._internals.is_on(p)
    changes = session.changes(p) if is_on else None
    is_told = changes is not None and isinstance(p, CandidatePass) and session._internals.compiled is None
    told = (changes.rewrites or 0) if is_told and changes else 0
    left_out = sum(not excluded.isdisjoint(candidate) for candidate in session._internals.excluded(p))
    return {
        "key": clip(str(p.name)),
        "signature": p.signature,
        "name": readable_name(p),
        "className": type(p).__name__,
        "description": description_of(p),
        "arguments": _arguments(p),
        "preserves": bool(p.preserves_computation),
        "on": is_on,
        "stage": None,
        "changes": "" if changes is None else clip(str(changes), MOST_WORDS),
        "canExclude": isinstance(p, CandidatePass),
        "excluded": left_out,
        "steps": told + left_out if is_told else 0,
        "isLooking": explained is None,
        "candidates": candidates,
        "matched": matched,
        "refused": refused,
        "reasons": groups,
        "note": explained if isinstance(explained, str) else "",
        "error": None,
    }


def _kinds_of(names: Iterable[object], kinds: Mapping[str, str]) -> str:
    counts = Counter(kinds[name] for name in map(str, names) if name in kinds)
    return counted_kinds(dict(counts.most_common()))


def excluded_nodes(session: Session, p: Transformation, frame: pd.DataFrame) -> set[str]:
    """Return the candidates, of those that a pass explains, that are excluded in the session."""
    names = {node for candidate in session._internals.excluded(p) for node in candidate}
    rows = frame[frame.index.isin(names) & (frame["code"] == Reason.EXCLUDED.code)]
    return set(rows.index)


def rewrites_of_node(
    session: Session, node: fx.Node, explained: Mapping[str, pd.DataFrame | str]
) -> list[Rewrite]:
    """Return the passes whose rewrite of a node can be excluded, or included again."""
    found: list[Rewrite] = []
    for p in session.passes:
        frame = explained.get(p.signature)
        # A node of a preview is marked by a pass that is off.
        if isinstance(p, CandidatePass) and session._internals.is_on(p) and p.transformed(node):
            count = sum(node.name in record.marked for record in p.rewrites(session.graph_module))
            found.append({"signature": p.signature, "count": count, "isExcluded": False})
        elif isinstance(frame, pd.DataFrame) and node.name in excluded_nodes(session, p, frame):
            found.append({"signature": p.signature, "count": 1, "isExcluded": True})
    return found


def _by_reason(frame: pd.DataFrame, kind: _Kind, below: Mapping[str, str]) -> list[protocol.Reason]:
    names: dict[str, list[object]] = {}
    for name, reason in zip(frame.index, map(str, frame["reason"]), strict=True):
        names.setdefault(reason, []).append(name)
    return [
        {
            "reason": clip(reason, 300),
            "kind": kind,
            "what": clip(_kinds_of(found, below), MOST_WORDS) or counted(len(found), "node"),
            "count": len(found),
            "nodes": [clip(str(name)) for name in found[:MOST_NODES]],
        }
        for reason, found in sorted(names.items(), key=lambda group: -len(group[1]))
    ]


def description_of(p: Transformation | type[Transformation]) -> str:
    """Return the first paragraph of a transformation's own description."""
    words = p.description if isinstance(p.description, str) else ""
    first_paragraph = words.strip().split("\n\n")[0]
    # A docstring marks code with two backticks, which mean nothing to who reads a card.
    return clip(" ".join(first_paragraph.replace("``", "").split()), 300)


def _arguments(p: Transformation) -> list[Argument]:
    arguments = arguments_of(p).items()
    told = {"name", "limited_to"}  # by the title, and by the list of candidates
    public = {name: value for name, value in arguments if not name.startswith("_") and name not in told}
    return [
        {"name": clip(name, 80), "value": clip(_written(value), 120)}
        for name, value in list(public.items())[:MOST_ARGUMENTS]
    ]


def _written(value: object) -> str:
    try:
        return str(value.__qualname__) if callable(value) and hasattr(value, "__qualname__") else repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


_MOST_STRETCHES = 100
_LONGEST_STRETCH = 8_000


def failure_state(error: Exception, pressed: Transformation, below: int) -> PassError:
    """Describe the error after somebody pressed the switch of a pass.

    Another pass, above the one that was ``pressed``, may have raised. ``below``: the stage it is applied to.
    """
    cause = error.__cause__ if isinstance(error, TransformationError) and error.__cause__ else error
    line = error.line if isinstance(error, TransformationError) else author_line(error)
    # A refusal of the session explains itself; that it is a ValueError tells nobody anything.
    is_refusal = cause is error and line is None
    words = describe_error(error) if is_refusal else error_words(cause)
    node = ""
    if isinstance(error, TransformationError) and error.pass_.name == pressed.name:
        node = error.node
    elif isinstance(error, TransformationError):
        words = f"{readable_name(error.pass_)} failed on what is left below it. {words}"
    return {
        "text": clip(words, 4_000),
        "place": line.place if line else "",
        "file": clip(f"{line.file}:{line.line}", 1_000) if line else "",
        "code": clip(line.code, 400) if line else "",
        "node": clip(node, 1_000),
        "stage": below,
        "traceback": [] if is_refusal else _traceback(cause),
    }


def _traceback(error: BaseException) -> list[Stretch]:
    return [
        {"hides": 0 if stretch.is_author else stretch.frames, "text": clip(stretch.text, _LONGEST_STRETCH)}
        for stretch in stretches(error)[-_MOST_STRETCHES:]
    ]
