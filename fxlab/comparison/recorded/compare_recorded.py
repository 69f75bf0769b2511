"""Compares recorded runs, many with one or one with a model, for ``compare`` and ``compare_runs``."""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxlab.base.checks import type_error
from fxlab.base.first_use import pd
from fxlab.base.torch_private import OpOverload
from fxlab.base.units import with_unit
from fxlab.base.words import listed
from fxlab.comparison.comparison import Comparison
from fxlab.comparison.pairing import checked_outputs
from fxlab.comparison.recorded.record_run import record
from fxlab.comparison.recorded.recorded_run import (
    INPUT,
    OPERATOR,
    UNSEEN,
    WEIGHT,
    RecordedRun,
    Step,
    is_run_file,
    read_run,
    steps_read,
)
from fxlab.comparison.weights import WRONG, Weight
from fxlab.html_report.page import checked_path
from fxlab.html_report.report import report_several
from fxlab.operators.node_info import dtype_named
from fxlab.validation.alignment.align import Alignment, align_sides, paired_paths
from fxlab.validation.alignment.fingerprint import TOLERANCE, Fingerprint
from fxlab.validation.alignment.side import Side, Values
from fxlab.validation.outputs.computed_tensors import GRADIENT, is_output, is_written
from fxlab.validation.verdicts.judgement import Judgement, Status
from fxlab.validation.verdicts.result import Verdict, summary
from fxlab.values.tensors import unit_of

ROUNDINGS = 4
"""How many times as far as rounding has moved a value two equal runs may be apart."""
_LARGEST = 0.05
"""The largest relative difference that counts as rounding."""
_OPERATOR = re.compile(r"(\w+)\.(\w+)\.(\w+)")
_PATH = re.compile(r"\w+(\.\w+)*", re.ASCII)


def side_of(run: RecordedRun) -> Side:
    """Return a run as a side of an alignment; its values count as the same up to its own rounding."""
    graph = Graph()
    nodes = _nodes(run, graph)
    held = {str(node.target): node.meta["val"] for node in nodes if node.op == "get_attr"}
    returned = {path: nodes[at] for path, (at, _) in run.outputs.items() if at >= 0}
    graph.output(returned or tuple(node for node in nodes if not node.users))
    module = GraphModule(held, graph, run.model if run.model.isidentifier() else "RecordedRun")
    values: Values = {}
    for node, step in zip(nodes, run.steps, strict=True):
        found = {value.path: value.fingerprint for value in step.values if value.fingerprint is not None}
        if found:
            values[node] = found
    outputs = {path: found for path, (_, found) in run.outputs.items()}
    side = Side(module, values, outputs, origins=[node for node in nodes if draws(node)])
    tolerances = [*_tolerances(run)]
    side.tolerance = {node: t for node, t in zip(nodes, tolerances, strict=True) if node in values}
    side.tolerance_of_outputs = {p: tolerances[at] for p, (at, _) in run.outputs.items() if at >= 0}
    return side


def _nodes(run: RecordedRun, graph: Graph) -> list[Node]:
    nodes: list[Node] = []
    stacks: dict[int, dict[str, tuple[str, str]]] = {-1: {}}
    for at, (path, cls, around) in enumerate(run.calls):
        outside = stacks[around]
        # A module may call itself, and a stack is a dictionary by path.
        key = path if path not in outside else f"{path}@{at}"
        stacks[at] = {**outside, key: (path, cls)}
    for at, (name, step) in enumerate(zip(run.names, run.steps, strict=True)):
        node = _node(step, at, name, nodes, graph)
        if stack := stacks[step.call]:
            node.meta["fwd_nn_module_stack" if step.is_backward else "nn_module_stack"] = dict(stack)
        if step.line >= 0:
            node.meta["stack_trace"] = run.lines[step.line]
        known = [torch.empty(v.shape, dtype=dtype_named(v.dtype), device="meta") for v in step.values]
        if known:
            node.meta["val"] = known[0] if [v.path for v in step.values] == [()] else tuple(known)
        nodes.append(node)
    return nodes


def _node(step: Step, at: int, name: str, nodes: list[Node], graph: Graph) -> Node:
    if step.kind in (INPUT, UNSEEN):
        return graph.create_node("placeholder", name, (), {}, name)
    if step.kind == WEIGHT:
        target = step.target if _PATH.fullmatch(step.target) else f"weight_{at}"
        return graph.create_node("get_attr", target, (), {}, name)
    args = tuple(_argument(each, nodes) for each in step.args)
    if step.kind == OPERATOR and (found := _operator(step.target)) is not None:
        return graph.create_node("call_function", found, args, {}, name)
    return graph.create_node("call_function", _stand_in(name), args, {}, name)


def _argument(value: Any, nodes: list[Node]) -> Any:
    if isinstance(value, list):
        return [_argument(each, nodes) for each in value]
    if isinstance(value, dict):
        return nodes[value["step"]] if "step" in value else str(value.get("text", ""))
    return value


