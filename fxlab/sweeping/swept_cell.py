"""One model with one stack of passes: made, judged, timed and reported where the worker is."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn
from torch.fx import GraphModule

from fxlab.html_report.page import write
from fxlab.html_report.report import report
from fxlab.kept_values import read_as
from fxlab.models.running import Inputs, run
from fxlab.session import Session
from fxlab.session.loading import take_over
from fxlab.transformations import Transformation
from fxlab.validation.cost.in_turns import Spread, seconds_in_turns
from fxlab.validation.cost.peak_memory import PeakMemory
from fxlab.validation.evaluation.agreement import Metric
from fxlab.validation.evaluation.batch_inputs import check_batch, inputs_of_batch
from fxlab.validation.evaluation.evaluation import Evaluation

FAILED = "failed"
_REPORT = "report.html"
_MEASURED = ("time", "time_low", "time_high", "memory", "report", "notes")
"""The fields of a cell that the file of one adds to what its batches say."""
ROUNDS, SECONDS = 7, 0.02
"""How often models are timed in turns, and how long a turn takes at least."""


@dataclass(frozen=True)
class Stack:
    """The passes that are on: those of a saved session, or some that are switched on one after another."""

    saved: Mapping[str, Any] | None = None
    file: str = ""
    passes: tuple[Transformation | str, ...] = ()

    def put_on(self, session: Session) -> list[str]:
        """Switch the passes on; return what is different from the session that was saved."""
        if self.saved is not None:
            return take_over(session, self.saved, self.file)
        for pass_ in self.passes:
            if isinstance(pass_, Transformation) and pass_.signature not in {
                offered.signature for offered in session.passes
            }:
                session.add(pass_)
            session.apply(pass_)
        return []


@dataclass(frozen=True)
class Shared:
    """Data that a worker needs for all cells."""

    models: Mapping[str, Any]
    stacks: Mapping[str, Stack]
    batches: Mapping[str, Any]
    """By the name of a model."""
    metrics: Mapping[str, Metric]
    folder: str | None
    """Where files are written; all workers see it."""


@dataclass(frozen=True)
class SweptCell:
    """The result of a sweep for one model with one stack."""

    model: str
    stack: str
    status: str
    """The status of the verdict over all batches, or ``failed``."""
    agrees: bool
    reason: str
    agreement: float = math.nan
    """The smallest share of decisions that both make alike (the largest class, the next token), ..."""
    agreement_low: float = math.nan
    agreement_high: float = math.nan
    """... and its interval at 95%. NaN where there are no decisions."""
    batches: int = 0
    """How many were judged."""
    time: float = math.nan
    """The time of the stack as a multiple of the original's, on the first batch, ..."""
    time_low: float = math.nan
    time_high: float = math.nan
    """... nine of ten turns are above the first, nine of ten below the second."""
    memory: float = math.nan
    """The peak memory of tensors as a multiple of the original's."""
    nodes_before: int = 0
    nodes_after: int = 0
    report: str = ""
    """The file of its report in the folder of the sweep."""
    notes: tuple[str, ...] = ()
    """What is different from the saved session, and what could not be measured."""


def swept(shared: Shared, place: tuple[str, str]) -> SweptCell:
    """Judge one model with one stack; what it raises becomes the result."""
    model, stack = place
    folder = None if shared.folder is None else cell_folder(Path(shared.folder), model, stack)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        return _swept(shared, model, stack, folder)
    except Exception as error:  # whatever a factory, a model or a pass raises
        return failed(place, f"{type(error).__name__}: {error}")


def failed(place: tuple[str, str], reason: str) -> SweptCell:
    """Return what is known of a model with a stack that could not be judged."""
    return SweptCell(*place, FAILED, False, reason)


def cell_folder(folder: Path, model: str, stack: str) -> Path:
    """Return the folder of a cell; names are anybody's, so that it is told apart by a digest."""
    digest = hashlib.blake2b(json.dumps([model, stack]).encode(), digest_size=4).hexdigest()
    words = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in f"{model}-{stack}")
    return folder / f"{words[:80].lstrip('.')}-{digest}"


def _swept(shared: Shared, model: str, stack: str, folder: Path | None) -> SweptCell:
    given = shared.batches[model]
    batches = given() if callable(given) else given
    first = next(iter(batches), None)
    if first is None:
        raise ValueError(f"batches: there are none for {model!r}.")
    session = session_with(shared.models[model], first)
    notes = shared.stacks[stack].put_on(session)
    resume = None if folder is None else folder / "batches.jsonl"
    evaluation = session.evaluate(batches, shared.metrics, resume=resume)
    if evaluation.stopped:
        raise KeyboardInterrupt
    cell = SweptCell(
        model,
        stack,
        str(evaluation.verdict.status),
        evaluation.agrees,
        evaluation.verdict.reason,
        *_decisions_alike(evaluation),
        batches=len(evaluation.rows),
        nodes_before=len(session.original.graph.nodes),
        nodes_after=len(session.graph_module.graph.nodes),
        notes=tuple(notes),
    )
    if folder is None or resume is None:
        return _measured(cell, session, first)
    # The same lines are the same model, stack and data: what was measured of them holds.
    known, judged = folder / "cell.json", hashlib.blake2b(resume.read_bytes(), digest_size=16).hexdigest()
    if (found := _read(known, judged, cell)) is not None:
        return found
    cell = _reported(_measured(cell, session, first), session, evaluation, folder)
    write(known, json.dumps({"batches": judged, "cell": dataclasses.asdict(cell)}))
    return cell


