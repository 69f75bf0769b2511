"""A recorded run, its operations with fingerprints of values, and the file of it: written, read, compared.

A file is a zip of one JSON document and one array of numbers. Reading one runs no code.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx import Graph

from fxlab.base.checks import path_text
from fxlab.base.first_use import pd
from fxlab.base.words import listed
from fxlab.html_report.page import write
from fxlab.validation.alignment.fingerprint import Fingerprint
from fxlab.values import nested

INPUT, WEIGHT, UNSEEN, COMPILED, OPERATOR = "input", "weight", "unseen", "compiled", "operator"
_NO_NAME = re.compile(r"\W+", re.ASCII)
KINDS = INPUT, WEIGHT, UNSEEN, COMPILED, OPERATOR
"""Kinds of steps: values that are given, held, made by code that no mode of torch sees, and computed."""


@dataclass
class Value:
    """A tensor of a run."""

    path: nested.Path
    """The path in the result of the step; empty for a result that is one tensor."""
    shape: tuple[int, ...]
    dtype: str
    fingerprint: Fingerprint | None
    """``None`` for memory that holds no values yet, and for layouts that have none."""
    moved: float | None = None
    """How far rounding each result again has moved it, relative to the largest element."""


@dataclass
class Step:
    """An operation of a run, or a tensor that it was given."""

    kind: str
    target: str
    """The operator, such as ``aten.addmm.default``; the name of an input or weight; the class of a module."""
    args: list[Any] = field(default_factory=list)
    """Plain values; a tensor is ``{"step": number}``, and anything else ``{"text": ...}``."""
    call: int = -1
    """The module call, as its place in :attr:`RecordedRun.calls`."""
    line: int = -1
    """The source lines, as their place in :attr:`RecordedRun.lines`."""
    is_backward: bool = False
    values: list[Value] = field(default_factory=list)


@dataclass(repr=False)
class RecordedRun:
    """A run of a model as :func:`fxlab.runs.record_run` has recorded it: fingerprints, and no values.

    ``str()`` describes the contents; :attr:`table` has a row for each value.
    """

    model: str
    """The class of the model, or the name of the function."""
    versions: dict[str, str] = field(init=False, default_factory=dict)
    """Of fxlab, torch and Python, and the devices."""
    settings: dict[str, str] = field(init=False, default_factory=dict)
    """The numeric settings of torch, and ``training``."""
    notes: list[str] = field(init=False, default_factory=list)
    """The parts that could not be seen or measured."""
    error: str = field(init=False, default="")
    """The error of the run; empty if it has returned."""
    steps: list[Step] = field(init=False, default_factory=list)
    calls: list[tuple[str, str, int]] = field(init=False, default_factory=list)
    """Module calls in order: path, class, and the place of the call around it, or -1."""
    lines: list[str] = field(init=False, default_factory=list)
    outputs: dict[str, tuple[int, Fingerprint]] = field(init=False, default_factory=dict)
    """Path of an output -> the step that computed it, and its fingerprint."""

    @property
    def dtypes(self) -> list[str]:
        """The floating-point dtypes in which it computes."""
        found = (v.dtype for step in self.steps if step.kind == OPERATOR for v in step.values)
        return [*dict.fromkeys(dtype for dtype in found if dtype.startswith(("float", "bfloat", "complex")))]

    @property
    def names(self) -> list[str]:
        """A name for each step, as the nodes of a graph have them."""
        graph = Graph()
        bases = (
            step.target.split(".")[1]
            if step.kind == OPERATOR and "." in step.target
            else step.target.rpartition(".")[2]
            if step.kind == COMPILED
            else step.target
            for step in self.steps
        )
        names = (_NO_NAME.sub("_", base) for base in bases)
        return [graph.create_node("placeholder", name, name=name).name for name in names]

    @property
    def is_measured(self) -> bool:
        """Whether it was measured how far rounding moves the values."""
        return any(value.moved is not None for step in self.steps for value in step.values)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each value, in the order of the run, with its place in the model and statistics."""
        rows = []
        for name, step in zip(self.names, self.steps, strict=True):
            line = self.lines[step.line].strip().splitlines() if step.line >= 0 else []
            for value in step.values:
                found = value.fingerprint
                rows.append(
                    {
                        "node": name,
                        "operator": step.target,
                        "module": self.calls[step.call][0] if step.call >= 0 else "",
                        "shape": value.shape,
                        "dtype": value.dtype,
                        **({} if found is None else found.statistics),
                        "nan": None if found is None else found.special[0],
                        "infinite": None if found is None else sum(found.special[1:]),
                        "moved": value.moved,
                        "line": line[-1].strip() if line else "",
                    }
                )
        columns = ["node", "operator", "module", "shape", "dtype", "min", "max", "mean", "rms"]
        columns += ["nan", "infinite", "moved", "line"]
        return pd.DataFrame(rows, columns=columns).set_index("node")

    def __str__(self) -> str:
        values = sum(len(step.values) for step in self.steps)
        made = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        words = f"{values} values of {self.model} in {len(self.calls)} module calls ({made})"
        ended = [f"The run raised {self.error}"] if self.error else []
        return ". ".join([words, *ended, *self.notes]) + "."

    def __repr__(self) -> str:
        return f"RecordedRun({self.model}: {listed([*self.outputs]) or self.error or 'no outputs'})"


FORMAT = 1
_DOCUMENT, _NUMBERS = "run.json", "numbers.npy"
_MOST_BYTES = 2**32
"""The most bytes of an unpacked member of a file."""
_DTYPE = re.compile(r"[a-z]+[0-9a-z_]*")


