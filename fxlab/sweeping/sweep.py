"""A table of models and stacks."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tqdm import tqdm

from fxlab.checks import described, items_of, path_text
from fxlab.html_report.page import write
from fxlab.session import Session, saved_file
from fxlab.sources import ModelLike
from fxlab.sweeping.index_page import index_page
from fxlab.sweeping.swept_cell import Shared, Stack, SweptCell, checked_batches, failed, swept
from fxlab.transformations import Transformation
from fxlab.units import counted
from fxlab.validation.evaluation.agreement import Metric
from fxlab.validation.evaluation.evaluate import checked_metrics
from fxlab.workers import check_picklable, checked_executor, worked_on

if TYPE_CHECKING:
    import pandas as pd

MadeModel: TypeAlias = ModelLike | Callable[[], ModelLike | Session]
"""A model, the path of an exported program, or a function that makes a model or a session."""
SavedStack: TypeAlias = str | os.PathLike[str] | Iterable[Transformation | str]
"""The file of a saved session, or passes (or their names) in the order in which they are switched on."""


@dataclass(frozen=True, repr=False)
class Sweep:
    """The result of :func:`sweep`."""

    cells: tuple[SweptCell, ...]
    """Each model with each stack, in their order."""
    path: Path | None = None
    """The folder with ``index.html`` and a folder for each cell."""
    stopped: bool = False
    """Whether it was interrupted before the end."""

    @property
    def agrees(self) -> bool:
        """Whether all stacks agree with all models, none failed and nothing was stopped."""
        return bool(self.cells) and not self.stopped and all(cell.agrees for cell in self.cells)

    def table(self) -> pd.DataFrame:
        """Return a row for each model and stack, with the fields of :class:`SweptCell`."""
        import pandas as pd

        columns = list(SweptCell.__dataclass_fields__)
        rows = [asdict(cell) for cell in self.cells]
        return pd.DataFrame(rows, columns=columns).set_index(["model", "stack"])

    def __repr__(self) -> str:
        agreeing = sum(cell.agrees for cell in self.cells)
        stopped = ", stopped" if self.stopped else ""
        return f"<Sweep of {counted(len(self.cells), 'cell')}: {agreeing} agree{stopped}>"


def sweep(
    models: Mapping[str, MadeModel],
    stacks: Mapping[str, SavedStack],
    batches: Any,
    executor: Executor | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    metrics: Mapping[str, Metric] | None = None,
) -> Sweep:
    """Judge many models, each with many stacks of passes, as :func:`evaluate` judges one.

    Each model with each stack is a cell, which a worker makes, judges on all batches, times and reports. What
    raises is a row of the table. An interrupt (Ctrl-C) ends it with what is done.

    Parameters
    ----------
    models
        Models by name. Best a function without arguments that makes one, such as
        ``functools.partial(BertModel.from_pretrained, "folder")``: configuration and the path of the weights
        travel, not the weights. It may return a :class:`Session`, which brings its inputs, its passes and
        weights in files. Or a module, or the path of an exported program (``.pt2``).
    stacks
        Stacks by name: the file of a saved session (:meth:`Session.save`), or a list of passes or their
        names; ``[]`` is the model as it is.
    batches
        What :func:`evaluate` takes, if it can be read more than once; or a function that returns it, which
        travels instead; or a mapping of these by the names of models. A model is traced on the first: of a
        mapping it is given the names that ``forward`` has, of a tuple as many as it has parameters without a
        default.
    executor
        Where cells are judged: any ``concurrent.futures.Executor``. A cell whose worker dies is judged once
        more, with ``path`` from the batch on that it was at.
    path
        A folder, which all workers see: ``index.html`` grows with each cell and leads to its report, on its
        worst batch. If it is there, batches that are judged are not judged again; each cell is checked to be
        of the same model, stack and data.
    metrics
        As for :func:`evaluate`.

    Returns
    -------
    Sweep
        With ``table()``, ``cells``, ``agrees`` and ``path``.

    Raises
    ------
    TypeError
        If an argument is not what is expected.
    ValueError
        If a saved session is none, there is nothing to judge, or something cannot be sent to a worker.
    OSError
        If a file cannot be read or written.

    Notes
    -----
    Time and memory are multiples of the original's, on the first batch. Cells that are timed at the same
    time on one machine disturb each other: the interval is wider then.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> def small():
    ...     torch.manual_seed(0)
    ...     return nn.Sequential(nn.Linear(8, 8), nn.Identity(), nn.Linear(8, 3)).eval()
    >>> found = sweep(
    ...     {"small": small},
    ...     {"as it is": [], "identities": ["remove-identities"]},
    ...     [torch.ones(2, 8), torch.zeros(3, 8)],
    ... )
    >>> found.table()[["status", "agreement", "nodes_before", "nodes_after"]].values.tolist()
    [['same bits', 1.0, 5, 5], ['same bits', 1.0, 5, 4]]
    """
    _check_named(models, "models", "models, or functions that make them,")
    _check_named(stacks, "stacks", "saved sessions or lists of passes")
    checked_executor(executor)
    if path is not None:
        path_text(path, "path")
    folder = None if path is None else Path(path).absolute()
    shared = Shared(
        dict(models),
        {name: _stack(name, stack) for name, stack in stacks.items()},
        checked_batches(batches, list(models)),
        checked_metrics(metrics),
        None if folder is None else str(folder),
    )
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    places = [(model, stack) for model in models for stack in stacks]
    found: dict[tuple[str, str], SweptCell] = {}

    def made(*, stopped: bool = False) -> Sweep:
        result = Sweep(tuple(found[place] for place in places if place in found), folder, stopped)
        if folder is not None:
            write(folder / "index.html", index_page(list(models), list(stacks), found, stopped=stopped))
        return result

    with tqdm(total=len(places), disable=None, leave=False, unit="cell") as bar:
        try:
            for cell, place in worked_on(swept, shared, places, executor, died=failed, pickled=_pickled):
                found[place] = cell
                bar.update()
                made()
        except KeyboardInterrupt:
            return made(stopped=True)
    return made()


def _check_named(values: Any, argument: str, words: str) -> None:
    if not isinstance(values, Mapping):
        raise TypeError(f"{argument}: expected {words} by name ({{name: ...}}), got {described(values)}.")
    if not values:
        raise ValueError(f"{argument}: there is nothing to judge.")
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f"{argument}: expected names as strings, but {described(name)} is among them.")


def _stack(name: str, stack: Any) -> Stack:
    if isinstance(stack, str | os.PathLike):
        path_text(stack, f"stacks[{name!r}]")
        return Stack(saved_file.read(Path(stack)), os.fspath(stack))
    passes = items_of(stack, f"stacks[{name!r}]", "passes or their names")
    for pass_ in passes:
        if not isinstance(pass_, Transformation | str):
            raise TypeError(f"stacks[{name!r}]: expected passes or their names, got {described(pass_)}.")
    return Stack(passes=passes)


def _pickled(shared: Shared) -> bytes:
    for argument in ("models", "stacks", "batches", "metrics"):
        check_picklable(getattr(shared, argument), argument)
    return pickle.dumps(shared)