def session_with(model: Any, batch: Any) -> Session:
    """Return a session of a model, or of what a factory makes, with the inputs that it takes of a batch."""
    made = model() if callable(model) and not isinstance(model, nn.Module) else model
    if isinstance(made, Session):
        made.revert_all()
        return made
    check_batch(batch, 1)
    if isinstance(made, GraphModule):
        return Session(made, inputs_of_batch(made, batch)[0])
    if isinstance(made, nn.Module):
        return Session(made, _inputs_of_module(made, batch))
    session = Session(made)
    session.inputs = inputs_of_batch(session.original, batch)[0]
    return session


def _inputs_of_module(module: nn.Module, batch: Any) -> Inputs:
    if not isinstance(batch, Mapping | tuple | list):
        return batch  # type: ignore[no-any-return]
    parameters = inspect.signature(module.forward).parameters.values()
    if isinstance(batch, Mapping):
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            return dict(batch)
        names = {one.name for one in parameters}
        return {name: value for name, value in batch.items() if name in names}
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = sum(one.kind in positional and one.default is one.empty for one in parameters)
    if not 0 < needed <= len(batch):
        raise ValueError(
            f"batches: {type(module).__name__}.forward needs {needed} arguments, a batch has {len(batch)}. "
            "Give mappings by name, or a function that makes an fxlab.Session with inputs."
        )
    return tuple(batch[:needed])


def _decisions_alike(evaluation: Evaluation) -> tuple[float, float, float]:
    table = evaluation.table()
    shares = table[[name.startswith("top-1 ") or name == "next token" for name in table.index]]
    if not len(shares):
        return math.nan, math.nan, math.nan
    value, low, high = shares.sort_values("value").iloc[0][["value", "low", "high"]]
    return float(value), float(low), float(high)


def _measured(cell: SweptCell, session: Session, batch: Any) -> SweptCell:
    """Add time and memory on a batch, or why there are none."""
    inputs = inputs_of_batch(session.original, batch)[0]
    models = {"original": session.original, "stack": session.graph_module}
    try:
        seconds = seconds_in_turns(models, inputs, ROUNDS, SECONDS)
        spread = Spread.of(seconds["stack"], seconds["original"])
        peaks = {name: _peak(model, inputs) for name, model in models.items()}
    except Exception as error:  # whatever a model raises
        return replace(cell, notes=(*cell.notes, f"not timed: {error}"))
    memory = peaks["stack"] / peaks["original"] if peaks["original"] else math.nan
    return replace(cell, time=spread.ratio, time_low=spread.low, time_high=spread.high, memory=memory)


def _peak(model: Callable[..., Any], inputs: Inputs) -> int:
    with PeakMemory() as memory:
        run(model, inputs)
    return int(memory.peak)


def _reported(cell: SweptCell, session: Session, evaluation: Evaluation, folder: Path) -> SweptCell:
    """Write the report, on the worst batch."""
    if evaluation.worst:
        session.inputs = evaluation.worst[0].inputs
    try:
        report(session, path=folder / _REPORT)
    except Exception as error:  # a model whose graph cannot be drawn has a row all the same
        return replace(cell, notes=(*cell.notes, f"no report: {error}"))
    return replace(cell, report=_report_of(folder))


def _report_of(folder: Path) -> str:
    return f"{folder.name}/{_REPORT}"


def _read(known: Path, judged: str, cell: SweptCell) -> SweptCell | None:
    """Return what was measured before, if it is of the same lines."""
    try:
        data = json.loads(known.read_text(encoding="utf-8"))
        if data["batches"] != judged:
            return None
        found = read_as(SweptCell, data["cell"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    if found.report != _report_of(known.parent) or not (known.parent / _REPORT).is_file():
        return None
    # Only what is not known without measuring: what the lines say is said by the lines.
    return replace(cell, **{name: getattr(found, name) for name in _MEASURED})


def checked_batches(batches: Any, models: Iterable[str]) -> dict[str, Any]:
    """Return batches by model, or raise what says why they cannot be read more than once."""
    by_model = batches if isinstance(batches, Mapping) else dict.fromkeys(models, batches)
    for name in models:
        if name not in by_model:
            raise ValueError(f"batches: there are none for the model {name!r}. Give them by its name.")
        one = by_model[name]
        if isinstance(one, str | bytes | type) or not (callable(one) or isinstance(one, Iterable)):
            raise TypeError(
                f"batches: expected a list of batches, a DataLoader, or a function that returns one, got "
                f"{one!r:.80} for {name!r}."
            )
        if not callable(one) and iter(one) is one:
            raise TypeError(
                f"batches: the iterator for {name!r} can be read once, and each stack needs all of it. "
                "Give a list, or a function that returns an iterator."
            )
    return {name: by_model[name] for name in models}
