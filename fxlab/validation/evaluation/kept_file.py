"""A file with a line for each batch that was judged, from which an evaluation goes on."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from fxlab._version import __version__
from fxlab.validation.evaluation.agreement import Measured
from fxlab.validation.evaluation.batch_inputs import add_to
from fxlab.validation.evaluation.judge_batch import BatchResult
from fxlab.validation.module_tensors import tensors_of
from fxlab.validation.verdicts.comparison import Verdict
from fxlab.validation.verdicts.judgement import Errors, Judgement, Status

_FORMAT = 1
_WORDS = {
    "format": "the format of the file",
    "fxlab": "the version of fxlab",
    "torch": "the version of torch",
    "original": "the model (its graph or its weights)",
    "transformed": "the stack of passes (the graph or weights that they give)",
    "metrics": "the metrics",
}


class KeptFile:
    """The lines of an evaluation.

    Parameters
    ----------
    path
        The file. If it is there, it is read and checked.
    original, transformed, metrics
        What the evaluation is of; a file of another one is refused.

    Raises
    ------
    ValueError
        If the file is of another evaluation, or is none.
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
            "metrics": sorted(metrics),
        }
        self.results: dict[int, tuple[BatchResult, str]] = {}
        """What is known by the numbers of batches, with what tells the batch from others."""
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
        data = dataclasses.asdict(result) | {"batch": batch}
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
            raise self._broken(1) from error

    def _check_header(self, line: str, header: Mapping[str, Any]) -> None:
        try:
            found = json.loads(line)
        except ValueError as error:
            raise self._broken(1) from error
        if not isinstance(found, dict) or found.keys() != header.keys():
            raise self._broken(1)
        other = [words for key, words in _WORDS.items() if found[key] != header[key]]
        if other:
            raise ValueError(
                f"resume: {self._path} is of another evaluation: {', '.join(other)} is not the same. "
                "Give another file, or delete this one to start anew."
            )

    def _read(self, line: str, place: int) -> tuple[BatchResult, str]:
        try:
            data = json.loads(line)
            batch = data.pop("batch")
            verdict = data.pop("verdict")
            data["measures"] = {name: Measured(**value) for name, value in data["measures"].items()}
            for name in ("worst_index", "left"):
                data[name] = tuple(data[name])
            result = BatchResult(**data, verdict=None if verdict is None else _verdict(verdict))
            if type(result.number) is not int or not isinstance(batch, str) or math.isnan(result.elements):
                raise ValueError("not a result")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._broken(place) from error
        return result, batch

    def _broken(self, place: int) -> ValueError:
        return ValueError(
            f"resume: line {place} of {self._path} is none that an evaluation writes. "
            "Give another file, or delete this one to start anew."
        )


def _verdict(data: dict[str, Any]) -> Verdict:
    outputs = {}
    for path, judgement in data.pop("outputs").items():
        errors = judgement.pop("errors")
        status = Status(judgement.pop("status"))
        outputs[path] = Judgement(
            status=status, errors=None if errors is None else Errors(**errors), **judgement
        )
    lists: dict[str, Any] = {name: tuple(data.pop(name)) for name in ("without_gradients", "in_own_dtype")}
    return Verdict(status=Status(data.pop("status")), outputs=outputs, **lists, **data)


def _model_print(graph_module: GraphModule) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(graph_module.code.encode())
    for tensor in tensors_of(graph_module):
        add_to(digest, tensor.detach())
    for name, module in graph_module.named_modules():
        digest.update(f"{name}{module.extra_repr()}{module.training}".encode())
    return digest.hexdigest()