def write_run(run: RecordedRun, path: str | os.PathLike[str]) -> Path:
    """Write a run completely or not at all."""
    path_text(path, "path")
    file, numbers = Path(path), list[float]()
    document = {
        "format": FORMAT,
        **{name: getattr(run, name) for name in ("model", "versions", "settings", "notes", "error")},
        "calls": run.calls,
        "lines": run.lines,
        "steps": [_step_to_json(step, numbers) for step in run.steps],
        "outputs": [
            [name, at, found.shape, found.elements != math.prod(found.shape), _count(found, numbers)]
            for name, (at, found) in run.outputs.items()
        ],
    }
    array, packed = io.BytesIO(), io.BytesIO()
    np.save(array, np.array(numbers, dtype="<f8"))
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as members:
        members.writestr(_DOCUMENT, json.dumps(document, separators=(",", ":")))
        members.writestr(_NUMBERS, array.getvalue())
    write(file, packed.getvalue())
    return file


def is_run_file(path: Any) -> bool:
    """Tell whether something is the path of a file of a run, by its name or its contents."""
    if not isinstance(path, str | os.PathLike):
        return False
    if os.fspath(path).endswith(".run"):
        return True
    try:
        with zipfile.ZipFile(path) as members:
            return _DOCUMENT in members.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def read_run(path: str | os.PathLike[str]) -> RecordedRun:
    """Read a run; ValueError if the file is damaged, or of a format that this version does not know."""
    name = os.path.basename(os.fspath(path))
    try:
        with zipfile.ZipFile(path) as members:
            # The file may come from anybody, and a small archive may unpack to more than the memory.
            large = [one.filename for one in members.infolist() if one.file_size > _MOST_BYTES]
            if large:
                raise ValueError(f"{large[0]} is larger than any run")
            document = json.loads(members.read(_DOCUMENT))
            array = np.load(io.BytesIO(members.read(_NUMBERS)), allow_pickle=False)
        if document["format"] != FORMAT:
            raise NotImplementedError
        return _run_from_json(document, torch.from_numpy(array.astype(np.float64)))
    except OSError:
        raise
    except NotImplementedError:
        raise ValueError(
            f"{name}: this run has format {document['format']!r}, and this fxlab reads format {FORMAT}. "
            "Use the fxlab that recorded it, or record it again."
        ) from None
    except Exception as error:  # a damaged file may lead to any error
        raise ValueError(
            f"{name}: expected a run that fxlab.runs.record_run wrote, but the file is damaged or another "
            f"one ({type(error).__name__}: {error}). Record the run again."
        ) from None


def _step_to_json(step: Step, numbers: list[float]) -> list[Any]:
    values = [
        [
            value.path,
            value.shape,
            value.dtype,
            -1 if value.fingerprint is None else _count(value.fingerprint, numbers),
            value.moved,
        ]
        for value in step.values
    ]
    return [step.kind, step.target, step.args, step.call, step.line, int(step.is_backward), values]


def _count(found: Fingerprint, numbers: list[float]) -> int:
    own = found.numbers
    numbers += own
    return len(own)


def _run_from_json(document: dict[str, Any], numbers: torch.Tensor) -> RecordedRun:
    run = RecordedRun(_text(document["model"]))
    run.versions, run.settings = _texts(document["versions"]), _texts(document["settings"])
    run.notes, run.lines = ([_text(each) for each in document[name]] for name in ("notes", "lines"))
    run.error = _text(document["error"])
    for path, cls, around in document["calls"]:
        run.calls.append((_text(path), _text(cls), _place(around, len(run.calls))))
    if numbers.dim() != 1:
        raise ValueError("the numbers are in no one row")
    taken = 0

    def fingerprint(shape: tuple[int, ...], is_complex: bool, count: int) -> Fingerprint:
        """Return that of the next numbers."""
        nonlocal taken
        start, taken = taken, taken + count
        if count < 0 or taken > len(numbers):
            raise ValueError("there are fewer numbers than values")
        return Fingerprint.from_numbers(shape, is_complex, numbers[start:taken])

    for kind, target, args, call, line, is_backward, values in document["steps"]:
        if kind not in KINDS:
            raise ValueError(f"there is no kind of step {kind!r}")
        step = Step(kind, _text(target), args, _place(call, len(run.calls)), _place(line, len(run.lines)))
        # Only in this order the run is a graph without circles.
        if not isinstance(args, list) or any(at >= len(run.steps) for at in steps_read(args)):
            raise ValueError("a step reads one that comes later")
        step.is_backward = bool(is_backward)
        for path, shape, dtype, count, moved in values:
            if not _DTYPE.fullmatch(dtype) or not (moved is None or moved >= 0):
                raise ValueError(f"{dtype!r} is no dtype, or {moved!r} no distance")
            sizes = _shape(shape)
            found = None if count < 0 else fingerprint(sizes, dtype.startswith("complex"), count)
            step.values.append(Value(tuple(path), sizes, dtype, found, moved))
        run.steps.append(step)
    for name, at, shape, is_complex, count in document["outputs"]:
        found = fingerprint(_shape(shape), is_complex, count)
        run.outputs[_text(name)] = _place(at, len(run.steps)), found
    if taken != len(numbers):
        raise ValueError("there are more numbers than values")
    return run


def steps_read(args: Any) -> Iterator[int]:
    """Yield the steps whose results are among arguments."""
    if isinstance(args, dict):
        if "step" in args:
            at = args["step"]
            if type(at) is not int or at < 0:
                raise ValueError(f"{at!r} is no step")
            yield at
    elif isinstance(args, list):
        for each in args:
            yield from steps_read(each)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in values.items()}


def _place(value: Any, count: int) -> int:
    if type(value) is not int or not -1 <= value < count:
        raise ValueError(f"{value!r} is no place among {count}")
    return value


def _shape(shape: Any) -> tuple[int, ...]:
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{shape!r} is no shape")
    return tuple(shape)
