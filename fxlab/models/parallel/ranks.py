"""Models of several ranks: runs that all ranks make together or none, and the placements of their tensors."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import fx
from torch.fx import GraphModule

from fxlab.base.words import counted
from fxlab.models.parallel.collectives import exchanges
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


_IS_TOGETHER: ContextVar[bool] = ContextVar("runs of all ranks are made together", default=False)
_RUN, _END = "run", "end"


class _PartedError(BaseException):
    """Another rank does not make the next run. No ``Exception``, which a run may catch."""


def communicates(module: torch.nn.Module) -> bool:
    """Tell whether a model waits for other processes, by collectives or sharded tensors."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return False
    graphs = [m.graph for m in module.modules() if isinstance(m, GraphModule)]
    if any(map(exchanges, (node for graph in graphs for node in graph.nodes))):
        return True
    tensors = (*module.parameters(), *module.buffers())
    has_hooks = any(type(m).__module__.startswith("torch.nn.parallel.distributed") for m in module.modules())
    return has_hooks or any(hasattr(tensor, "device_mesh") for tensor in tensors)


def is_in_fake_group(module: torch.nn.Module) -> bool:
    """Tell whether a model communicates over a fake group, which exchanges nothing."""
    return communicates(module) and dist.get_backend() == "fake"


def why_not_judged(module: torch.nn.Module) -> str:
    """Return why values of a model cannot be judged here; "" if they can."""
    if not is_in_fake_group(module):
        return ""
    return (
        "the process group is fake and exchanges nothing, so that values are not those of "
        f"{counted(dist.get_world_size(), 'rank')}. The graph, its "
        "memory and its collectives can be read. For values, run it in a group of gloo or nccl."
    )


@contextmanager
def ranks_together(*models: torch.nn.Module) -> Iterator[None]:
    """Make each run of these models in all ranks, or in none, until the block ends.

    The number of runs of a comparison depends on its findings, and may differ between ranks; a rank that runs
    alone would wait for the others until a time-out. Raises ValueError if another rank has ended without a
    run that this one needs.
    """
    if _IS_TOGETHER.get() or not any(map(communicates, models)):
        yield
        return
    token = _IS_TOGETHER.set(True)
    try:
        yield
        _agree(_END)
    except _PartedError:
        raise ValueError(
            "The ranks need different numbers of runs for this comparison, and the model waits for other "
            "ranks while it runs. Give all ranks the same inputs and state, or compare on one process."
        ) from None
    except BaseException:
        _agree(_END)
        raise
    finally:
        _IS_TOGETHER.reset(token)


def before_run() -> None:
    """Inside of :func:`ranks_together`, wait until all ranks make the next run."""
    if _IS_TOGETHER.get() and not _agree(_RUN):
        raise _PartedError


def _agree(step: str) -> bool:
    """Tell whether all ranks are at the same step."""
    steps: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(steps, step)
    return set(steps) == {step}
