"""Trying each row."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator

import torch
from torch import nn
from tqdm import tqdm

from benchmarks.coverage.libraries.rows import Row
from benchmarks.coverage.processes import all_results
from benchmarks.coverage.progress import Progress
from benchmarks.coverage.results import Result, one_line, trace_and_compare
from fxlab.models.running.running import run
from fxlab.tracing.verification.eager import varied

LIBRARIES = {
    "timm": "timm",
    "torchvision": "torchvision",
    "diffusers": "diffusers",
    "torch_geometric": "torch-geometric",
    "segmentation_models_pytorch": "segmentation-models-pytorch",
    "x_transformers": "x-transformers",
    "open_clip": "open_clip_torch",
    "monai": "monai",
    "kornia": "kornia",
    "peft": "peft",
    "torchao": "torchao",
    "sentence_transformers": "sentence-transformers",
    "chronos": "chronos-forecasting",
}
"""File of rows -> the package that its models are from."""
_SECONDS = 400


def all_rows(names: list[str], workers: int, progress: Progress | None) -> list[Result]:
    """Try all rows, or those that are named: ``timm``, ``timm/resnet``.

    Parameters
    ----------
    names
        Libraries and rows; all if there is none.
    workers
        How many processes run at a time.
    progress
        Where results are kept, if they are.
    """
    results: list[Result] = []
    for library in LIBRARIES:
        if names and not any(name.split("/")[0] == library for name in names):
            continue
        rows = {f"{library}/{row.name}": row for row in _rows_of(library)}
        chosen = [name for name in rows if not names or name in names or library in names]
        tried = functools.partial(
            all_results, tried=functools.partial(_tried, rows), workers=workers, seconds=_SECONDS
        )
        found = progress.results(chosen, tried) if progress else tried(chosen)
        results.extend(tqdm(found, total=len(chosen), unit="model", desc=library))
    return results


def _rows_of(library: str) -> Iterator[Row]:
    # Here and not at the top: a library is in the memory of the processes that try its own models.
    yield from importlib.import_module(f"benchmarks.coverage.libraries.{library}").ROWS


def _tried(rows: dict[str, Row], name: str) -> Result:
    """Build, run, trace and compare the model of one row."""
    row, result = rows[name], Result(name)
    torch.manual_seed(0)
    try:
        model = _with_varied_weights(row.build().eval())
        inputs = row.made(row.sizes)
        result.outcome = "not run"
        run(model, inputs)
    except Exception as error:  # whatever a library raises
        result.reason = one_line(f"{type(error).__name__}: {error}")
        return result
    return trace_and_compare(result, model, inputs, row.others())


def _with_varied_weights(model: nn.Module) -> nn.Module:
    """Let weights that start as all zeros or ones differ, so that what they do can be seen."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.copy_(varied(tensor.detach()))
    return model
