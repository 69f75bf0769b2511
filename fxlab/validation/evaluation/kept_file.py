"""A file with a line for each batch that was judged, from which an evaluation goes on."""

import dataclasses
import enum
import functools
import hashlib
import inspect
import json
import math
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab._version import __version__
from fxlab.models.module_tensors import tensors_of
from fxlab.models.settings import NumericSettings
from fxlab.transformations.signature import digest
from fxlab.validation.evaluation.agreement import LOSS, MEAN, SHARE
from fxlab.validation.evaluation.batch_inputs import add_to
from fxlab.validation.evaluation.judge_batch import FAILED, REFUSED, BatchResult
from fxlab.validation.verdicts.judgement import Status

_FORMAT = 3
_WORDS = {
    "format": "the format of the file",
    "fxlab": "the version of fxlab",
    "torch": "the version of torch",
    "original": "the model (its graph or its weights)",
    "transformed": "the stack of passes (the graph or weights that they give)",
    "settings": "the settings of torch",
    "metrics": "the metrics (their code or state)",
}


@dataclasses.dataclass(frozen=True)
class _Line:
    result: BatchResult
    batch: str
    """The fingerprint of the batch."""


class KeptFile:
    """The lines of an evaluation.

    ``path``: the file. If it is there, it is read and checked. ``original``, ``transformed``, ``metrics``:
    those of the evaluation. Raises ValueError if the file is of another evaluation, or of none.
    """

    def __init__(
        self, path: Path, original: GraphModule, transformed: GraphModule, metrics: Mapping[str, Any]
    ) -> None:
        self._path = path
        header = {
            "format": _FORMAT,
            "fxlab": __version__,
            "torch": str(torch.__version__),
            "original": _model_print(original),
            "transformed": _model_print(transformed),
            # With TF32, say, the same models compute other numbers.
            "settings": ", ".join(NumericSettings.now().unusual),
            "metrics": {name: _metric_print(metrics[name]) for name in sorted(metrics)},
        }
        self.results: dict[int, tuple[BatchResult, str]] = {}
        """The results by the numbers of batches, with the fingerprint of each batch."""
        lines = self._whole_lines()
        if lines:
            self._check_header(lines[0], header)
            for place, line in enumerate(lines[1:], 2):
                result, batch = self._read(line, place)
                self.results[result.number] = result, batch
        else:
            path.write_text(json.dumps(header) + "\n", encoding="utf-8")

    def add(self, result: BatchResult, batch: str) -> None:
        """Write a line; it is on the disk when this returns."""
        data = dataclasses.asdict(_Line(result, batch))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(data) + "\n")

    def _whole_lines(self) -> list[str]:
        """Return the lines; one that a stopped run has written by half at the end is cut off."""
        if not self._path.exists():
            return []
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data) and whole:
            self._path.write_bytes(whole)
        try:
            return whole.decode().splitlines() or ([data.decode()] if data else [])
        except UnicodeDecodeError as error:
            raise self._broken(1, "no text") from error

    def _check_header(self, line: str, header: Mapping[str, Any]) -> None:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._broken(1, "no JSON") from error
        if not isinstance(found, dict) or found.keys() != header.keys():
            raise self._broken(1, f"expected {', '.join(header)}")
        other = [words for key, words in _WORDS.items() if found[key] != header[key]]
        if other:
            raise ValueError(
                f"resume: {self._path} is of another evaluation: {', '.join(other)} is not the same. "
                "Give another file, or delete this one to start anew."
            )

    def _read(self, line: str, place: int) -> tuple[BatchResult, str]:
        try:
            line_read = read_as(_Line, json.loads(line))
            _check_result(line_read.result)
            if line_read.result.number in self.results:
                raise ValueError(f"batch {line_read.result.number} is there twice")
        except (ValueError, RecursionError) as error:
            raise self._broken(place, str(error)) from error
        return line_read.result, line_read.batch

    def _broken(self, place: int, why: str) -> ValueError:
        return ValueError(
            f"resume: line {place} of {self._path} is none that an evaluation writes: {why:.200}. "
            "Give another file, or delete this one to start anew."
        )


