"""The values of a node as a page or report shows them: statistics, a histogram and a map of each tensor."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import fx

from fxlab.models.running.arguments import Inputs
from fxlab.operators.node_info import dtype_name
from fxlab.view_model.protocol import Cells, NodeValue, SmallCells, TensorMap, TensorStatistics, ValuePart
from fxlab.view_model.wire import clip, to_json

if TYPE_CHECKING:
    from fxlab.validation import NodeValues, Slice, TensorValue
    from fxlab.validation.tensor_values.visited_run import FirstNonFinite

MOST_CELLS = 128
"""Of a map, in each direction: at most 87 KB, or twice that of numbers that float32 does not hold."""
MOST_SMALL, MOST_SMALL_CELLS = 32, 20
"""Small maps side by side, and their cells in each direction: at most 68 KB, or twice that."""
MOST_TENSORS = 60
_OF_NODE = ("value", "original", "difference")


@dataclass(frozen=True)
class Axes:
    """Two dimensions of a tensor, and an index in each dimension, which counts for the others alone.

    ``rows``, ``columns``: left out, the last two that have more than one element. ``index``: as long as the
    tensor has dimensions; empty for zero in each.
    """

    rows: int | None = None
    columns: int | None = None
    index: Sequence[int] = ()


USUAL = Axes()


def value_state(values: NodeValues, compared: str, first: FirstNonFinite | None, at: str = "") -> NodeValue:
    """Describe the tensors of a node, without their elements.

    ``compared``: the title of the stage that ``"original"`` is the value of. ``first``: where NaN and
    infinity come from, if there are any. ``at``: the title of the stage of the values, if another is shown.
    """
    return {
        "compared": clip(compared, 200),
        "at": clip(at, 200),
        "notes": [clip(note, 600) for note in values.notes],
        "inputs": None,
        "firstNan": None if first is None else first.nan,
        "firstInf": None if first is None else first.inf,
        "tensors": [
            {
                "kind": tensor.kind,
                "name": clip(tensor.name, 200),
                "shape": list(tensor.tensor.shape),
                "dtype": dtype_name(tensor.tensor.dtype),
            }
            for tensor in values.tensors[:MOST_TENSORS]
        ],
        "total": len(values.tensors),
    }


def part_state(values: NodeValues, place: int, axes: Axes = USUAL, most: int = MOST_CELLS) -> ValuePart:
    """Describe elements of a tensor, and statistics of its partner; ValueError if there are none."""
    if not 0 <= place < min(len(values.tensors), MOST_TENSORS):
        raise ValueError(f"{values.node} has no tensor {place}.")
    chosen = values.tensors[place]
    try:
        map_ = _map_state(chosen, axes, most)
        histogram = chosen.histogram
        beside = [_statistics(values, other) for other in _beside(values, chosen)]
    except (RuntimeError, NotImplementedError) as error:  # an operator that a dtype or device lacks
        raise ValueError(f"{chosen.name} cannot be read: {error}") from error
    edges = histogram.edges
    return {
        "tensor": place,
        "statistics": beside,
        "histogram": {"edges": to_json(edges), "counts": list(histogram.counts)},
        "map": map_,
    }


def _beside(values: NodeValues, chosen: TensorValue) -> list[TensorValue]:
    """Return a tensor with those that it is compared with."""
    if chosen.kind not in _OF_NODE:
        return [chosen]
    return [other for other in values.tensors if other.kind in _OF_NODE and other.name == chosen.name]


def _statistics(values: NodeValues, tensor: TensorValue) -> TensorStatistics:
    found = tensor.statistics
    place = next(i for i, other in enumerate(values.tensors) if other is tensor)
    return {
        "tensor": place,
        "min": to_json(found.min),
        "max": to_json(found.max),
        "mean": to_json(found.mean),
        "std": to_json(found.std),
        "zeros": to_json(found.zeros),
        "nan": found.nan,
        "inf": found.inf,
        "negativeInf": found.negative_inf,
        "firstNonFinite": to_json(found.first_non_finite),
    }


def _map_state(tensor: TensorValue, axes: Axes, most: int) -> TensorMap:
    shape = tensor.tensor.shape
    rows, columns = axes.rows, axes.columns
    if rows is None and columns is None:
        wide = [d for d, size in enumerate(shape) if size != 1]
        # Of fewer than two, the slice chooses the others.
        columns = wide[-1] if wide else None
        rows = wide[-2] if len(wide) > 1 else None
    shown = {d % len(shape) for d in (rows, columns) if d is not None and shape}
    if axes.index and len(axes.index) != len(shape):
        raise ValueError(f"{tensor.name} has {len(shape)} dimensions, got {len(axes.index)} indices.")
    index = {d: place for d, place in enumerate(axes.index) if d not in shown}
    if len(shown) == 1 and len(shape) > 1:  # the slice takes one more
        other = next(d for d in reversed(range(len(shape))) if d not in shown)
        index.pop(other, None)
    found = tensor.slice(rows, columns, index, most)
    return {
        "rows": found.rows,
        "columns": found.columns,
        "index": list(found.index),
        "shape": found.shape,
        "block": (found.row_block, found.column_block),
        **_cells(found.cells),
        "small": _small_maps(tensor, found) if most == MOST_CELLS else None,
    }


def _small_maps(tensor: TensorValue, shown: Slice) -> SmallCells | None:
    """Describe maps at other indices of the last dimension that is not shown, such as heads; in windows.

    ``None`` if no dimension has others, or fewer than two are shown.
    """
    shape, index = tensor.tensor.shape, dict(enumerate(shown.index))
    others = [d for d, place in index.items() if place is not None and shape[d] > 1]
    if not others or shown.rows is None or shown.columns is None:
        return None
    dimension, fixed = others[-1], {d: place for d, place in index.items() if place is not None}
    first = fixed[dimension] // MOST_SMALL * MOST_SMALL
    maps = [
        tensor.slice(shown.rows, shown.columns, fixed | {dimension: place}, MOST_SMALL_CELLS).cells
        for place in range(first, min(first + MOST_SMALL, shape[dimension]))
    ]
    if not maps[0].numel():
        return None
    return {"dimension": dimension, "first": first, "count": len(maps), **_cells(torch.stack(maps))}


def _cells(cells: torch.Tensor) -> Cells:
    """Return a map, or several, as numbers of four bytes, or eight where four do not hold them."""
    cells = cells.contiguous()
    narrow = cells.to(torch.float32)
    is_held = bool(((narrow.to(torch.float64) == cells) | cells.isnan()).all())
    bytes_ = (narrow if is_held else cells).numpy().astype("<f4" if is_held else "<f8").tobytes()
    return {
        "size": (cells.shape[-2], cells.shape[-1]),
        "numbers": "f4" if is_held else "f8",
        "cells": base64.b64encode(bytes_).decode(),
    }


def non_finite_origin(
    values: NodeValues, graph_module: fx.GraphModule, name: str, inputs: Inputs | None
) -> FirstNonFinite | None:
    """Return where NaN and infinity of a node come from; ``None`` if it has none, or there are no inputs."""
    if inputs is None or not _has_non_finite(values):
        return None
    node = next(node for node in graph_module.graph.nodes if node.name == name)
    from fxlab.validation.tensor_values.visited_run import first_non_finite

    return first_non_finite(graph_module, node, inputs)


def _has_non_finite(values: NodeValues) -> bool:
    """Tell whether the value of a node has NaN or infinite elements; an unreadable one counts as finite."""
    for tensor in values.tensors:
        if tensor.kind != "value" or not tensor.tensor.dtype.is_floating_point:
            continue
        try:
            if tensor.statistics.first_non_finite is not None:
                return True
        except (ValueError, RuntimeError, NotImplementedError):
            continue
    return False
