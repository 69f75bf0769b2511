"""Digests of the rows of a tensor, by which comparisons find equal rows in another model's weights."""

from __future__ import annotations

import zlib
from functools import lru_cache

import torch

from fxlab.values.tensors import bits_of

_AT_ONCE = 2**23
"""The number of bytes that are digested at once."""
_WORD = 8


def row_digests(tensor: torch.Tensor, dim: int = 0) -> list[int]:
    """Return a digest of 64 bits for the slice at each index of a dimension, its dtype and its size."""
    rows = tensor.detach().movedim(dim, 0)
    if not rows.numel():
        return [0] * len(rows)
    found: list[int] = []
    size = rows[0].numel() * rows.element_size()
    words = -(-size // _WORD)
    factors = _factors(words)
    salt = zlib.crc32(f"{tensor.dtype} {size}".encode())
    at_once = max(1, _AT_ONCE // size)
    for start in range(0, len(rows), at_once):
        block = rows[start : start + at_once]
        bits = bits_of(block.contiguous()).cpu().reshape(len(block), -1)
        bits = torch.nn.functional.pad(bits, (0, words * _WORD - bits.shape[1]))
        # Products and sums of whole numbers wrap round, so that their order does not matter.
        mixed = bits.view(torch.int64)
        for _ in range(2):
            mixed = (mixed ^ (mixed >> 31)) * factors
        found += (mixed.sum(1) ^ salt).tolist()
    return found


@lru_cache(maxsize=64)
def _factors(words: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(words)
    return torch.randint(-(2**63), 2**63 - 1, (words,), generator=generator, device="cpu") | 1
