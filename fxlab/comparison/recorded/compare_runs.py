"""A folder of recorded runs, each compared with one of them: a table, and a page with an index."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fxlab.base.checks import type_error
from fxlab.base.first_use import pd
from fxlab.comparison.comparison import Comparison
from fxlab.comparison.recorded.compare_recorded import compare_recorded
from fxlab.comparison.recorded.recorded_run import RecordedRun
from fxlab.comparison.recorded.run_file import read_run
from fxlab.html_report.page import checked_path
from fxlab.html_report.report import report_several

_ENDING = ".run"


def compare_runs(
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, RecordedRun],
    path: str | os.PathLike[str] | None = None,
    *,
    reference: str | None = None,
) -> pd.DataFrame:
    """Compare many recorded runs with one of them: those of each night, version, device or rank.

    Parameters
    ----------
    runs
        A folder, whose files that end in ``.run`` are compared; a list of files; or runs by name.
    path
        The HTML file to write, if any: an index of the runs with the first difference of each, and the graphs
        of both for each. One that exists is replaced.
    reference
        The name of the run that the others are compared with: the name of its file, without ``.run``. Left
        out, the first.

    Returns
    -------
    pandas.DataFrame
        A row for each other run, by its name: whether it ``agrees``, the module of the ``first`` difference,
        its ``nodes``, the ``reason``, and other remarks on the two (``notes``).

    Raises
    ------
    TypeError
        If ``runs`` is of no such form.
    ValueError
        If there are fewer than two runs, none of the name of the reference, or one that cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from fxlab.runs import record_run
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for night in range(3):
    ...         _ = record_run(model, torch.ones(1, 4), f"{folder}/night{night}.run")
    ...         model[1].bias.data += night  # it goes wrong after the second night
    ...     compare_runs(folder)[["agrees", "first"]].to_dict("index")
    {'night1': {'agrees': True, 'first': ''}, 'night2': {'agrees': False, 'first': '1'}}
    """
    file = None if path is None else checked_path(path)
    known = _runs(runs)
    if len(known) < 2:
        raise ValueError(f"runs: expected at least two runs, got {len(known)}: {', '.join(known) or 'none'}.")
    first = next(iter(known)) if reference is None else reference
    if first not in known:
        raise ValueError(f"reference: there is no run {reference!r}. There are: {', '.join(known)}.")
    found = {
        name: compare_recorded(known[first], run, None, None, None, False)
        for name, run in known.items()
        if name != first
    }
    if file is not None:
        report_several(
            {name: each.session for name, each in found.items()},
            file,
            title=f"{len(found)} runs compared with {first}",
            notes=[str(known[first])],
            measure=False,
            judged={name: _words(each) for name, each in found.items()},
        )
    rows = [
        {
            "run": name,
            "agrees": each.agrees,
            "first": "" if each.first is None else each.first.candidate,
            "nodes": () if each.first is None else each.first.nodes,
            "reason": each.verdict.reason,
            "notes": "; ".join(each.notes),
        }
        for name, each in found.items()
    ]
    return pd.DataFrame(rows).set_index("run")


def _words(found: Comparison) -> tuple[str, bool, str]:
    """Return the words of the index on a comparison."""
    if found.agrees:
        return "agrees", True, found.verdict.reason
    first = found.first
    place = f"differs from {first.candidate} on" if first is not None else "differs"
    return place, False, "; ".join([str(first or found.verdict.reason), *found.notes])


def _runs(runs: object) -> dict[str, RecordedRun]:
    if isinstance(runs, Mapping):
        wrong = next((run for run in runs.values() if not isinstance(run, RecordedRun)), None)
        if wrong is not None:
            raise type_error("runs", "a RecordedRun under each name", wrong)
        return {str(name): run for name, run in runs.items()}
    if isinstance(runs, str | os.PathLike):
        folder = Path(runs)
        if not folder.is_dir():
            raise ValueError(f"runs: there is no folder {folder}. For two files: fxlab.compare(one, other).")
        files = sorted(folder.glob(f"*{_ENDING}"))
    elif isinstance(runs, Sequence) and all(isinstance(each, str | os.PathLike) for each in runs):
        files = [Path(each) for each in runs]
    else:
        raise type_error("runs", "a folder, a list of files or runs by name", runs)
    names = [file.name.removesuffix(_ENDING) for file in files]
    if len({*names}) < len(names):
        names = [str(file) for file in files]
    return {name: read_run(file) for name, file in zip(names, files, strict=True)}