def _operator(name: str) -> OpOverload | None:
    """Return an operator of torch by its name, if this torch has it."""
    parts = _OPERATOR.fullmatch(name)
    found: Any = torch.ops
    for part in parts.groups() if parts else ():
        found = getattr(found, part, None)
    return found if isinstance(found, OpOverload) else None


def _stand_in(name: str) -> Callable[..., Any]:
    def recorded(*_: Any) -> Any:
        raise RuntimeError("This graph is a run that was recorded: it has fingerprints, and cannot run.")

    recorded.__name__ = recorded.__qualname__ = name
    recorded.__module__ = "recorded"
    return recorded


def draws(node: Node) -> bool:
    """Tell whether a node draws random numbers, so that it may be wrong although it reads nothing."""
    return isinstance(node.target, OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _tolerances(run: RecordedRun) -> Iterator[float]:
    """Yield by step how far rounding may move its values: as measured, or else estimated."""
    units, depths = list[float](), list[int]()
    for step in run.steps:
        read = [*steps_read(step.args)]
        unit = max([_unit_of(value.dtype) for value in step.values] + [units[at] for at in read], default=0.0)
        depth = 1 + max((depths[at] for at in read), default=0)
        units.append(unit)
        depths.append(depth)
        moved = [value.moved for value in step.values if value.fingerprint is not None]
        if all(each is not None for each in moved):
            apart = max([unit, *(each for each in moved if each is not None)])
        else:
            # Independent roundings add up like the steps of a random walk.
            apart = unit * math.sqrt(depth)
        yield min(ROUNDINGS * apart, _LARGEST)


def _unit_of(dtype: str) -> float:
    """Return the relative rounding of a dtype, by its name; none of whole numbers."""
    found = dtype_named(dtype)
    return 0.0 if found is None else unit_of(found)


def is_recorded(model: Any) -> bool:
    """Tell whether something is a recorded run, or the file of one."""
    return isinstance(model, RecordedRun) or is_run_file(model)


def compare_recorded(
    reference: Any,
    candidate: Any,
    inputs: Any,
    candidate_inputs: Any,
    outputs: Mapping[str | int, str | int] | None,
    gradients: bool,
) -> Comparison:
    """Compare two runs by their fingerprints; a model in place of a run is recorded here, on the inputs."""
    others = inputs if candidate_inputs is None else candidate_inputs
    runs = _run(reference, inputs, gradients), _run(candidate, others, gradients)
    ours, theirs = map(side_of, runs)
    compared = [*_compared(*runs)]
    if any(run.error for run in runs):  # which may not have come to a weight
        compared = [weight for weight in compared if weight.candidate and weight.reference]
    pairs = _pairs(outputs, ours, theirs, compared)
    wrong = [weight.candidate for weight in compared if weight.status in WRONG]
    alignment = align_sides(ours, theirs, pairs, wrong)
    verdict = _verdict(runs, alignment)
    drawn = [node.name for node in alignment.parted if draws(node)]
    notes = [f"random numbers differ at {listed(drawn)}: seed both runs alike"] if drawn else []
    given = {name for name, step in zip(runs[1].names, runs[1].steps, strict=True) if step.kind == INPUT}
    others = [node.name for node in alignment.parted if node.op == "placeholder" and node.name in given]
    notes += [f"the runs have other inputs: {listed(others)}"] if others else []
    return Comparison(alignment, verdict, compared, (), None, None, notes=(*notes, *_notes(runs)))


def _run(model: Any, inputs: Any, gradients: bool) -> RecordedRun:
    if isinstance(model, RecordedRun):
        return model
    if is_run_file(model):
        return read_run(os.fspath(model))
    run = RecordedRun("")
    record(run, model, inputs, backward=gradients)
    return run


def _pairs(outputs: Any, ours: Side, theirs: Side, weights: Any) -> dict[str, str]:
    if (asked := checked_outputs(outputs, ours.outputs, theirs.outputs)) is not None:
        return asked
    pairs: dict[str, str] = {}
    for is_kind in (is_output, is_written):
        found = ({p: v.elements for p, v in side.outputs.items() if is_kind(p)} for side in (ours, theirs))
        pairs |= paired_paths(*found)
    names = {w.candidate: w.reference[0] for w in weights if len(w.reference) == 1}
    for path in theirs.outputs:
        name = path.removeprefix(GRADIENT)
        other = GRADIENT + names.get(name, name)
        if path.startswith(GRADIENT) and other in ours.outputs:
            pairs[other] = path
    return pairs


def _verdict(runs: tuple[RecordedRun, RecordedRun], found: Alignment) -> Verdict:
    """Judge each output that both have by the fingerprints, and runs by whether they have returned."""
    judged = {}
    dtypes = [_dtypes(run) for run in runs]
    for (path, other), agrees in found.outputs.items():
        mine, its = found.original.outputs[path], found.transformed.outputs[other]
        limits = (
            s.tolerance_of_outputs.get(p, 0.0)
            for s, p in ((found.original, path), (found.transformed, other))
        )
        limit = max(*limits, TOLERANCE)
        compared = mine.elements - sum(mine.special)
        status, words = Status.DIFFERENT, _other_form(mine, its, dtypes[0].get(path), dtypes[1].get(other))
        if not words:
            words = _apart(mine, its, limit)
            status = status if not agrees else Status.WITHIN_ROUNDING if compared else Status.NOTHING_COMPARED
        if status is Status.NOTHING_COMPARED:
            words = "it has no finite elements"
        judged[path] = Judgement(status, words, mine.elements, compared=compared)
    errors = [
        f"the {name}'s run raised {run.error}" for name, run in zip(_NAMES, runs, strict=True) if run.error
    ]
    if errors:
        is_same = runs[0].error == runs[1].error and not (found.parted or found.parted_original)
        status = Status.NOTHING_COMPARED if is_same else Status.DIFFERENT
        judged["run"] = Judgement(status, "; ".join(errors), 0)
    if not judged:
        judged["output"] = Judgement(Status.NOTHING_COMPARED, "neither run returned tensors", 0)
    verdict = summary(judged)
    how = "measured" if all(run.is_measured for run in runs) else "in part estimated"
    known = listed([*dict.fromkeys(dtype for run in runs for dtype in run.dtypes)]) or "no floating point"
    words = f"compared by fingerprints of recorded values ({known}; rounding {how}), not in float64"
    return replace(verdict, reason=f"{verdict.reason}; {words}")


_NAMES = "reference", "candidate"


def _dtypes(run: RecordedRun) -> dict[str, str]:
    """Return the dtypes of the outputs that are the result of one step, by path."""
    values = {path: run.steps[at].values for path, (at, _) in run.outputs.items() if at >= 0}
    return {path: found[0].dtype for path, found in values.items() if len(found) == 1}


def _other_form(mine: Fingerprint, its: Fingerprint, dtype: str | None, other: str | None) -> str:
    """Tell how shapes and dtypes differ; floating-point ones may be of any precision."""
    if mine.shape != its.shape:
        return f"the shapes differ: {mine.shape} and {its.shape}"
    if dtype and other and dtype != other and not (_unit_of(dtype) and _unit_of(other)):
        return f"the dtypes differ: {dtype} and {other}"
    return ""


def _apart(mine: Fingerprint, its: Fingerprint, limit: float) -> str:
    if mine.special != its.special:
        return f"other numbers of NaN and infinite elements: {mine.special} and {its.special}"
    if mine.bits() == its.bits():
        return "the fingerprints are equal to the last bit"
    apart = mine.moved_by(its)
    words = f"fingerprints {with_unit(apart)} apart (relative), where rounding explains"
    return f"{words} {with_unit(limit)}"


def _notes(runs: tuple[RecordedRun, RecordedRun]) -> Iterator[str]:
    for name, run in zip(_NAMES, runs, strict=True):
        yield from (f"of the {name}, {note}" for note in run.notes)
    for what in ("versions", "settings"):
        ours, theirs = (getattr(run, what) for run in runs)
        others = [
            f"{name} {ours[name]} and {theirs[name]}"
            for name in ours
            if name in theirs and ours[name] != theirs[name]
        ]
        if others:
            yield f"other {what}: {listed(others)}"


def _compared(reference: RecordedRun, candidate: RecordedRun) -> Iterator[Weight]:
    """Compare weights by fingerprint: those that are used, in any shape."""
    held = [
        {s.target: v for s in run.steps if s.kind == WEIGHT for v in s.values if v.fingerprint is not None}
        for run in (reference, candidate)
    ]
    ours, theirs = ({name: v.fingerprint for name, v in each.items() if v.fingerprint} for each in held)
    by_size: dict[int, list[str]] = defaultdict(list)
    for name, found in ours.items():
        by_size[found.elements].append(name)
    used = set[str]()
    for name, found in theirs.items():
        mine = ours.get(name)
        same = [other for other in by_size[found.elements] if found.is_like(ours[other])]
        same.sort(key=lambda other: (other != name, not found.is_output_like(ours[other])))
        if not same:
            used.add(name)
            if mine is None or mine.elements != found.elements:
                yield Weight(name, (), "only in the candidate")
            else:
                apart = found.moved_by(mine)
                unit = max(_unit_of(each[name].dtype) for each in held)
                status = "rounded" if apart <= ROUNDINGS * unit else "other values"
                yield Weight(name, (name,), status, f"{with_unit(apart)} apart (relative)")
            continue
        other = ours[same[0]]
        used.add(same[0])
        if same[0] != name and mine is not None:
            yield Weight(name, (same[0],), "wrong layer", f"{name} stands at its place")
        elif found.is_output_like(other):
            yield Weight(name, (same[0],), "equal" if found.shape == other.shape else "reshaped")
        else:
            yield Weight(name, (same[0],), "transposed" if found.is_in_order_of(other) else "reordered")
    for name in ours:
        if name not in used and not any(found.is_like(ours[name]) for found in theirs.values()):
            yield Weight("", (name,), "only in the reference")


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
        The name of the run that the others are compared with: its file without ``.run``. Left out, the first.

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
