"""Float64 copies of weights, which the runs of several graphs have in common."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from fxlab.models.module_tensors import place_of
from fxlab.values.tensors import to_float64

MOST_BYTES = 2**30
"""Of copies that are kept: those of BERT-base are 0.9 GB."""


class WideWeights:
    """Widens tensors that modules hold, each once while they are kept.

    A copy that somebody has written into is not handed out again, nor that of a tensor that was written.
    """

    def __init__(self) -> None:
        self._copies: dict[object, tuple[torch.Tensor, int, torch.Tensor]] | None = None
        self._bytes = 0

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep copies until the block ends; another block inside changes nothing."""
        if self._copies is not None:
            yield
            return
        self._copies = {}
        try:
            yield
        finally:
            self._copies, self._bytes = None, 0

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the values of a floating-point tensor in float64, which are only read."""
        is_plain = type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout is torch.strided
        if self._copies is None or not is_plain or tensor.is_inference():
            return _copied(tensor)
        place = place_of(tensor)
        source, version, copy = self._copies.get(place, (None, 0, tensor))
        if source is None or source._version != version or copy._version:
            copy = _copied(tensor)
            if source is not None or copy.is_inference() or self._bytes + copy.nbytes > MOST_BYTES:
                return copy
            self._bytes += copy.nbytes
            self._copies[place] = tensor, tensor._version, copy
        return copy.detach()  # which has no gradient of its own, and counts writes with the copy


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return to_float64(tensor.detach(), copy=True)
