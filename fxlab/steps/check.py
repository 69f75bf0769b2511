"""A recorded step beside an eager one, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from fxlab.models.autocast import autocast_set
from fxlab.models.ranks import communicates, is_in_fake_group
from fxlab.models.running import generators_kept
from fxlab.steps.gradients import Forward, Recorded
from fxlab.steps.update import Update
from fxlab.tracing.report import TraceError
from fxlab.values.tensors import same_bits


def check_step(
    step: fx.GraphModule,
    values: Mapping[str, Any],
    forward: Forward,
    passes: Recorded,
    update: Update | None,
) -> None:
    """Raise the :class:`TraceError` that names the first result which an eager step computes otherwise."""
    if any(tensor.is_meta for tensor in passes.parameters.values()) or is_in_fake_group(step):
        return
    expected = _eager(forward, passes, update)
    try:
        with generators_kept(), torch.no_grad(), autocast_set():
            found = step(**values)
    except Exception as error:
        raise TraceError(f"The recorded step does not run: {type(error).__name__}: {error}") from error
    placeholders = step.graph.find_nodes(op="placeholder")
    given = {f"new {node.meta['desc'].target}": values[node.name] for node in placeholders}
    again: dict[str, torch.Tensor] | None = None
    for name, value in expected.items():
        own = found.get(name, given.get(name))
        if own is not None and same_bits(own.detach(), value.detach()):
            continue
        if again is None and not communicates(step):  # another rank may not run it again
            again = _eager(forward, passes, update)
        is_repeated = again is None or same_bits(again[name].detach(), value.detach())
        if is_repeated:  # else no two eager steps are the same
            raise TraceError(
                f"{name} of the recorded step is not that of an eager one. The model or the optimizer "
                "computes it by what a graph does not see: a write of an operator that does not declare it, "
                "a global state, or an operator whose sums depend on the threads."
            )


def _eager(forward: Forward, passes: Recorded, update: Update | None) -> dict[str, torch.Tensor]:
    """Return what an eager step computes, by the names of the results of a graph."""
    with generators_kept():
        loss, gradients, buffers = forward(
            passes.parameters,
            {name: value.clone() for name, value in passes.buffers.items()},
            passes.batch.with_tensors(tuple(tensor.clone() for tensor in passes.batch.tensors)),
        )
    found = {"loss": loss, **{f"grad of {name}": value for name, value in gradients.items()}}
    found |= {f"new {name}": value for name, value in buffers.items()}
    if update is not None:
        parameters = {name: passes.parameters[name].detach().clone() for name in update.names}
        state = {slot: value.clone() for slot, value in update.state().items()}
        own = {name: value.clone() for name, value in gradients.items() if name in parameters}
        after = update.run(parameters, own, state, {})
        found |= {f"new {name}": value for name, value in parameters.items()}
        found |= {f"new {key} of {name}": value for (key, name), value in after.items()}
    return found
