"""Placements of tensors of several ranks: steps read and restore them, overlays and details show them."""

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fxlab.operators.node_info import known_result

PLACEMENT = "fxlab_placement"
"""Key of ``node.meta``: the placement in words, noted when a step was recorded."""


@dataclass(frozen=True)
class Layout:
    """The mesh of ranks and the placements of a ``DTensor``."""

    mesh: Any
    placements: tuple[Any, ...]
    shape: torch.Size
    stride: tuple[int, ...]

    def whole(self, part: torch.Tensor) -> Any:
        """Return the tensor of all ranks from the part on this one."""
        return _dtensor().from_local(
            part, self.mesh, self.placements, run_check=False, shape=self.shape, stride=self.stride
        )

    def __str__(self) -> str:
        """Return it in words, such as ``Replicate over dp, Shard(0) over tp of (64, 32)``."""
        names = self.mesh.mesh_dim_names or [f"dimension {at}" for at in range(self.mesh.ndim)]
        words = [f"{_word(each)} over {name}" for each, name in zip(self.placements, names, strict=True)]
        return f"{', '.join(words)} of {tuple(map(int, self.shape))}"


def _dtensor() -> Any:
    """Return the class, if it was imported: otherwise no tensor is of it."""
    return getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)


def layout_of(tensor: torch.Tensor) -> Layout | None:
    """Return the layout of a tensor of several ranks; ``None`` for any other tensor."""
    its_class = _dtensor()
    if its_class is None or not isinstance(tensor, its_class):
        return None
    value: Any = tensor
    return Layout(value.device_mesh, tuple(value.placements), value.shape, value.stride())


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor on this rank, without gradients; it shares its memory."""
    value: Any = tensor.detach()
    return value if layout_of(tensor) is None else value.to_local().detach()  # type: ignore[no-any-return]


def whole_of(tensor: Any) -> Any:
    """Return a tensor of several ranks replicated on every rank; any other value unchanged."""
    is_spread = isinstance(tensor, torch.Tensor) and layout_of(tensor) is not None
    return tensor.full_tensor() if is_spread else tensor


def _word(placement: Any) -> str:
    name = type(placement).__name__.lstrip("_")
    of = getattr(placement, "dim", getattr(placement, "reduce_op", None))
    return name if of is None else f"{name}({of})"


def known_placement(node: fx.Node) -> str:
    """Return the placement of a node's result on the ranks, in words; empty if unknown."""
    if PLACEMENT in node.meta:
        return str(node.meta[PLACEMENT])
    value = known_result(node)
    layout = layout_of(value) if isinstance(value, torch.Tensor) else None
    return "" if layout is None else str(layout)
