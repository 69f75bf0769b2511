"""``fxlab.load_session``: a session with the choices of a saved one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fxlab.base.author_frames import levels_to_author
from fxlab.base.checks import items_of, path_text
from fxlab.base.words import all_listed
from fxlab.front_desk.sources import Model
from fxlab.models.running.arguments import Inputs
from fxlab.session.history import Switches
from fxlab.session.saving import saved_file
from fxlab.session.session import Session
from fxlab.transformations import Transformation
from fxlab.transformations.registry import Pass
from fxlab.transformations.rewriting.rewrite_pass import CandidatePass


def load_session(
    path: str | os.PathLike[str],
    model: Model,
    inputs: Inputs | None = None,
    *,
    passes: Iterable[Pass] | None = None,
    weights: str | os.PathLike[str] | None = None,
) -> Session:
    """Make a session with the choices of a saved one: the passes that are on, their order and exclusions.

    The file has no weights and no code; the model is yours. It need not be the saved session's model: a
    warning names each difference.

    Parameters
    ----------
    path
        A file of :meth:`fxlab.Session.save`.
    model, inputs, passes, weights
        As for :class:`fxlab.Session`. Passes that are not fxlab's, or have arguments, must be given.

    Returns
    -------
    Session
        A new session, with nothing to undo.

    Warns
    -----
    RuntimeWarning
        If the model, its graph, the versions or the transformed graph are not those of the saved session, or
        a candidate that it excluded does not exist here.

    Raises
    ------
    TypeError
        If ``path`` is no path.
    OSError
        If the file cannot be read.
    ValueError
        If it is no saved session, or a pass is missing or has other arguments.
    TransformationError
        If a pass raises on this model.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from torch import nn
    >>> model, folder = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval(), tempfile.mkdtemp()
    >>> session = Session(model, torch.ones(2, 4))
    >>> _ = session.apply("remove-identities")
    >>> path = session.save(f"{folder}/stack.json")
    >>> again = load_session(path, model, torch.ones(2, 4))
    >>> again.applied.names, again.history
    (('remove-identities',), (('remove-identities',),))
    """
    path_text(path, "path")
    saved = saved_file.read(Path(path))  # first: tracing the model may take long
    if passes is not None:
        passes = [
            _with_all_candidates(pass_, saved) for pass_ in items_of(passes, "passes", "transformations")
        ]
    session = Session(model, inputs, passes=passes, weights=weights)
    found = _take_over(session, saved, os.fspath(path))
    if found:
        warnings.warn(
            f"{path}: not the session that was saved: {'; '.join(found)}. session.verdict() judges this one.",
            RuntimeWarning,
            stacklevel=levels_to_author(),
        )
    return session


def _with_all_candidates(pass_: Any, saved: Mapping[str, Any]) -> Any:
    """Return a pass of a session without the exclusions that the file has as well."""
    limit = pass_.limited_to if isinstance(pass_, CandidatePass) else None
    if limit is None:
        return pass_
    excluded = [row["excluded"] for row in saved["passes"] if row["name"] == pass_.name]
    nodes = {node for candidates in excluded for candidate in candidates for node in candidate}
    return pass_._limited(replace(limit, excluded=limit.excluded - nodes))


def _take_over(session: Session, saved: Mapping[str, Any], name: str) -> list[str]:
    """Apply the choices of a saved session to a new one, which cannot undo them; return the differences.

    Raises ValueError if a pass is missing or has other arguments; ``name`` is that of the file;
    TransformationError if a pass raises on this model.
    """
    rows: list[dict[str, Any]] = saved["passes"]
    known = {str(pass_.name): pass_ for pass_ in session.passes}
    _check_passes(rows, known, name)
    switches = Switches(
        tuple(dict.fromkeys([*(row["name"] for row in rows), *known])),
        frozenset(row["name"] for row in rows if row["on"]),
        frozenset((row["name"], tuple(candidate)) for row in rows for candidate in row["excluded"]),
    )
    session._begin_with(switches)
    now = saved_file.facts_of(session.original, session.graph_module)
    return [*_differences(saved, now), *_excluded_in_vain(session)]


def _differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    found = [
        f"{key} {saved_file.shown(saved['made_with'].get(key))} in the file, {version} here"
        for key, version in now["made_with"].items()
        if version != saved["made_with"].get(key)
    ]
    model = saved["model"]
    if (was := model.get("class")) != now["model"]["class"]:
        found.append(f"a {saved_file.shown(was)} in the file, a {now['model']['class']} here")
    words = {
        "parameters": "names, shapes or dtypes of parameters and buffers differ",
        "graph": "the graph differs",
    }
    found += [what for key, what in words.items() if model.get(key) != now["model"][key]]
    if model.get("graph") == now["model"]["graph"] and saved["transformed"] != now["transformed"]:
        found.append("the passes make another graph of the same one")
    return found


def _check_passes(rows: list[dict[str, Any]], known: Mapping[str, Transformation], path: str) -> None:
    missing = [saved_file.shown(row["name"]) for row in rows if row["name"] not in known]
    if missing:
        raise ValueError(
            f"{path}: the session had passes that are not on offer: {all_listed(missing)}. "
            "Give them: fxlab.load_session(path, model, inputs, passes=[...])."
        )
    other = [row["name"] for row in rows if known[row["name"]].signature != row["signature"]]
    if other:
        raise ValueError(
            f"{path}: passes of the same name that have other arguments or are of another class: "
            f"{all_listed(other)}. Give those of the session: passes=[...]."
        )


def _excluded_in_vain(session: Session) -> list[str]:
    found = []
    for pass_ in session.passes:
        if excluded := session._internals.excluded(pass_):
            candidates = {*session.explain(pass_).index}
            gone = sorted(name for candidate in excluded for name in candidate if name not in candidates)
            if gone:
                names = all_listed([*map(saved_file.shown, gone)])
                found.append(f"{pass_.name} excluded {names}, which are no candidates here")
    return found
