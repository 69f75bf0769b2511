"""Runs of models that several ranks make together or none: comparisons ask, so that no rank waits in vain."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed as dist
from torch.fx import GraphModule

from fxlab.base.words import counted
from fxlab.models.parallel.collectives import exchanges

_IS_TOGETHER: ContextVar[bool] = ContextVar("runs of all ranks are made together", default=False)
_RUN, _END = "run", "end"


class _PartedError(BaseException):
    """Another rank does not make the next run. No ``Exception``, which a run may catch."""


def has_other_ranks() -> bool:
    """Tell whether other processes may wait for a run, or have to make it as well."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def communicates(module: torch.nn.Module) -> bool:
    """Tell whether a model waits for other processes, by collectives or sharded tensors."""
    if not has_other_ranks():
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