def _check_result(result: BatchResult) -> None:
    """Raise the ``ValueError`` for a result that no batch can have, although its types are right."""
    verdict, is_judged = result.verdict, result.status in {*Status}
    if not is_judged and result.status not in (REFUSED, FAILED):
        raise ValueError(f"status: {result.status!a:.40} is none")
    if is_judged != (verdict is not None) or (verdict is not None and verdict.status != result.status):
        raise ValueError("status: the verdict has another one")
    if result.number < 0 or result.elements < 0:
        raise ValueError("number, elements: expected some that are not negative")
    for name, measure in result.measures.items():
        is_share = measure.kind == SHARE
        if measure.kind not in (SHARE, LOSS, MEAN) or not measure.count >= 0:
            raise ValueError(f"measures[{name!a:.40}]: no kind of measure, or of less than nothing")
        if is_share and not 0 <= measure.total <= measure.count < math.inf:
            raise ValueError(f"measures[{name!a:.40}]: a share is of a part")


def _model_print(graph_module: GraphModule) -> str:
    found = hashlib.blake2b(digest_size=16)
    found.update(graph_module.code.encode())
    for tensor in tensors_of(graph_module):
        add_to(found, tensor.detach())
    for name, module in graph_module.named_modules():
        # Settings of modules, such as a dropout's probability, are neither in the code nor in tensors.
        found.update(f"{name}{module.extra_repr()}{module.training}".encode())
    return found.hexdigest()


def _metric_print(metric: Any) -> str:
    """Return a digest of a metric: its code, its attributes, and the variables that it reads.

    Functions that it calls count by their names alone.
    """
    called = metric.func if isinstance(metric, functools.partial) else metric
    if not isinstance(called, types.FunctionType | types.MethodType):
        name = "forward" if isinstance(called, nn.Module) else "__call__"
        # Statically, as looking it up may run the code of a descriptor.
        called = inspect.getattr_static(type(called), name, None)
    function = getattr(called, "__func__", called)
    read = {}
    if isinstance(function, types.FunctionType):
        known = function.__globals__
        read = {
            name: known[name] for name in function.__code__.co_names if isinstance(known.get(name), _DATA)
        }
    held = vars(metric) if isinstance(metric, nn.Module) else {}
    return digest((metric, function, read, held))


_DATA = (str, bytes, int, float, complex, tuple, list, dict, set, frozenset, torch.Tensor)


T = TypeVar("T")
_LARGE = 2**1023
"""No float can hold twice as much."""


def read_as(kind: type[T], data: object) -> T:
    """Return a dataclass from the JSON of ``dataclasses.asdict``.

    Every field has to be there, no other may be, and each has to be of the type that is annotated: an ``int``
    may stand for a ``float``, a list for a tuple; any other type raises a ValueError that names it.
    """
    value: T = _read(kind, data, "")
    return value


@cache
def _types_of(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _read(kind: Any, data: Any, place: str) -> Any:
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if data is None and types.NoneType in of:
            return None
        (kind,) = (one for one in of if one is not types.NoneType)
        return _read(kind, data, place)
    if origin is tuple and isinstance(data, list):
        return tuple(_read(of[0], item, f"{place}[{number}]") for number, item in enumerate(data))
    if origin is dict and isinstance(data, dict):
        inside = {_text(name, place): f"{place}[{name!a:.40}]" for name in data}
        return {name: _read(of[1], data[name], where) for name, where in inside.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(data, dict):
        wanted = _types_of(kind)
        if data.keys() != wanted.keys():
            raise ValueError(f"{place or kind.__name__}: expected the fields {', '.join(wanted)}")
        read = {name: _read(one, data[name], f"{place}.{name}".lstrip(".")) for name, one in wanted.items()}
        return kind(**read)
    if isinstance(kind, type) and issubclass(kind, enum.Enum) and isinstance(data, str):
        return kind(data)
    if kind is str and isinstance(data, str):
        return _text(data, place)
    if type(data) is kind or (kind is float and type(data) is int and abs(data) < _LARGE):
        return data
    raise ValueError(f"{place}: expected {getattr(kind, '__name__', kind)}, got {type(data).__name__}")


def _text(data: str, place: str) -> str:
    """Return a text that can be written to a file or a terminal, which half of a surrogate pair cannot."""
    try:
        data.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{place}: {data!a:.80} is no text") from error
    return data
