"""Recorded runs as files: a zip of one JSON document and one array of numbers. Reading one runs no code."""

import io
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fxlab.base.checks import path_text
from fxlab.comparison.recorded.recorded_run import KINDS, RecordedRun, Step, Value
from fxlab.html_report.page import write
from fxlab.validation.alignment.fingerprint import Fingerprint

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
