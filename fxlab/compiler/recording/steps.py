"""The steps of a compile as data: the recorder writes them, and sessions make stages and tables of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from fxlab.compiler.recording.snapshot import Snapshot
from fxlab.models.running.autocast import AutocastState, autocast_state
from fxlab.tracing.dynamo.graph_break import GraphBreak
from fxlab.transformations.inductor_patterns import Attempt, Pattern

TORCH, ATEN = "torch", "aten"
"""Dialects: functions of torch, as Dynamo captures them, and ATen operators."""
WHOLE = "whole"
BORDER = "AOTAutograd"
"""The step from Dynamo's graph to that of ATen operators."""
SPLIT = "AOTAutograd/partition"
"""The step from the joint graph to forward and backward graphs, one after the other."""


@dataclass
class Match:
    """A match of a pattern, and the rewrite made there."""

    pattern: str
    """The name of the pattern, or of the function that replaces its matches."""
    anchor: str
    """The node at which it was found."""
    nodes: tuple[str, ...]
    """All nodes that it has matched."""
    is_applied: bool
    made: list[str] = field(default_factory=list)
    erased: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Crash:
    """A pass that has raised, or has left a graph that cannot run."""

    graph: tuple[int, str]
    """The number of the graph, and the kind of the stack."""
    pass_: str
    can_skip: bool
    """Whether it can be compiled without the pass."""
    pattern: str
    """The pattern whose match was being replaced, if it was one."""
    node: str
    """The node at which it was found."""
    error: str

    def __str__(self) -> str:
        match = f", where {self.pattern} replaces {self.node}" if self.pattern else ""
        return f"{self.pass_} has failed{match}: {self.error}"


@dataclass
class Step:
    """A pass, or the change between two passes."""

    name: str
    """The phase and the compiler's own name of the pass."""
    before: Snapshot
    after: Snapshot
    fixed: str = ""
    """Why it cannot be switched off; empty if it can."""
    matches: list[Match] = field(default_factory=list)
    ran: bool = True
    can_exclude: bool = True
    """Whether it can be compiled again without one of its matches."""
    patterns: list[Pattern] = field(default_factory=list)
    """Those that it has tried."""
    attempts: list[Attempt] = field(default_factory=list)
    """Their results."""

    @property
    def is_change(self) -> bool:
        """Whether it has changed the graph."""
        return self.before is not self.after


@dataclass
class Stack:
    """The steps that one graph went through, from when it was made."""

    kind: str
    """``whole`` from Dynamo's captured graph on; ``forward`` or ``backward`` from the split on."""
    first: Snapshot
    steps: list[Step] = field(default_factory=list)
    has_gradients: bool = False
    """Whether it ends with the graph of outputs and gradients, which is then split."""

    @property
    def name(self) -> str:
        """Its name for people."""
        return ("joint" if self.has_gradients else "inference") if self.kind == WHOLE else self.kind

    @property
    def last(self) -> Snapshot:
        """The graph as it is after all steps."""
        return self.steps[-1].after if self.steps else self.first


@dataclass
class Recording:
    """All graphs of one compile of a graph that Dynamo has captured."""

    stacks: dict[str, Stack] = field(default_factory=dict)
    values: tuple[Any, ...] = ()
    """The values of the placeholders of Dynamo's graph when it ran."""
    copies: tuple[Any, ...] = ()
    """Copies of these values from that moment; parameters are not copied."""
    graph_break: GraphBreak | None = None
    """Why Dynamo has ended the graph, if that is not the end of the model."""
    modules: Mapping[str, nn.Module] = field(default_factory=dict)
    """The outermost modules that it reads, by the function's expressions for them."""
    autocast: AutocastState = field(default_factory=autocast_state)
    """The autocast regions around the call."""
    compile: str = ""
    """Dynamo's number of the compile."""
    has_run: bool = False
    aliased_later: frozenset[int] = frozenset()
    """The outputs of Dynamo's graph that AOTAutograd makes views of inputs after its graph has run."""
    code: Callable[..., Any] | None = None
    """The backend's result for Dynamo's graph, where code was generated."""

    def note_values(self, values: Sequence[Any]) -> None:
        """Note the values of the placeholders."""
        self.has_run, self.values, self.copies = True, tuple(values), tuple(map(_copied, values))


def _copied(value: Any) -> Any:
    # Inputs are copied, as the model may write into them; parameters are restored elsewhere.
    is_held = not isinstance(value, torch.Tensor) or isinstance(value, nn.Parameter)
    return value if is_held else value.detach().clone().requires_grad_(value.requires_grad)
