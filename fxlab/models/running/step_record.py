"""The record of a traced training step in its graph: its values, and the objects it was traced from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import fx, nn

from fxlab.models.graph_modules.graph_module import SharedByCopies
from fxlab.models.running.autocast import AutocastState

if TYPE_CHECKING:
    from fxlab.models.state.module_state import ModelNoted

InputKind = Literal["parameter", "buffer", "state", "number", "batch"]
_KEY = "fxlab_step"
IN_PLACE = "fxlab_in_place"
"""Key of ``node.meta``: the optimizer's code writes the result into the first argument."""


@dataclass(frozen=True)
class StepInput:
    """The meaning of one input of a step; it stands in ``node.meta["desc"]``, as AOTAutograd's do."""

    kind: InputKind
    """``"state"`` and ``"number"`` belong to the optimizer; a number is a setting, like the learning rate."""
    target: str
    """The path of a parameter, buffer or argument; ``exp_avg of layers.0.weight``; ``lr``."""
    owner: str = ""
    """The path of its parameter or buffer."""


@dataclass(frozen=True)
class StepOutputs:
    """The results of a step that a training loop writes."""

    written: dict[str, str]
    """Output -> the input that gets its value after a step."""
    made: dict[str, tuple[str, str]]
    """Output -> key and parameter of a tensor that is new in the optimizer's state."""
    fixed: dict[str, float]
    """Learning rates that are fixed in the graph."""


@dataclass(eq=False)
class StepRecord(SharedByCopies):
    """The values on which a step was traced, and the objects from which it was traced."""

    inputs: dict[str, Any]
    """By the names of placeholders. Parameters, buffers and state share memory with the user's."""
    model: nn.Module
    loss: Callable[..., Any] | None
    """``None`` if it is the model's own."""
    optimizer: torch.optim.Optimizer | None
    outputs: StepOutputs
    autocast: AutocastState
    """The autocast regions around the trace."""
    key: object
    """All conditions under which the graph holds, except for what Python reads."""
    noted: ModelNoted
    """The values that the Python of the model and the loss read in the trace."""
    counted: tuple[str, ...] = ()
    """What each step changes, or draws, in the Python of the model or the loss, and no graph does."""
    set_in_runs: tuple[str, ...] = ()
    """The paths of attributes of the model that a run sets, also where that changes nothing in the next."""


def note_step(graph_module: fx.GraphModule, record: StepRecord) -> None:
    """Make a graph module a step."""
    graph_module.meta[_KEY] = record


def step_record(graph_module: nn.Module) -> StepRecord | None:
    """Return the record of a step; ``None`` for any other module and for an unpickled step."""
    if not isinstance(graph_module, fx.GraphModule):
        return None
    found = graph_module.meta.get(_KEY)
    return found if isinstance(found, StepRecord) else None
