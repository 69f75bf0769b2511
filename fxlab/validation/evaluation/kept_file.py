"""A file with a line for each batch that was judged, from which an evaluation goes on."""

import dataclasses
import functools
import hashlib
import inspect
import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch
from torch import nn
from torch.fx import GraphModule

from fxlab._version import __version__
from fxlab.models.state.module_tensors import tensors_of
from fxlab.models.state.settings import NumericSettings
from fxlab.transformations.signature import digest
from fxlab.validation.evaluation.batch_inputs import add_to
from fxlab.validation.evaluation.judge_batch import BatchResult
from fxlab.validation.verdicts.judgement import Status

_FORMAT = 5
_WORDS = {
    "format": "the format of the file",
    "fxlab": "the version of fxlab",
    "torch": "the version of torch",
    "original": "the model (its graph or its weights)",
    "transformed": "the stack of passes (the graph or weights that they give)",
    "settings": "the settings of torch",
    "metrics": "the metrics (their code or state)",
}


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
        self._results: dict[int, tuple[BatchResult, str]] = {}
        """The results by the numbers of batches, with the fingerprint of each batch."""
        lines = self._whole_lines()
        if lines:
            self._check_header(lines[0], header)
            for place, line in enumerate(lines[1:], 2):
                result, batch = self._read(line, place)
                self._results[result.number] = result, batch
        else:
            path.write_text(json.dumps(header) + "\n", encoding="utf-8")

    def result(self, number: int, batch: str) -> BatchResult | None:
        """Return what is known of a batch, by its number; ValueError if it had another fingerprint."""
        result, known = self._results.get(number, (None, batch))
        if known != batch:
            raise ValueError(
                f"resume: batch {number} is not the one that the file knows. Give the batches in the "
                "same order as before (a DataLoader with shuffle=False), or another file."
            )
        return result

    def add(self, result: BatchResult, batch: str) -> None:
        """Write a line; it is on the disk when this returns."""
        data = {"result": dataclasses.asdict(result), "batch": batch}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**data, "digest": digest(json.dumps(data))}) + "\n")

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
            data = json.loads(line)
            if data.pop("digest") != digest(json.dumps(data)):
                raise ValueError("it was changed")
            return _value_of(BatchResult, data["result"]), data["batch"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._broken(place, str(error)) from error

    def _broken(self, place: int, why: str) -> ValueError:
        return ValueError(
            f"resume: line {place} of {self._path} is none that an evaluation writes: {why:.200}. "
            "Give another file, or delete this one to start anew."
        )


_hints = functools.cache(get_type_hints)


def _value_of(kind: Any, data: Any) -> Any:
    """Return a value of an annotated type from the JSON of ``dataclasses.asdict``."""
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if data is None else _value_of(of[0], data)
    if origin is tuple:
        return tuple(_value_of(of[0], item) for item in data)
    if origin is dict:
        return {name: _value_of(of[1], item) for name, item in data.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _value_of(hints[name], item) for name, item in data.items()})
    return Status(data) if kind is Status else data


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
