"""Two dimensions of a tensor as a picture of at most 256 x 256 cells, for ``node_values``."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fxlab.base.checks import type_error
from fxlab.validation.tensor_values.statistics import readable
from fxlab.values.tensors import wide_device

MOST_CELLS = 256
"""In each direction."""


@dataclass(frozen=True, eq=False)
class Slice:
    """A two-dimensional slice of a tensor; where that is large, a cell stands for a block of elements.

    Attributes
    ----------
    rows, columns : int or None
        The dimensions that are shown; ``None`` for rows of a tensor that has too few.
    index : tuple of int or None
        The index in each dimension; ``None`` in those that are shown.
    cells : torch.Tensor
        Of each block the element with the largest absolute value, float64; NaN if one is.
    row_block, column_block : int
        The elements in a cell, downwards and to the right; the last cells may have fewer.
    shape : tuple of int
        The size of the whole slice.
    """

    rows: int | None
    columns: int | None
    index: tuple[int | None, ...]
    cells: torch.Tensor
    row_block: int
    column_block: int
    shape: tuple[int, int]


def slice_of(
    tensor: torch.Tensor,
    rows: int | None = None,
    columns: int | None = None,
    index: Mapping[int, int] | None = None,
    most: int = MOST_CELLS,
) -> Slice:
    """Return a slice of a tensor: two dimensions (left out, the last two), at an index in each of the others.

    ``index``: dimension -> index; left out, zero. ``most``: the most cells in each direction.
    """
    values = readable(tensor)
    rank = values.dim()
    chosen = {_dimension(d, rank, "index"): place for d, place in (index or {}).items()}
    right = None if columns is None else _dimension(columns, rank, "columns")
    down = None if rows is None else _dimension(rows, rank, "rows")
    if right is None:
        right = next((d for d in reversed(range(rank)) if d != down and d not in chosen), None)
    if down is None:
        down = next((d for d in reversed(range(rank)) if d != right and d not in chosen), None)
    if down is not None and down == right:
        raise ValueError(f"rows, columns: expected two dimensions, got {down} twice.")
    places: list[int | None] = []
    for d, size in enumerate(values.shape):
        if d in (down, right):
            if d in chosen:
                raise ValueError(f"index: dimension {d} is shown, so it has no index.")
            places.append(None)
            continue
        place = chosen.get(d, 0)
        if isinstance(place, bool) or not isinstance(place, int):
            raise type_error("index", f"an int for dimension {d}", place)
        if not -size <= place < size and (size or d in chosen):
            raise ValueError(f"index: dimension {d} has {size} elements, got {place}.")
        places.append(place % size if size else 0)
    is_there = all(size for size, place in zip(values.shape, places, strict=True) if place is not None)
    shown = tuple(slice(None) if place is None else place for place in places)
    # Where another dimension is empty, there is no element at any index.
    matrix = values[shown] if is_there else values.new_empty((0,) * places.count(None))
    if down is not None and right is not None and down > right:
        matrix = matrix.T
    if matrix.dim() < 2:
        matrix = matrix.reshape(-1, 1) if right is None else matrix.reshape(1, -1)
    height, width = matrix.shape
    blocks = -(-height // most) or 1, -(-width // most) or 1
    return Slice(down, right, tuple(places), _pooled(matrix, *blocks), *blocks, (height, width))


def _dimension(value: object, rank: int, argument: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise type_error(argument, "the number of a dimension", value)
    if not -rank <= value < rank:
        raise ValueError(f"{argument}: the tensor has {rank} dimensions, got {value}.")
    return value % rank


def _pooled(matrix: torch.Tensor, down: int, right: int) -> torch.Tensor:
    """Return the element of the largest absolute value of each block; NaN wins."""
    if not matrix.dtype.is_floating_point:  # the largest of whole numbers takes ten times as long
        small = matrix.dtype.itemsize <= 2
        matrix = matrix.float() if small else matrix.to(wide_device(matrix.device)).to(torch.float64)
    high = _blocks(_blocks(matrix, 0, down, "amax"), 1, right, "amax").cpu().to(torch.float64)
    low = _blocks(_blocks(matrix, 0, down, "amin"), 1, right, "amin").cpu().to(torch.float64)
    return torch.where(high >= -low, high, low)


def _blocks(matrix: torch.Tensor, dim: int, size: int, which: str) -> torch.Tensor:
    """Return the largest or least element of each block in one direction."""
    if size == 1:
        return matrix
    full = matrix.shape[dim] // size
    shape = [*matrix.shape[:dim], full, size, *matrix.shape[dim + 1 :]]
    parts = [getattr(matrix.narrow(dim, 0, full * size).reshape(shape), which)(dim + 1)]
    if full * size < matrix.shape[dim]:
        rest = matrix.narrow(dim, full * size, matrix.shape[dim] - full * size)
        parts.append(getattr(rest, which)(dim, keepdim=True))
    return torch.cat(parts, dim)
