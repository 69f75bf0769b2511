"""A graph that Dynamo has captured, with the passes that are on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint

from fxlab.deployment.transformed_graph import SharedTensors, TransformedGraph, transformed
from fxlab.models.graph_module import share_tensors_copy
from fxlab.models.tensor_state import Sampled, address
from fxlab.operators import draws_random_numbers, operator_of, written_arguments
from fxlab.transformations import Transformation

if TYPE_CHECKING:
    from fxlab.tracing.dynamo.hooks import GraphBreak
    from fxlab.tracing.dynamo.model_graph import LiftedGraph


def with_checkpoints(graph_module: GraphModule) -> GraphModule:
    """Return a copy of a graph whose checkpoints save memory; Dynamo's marks of them alone do not."""
    operator = torch.ops.higher_order.tag_activation_checkpoint

    def marks(module: Any) -> list[Any]:
        return module.graph.find_nodes(op="call_function", target=operator)  # type: ignore[no-any-return]

    if not any(marks(module) for module in graph_module.modules() if isinstance(module, GraphModule)):
        return graph_module
    result = share_tensors_copy(graph_module)
    for module in result.modules():
        if isinstance(module, GraphModule) and (found := marks(module)):
            for node in found:
                node.target = checkpoint
            module.recompile()
    return result


MOST_CHANGES = 16
"""The most times that passes are applied again because the model has other weights."""


@dataclass(frozen=True)
class Switched:
    """Passes that may be switched at any time."""

    now: Callable[[], tuple[Transformation, ...]]
    """Returns the passes that are on."""
    state: Callable[[], object]
    """Returns an object that is a new one after each switch."""


class HeldGraph:
    """A graph of Dynamo, run with the passes that are on.

    Dynamo guards all conditions of the capture, but not the values of weights, which are inputs of its graph.
    In the graph that passes transform they are attributes: it is built again if the model has others.

    ``captured``: the graph, which runs if no pass changes it. ``lifted``: the same with weights as
    attributes, or the reason for its absence. ``words``, ``mode``: of the call in which it was captured.
    ``ended_by``: the reason for its end, if that is not the end of the model. ``say``: takes the reason for
    each pass that is left off.
    """

    def __init__(
        self,
        captured: GraphModule,
        lifted: LiftedGraph | str,
        passes: Switched,
        *,
        check: bool,
        shared: SharedTensors,
        words: str,
        mode: str,
        ended_by: GraphBreak | None,
        say: Callable[[str], None],
    ) -> None:
        self.captured = with_checkpoints(captured)
        self.words, self.mode, self.ended_by = words, mode, ended_by
        self.hits = 0
        self._nodes = len(captured.graph.nodes)
        self._lifted, self._passes, self._check, self._shared = lifted, passes, check, shared
        self._say = say
        self._made: TransformedGraph | None = None
        self._module: GraphModule | None = None
        self._made_for: tuple[object, bool] | None = None
        self._weights: list[torch.Tensor] = []
        self._versions: list[tuple[int, int]] = []
        self._sampled = Sampled(())
        self._changes = 0

    def facts(self) -> tuple[int, str, str, str]:
        """Return the number of nodes, the passes, the verdict, and why it ends or passes were left off."""
        ended = () if self.ended_by is None else (f"ends at {self.ended_by}",)
        if self._made is None:
            return self._nodes, "", "", "; ".join(ended)
        return (
            self._made.nodes,
            ", ".join(self._made.passes),
            self._made.verdict,
            "; ".join((*self._made.notes, *ended)),
        )

    def made_tensors(self) -> list[torch.Tensor]:
        """Return the tensors that passes have made for it."""
        own = {id(weight) for weight in self._weights}
        return [] if self._module is None else [p for p in self._module.parameters() if id(p) not in own]

    def run(self, values: tuple[Any, ...]) -> Any:
        """Run it on the values of the placeholders of Dynamo's graph."""
        self.hits += 1
        module, lifted = self._module_now(values), self._lifted
        if module is None or isinstance(lifted, str):
            return self.captured.forward(*values)
        try:
            output = module(*lifted.inputs(values))
            return (output,) if lifted.is_single else output
        except Exception as error:
            if _has_effects(module):
                raise
            output = self.captured.forward(*values)  # raises the same, unless a pass is to blame
            self._leave_off(f"the transformed graph raised {_words(error)}")
            return output

    def _module_now(self, values: tuple[Any, ...]) -> GraphModule | None:
        state, gradients = made_for = self._passes.state(), torch.is_grad_enabled()
        with self._shared.lock:
            is_new = (
                self._made_for is None or self._made_for[0] is not state or self._made_for[1] != gradients
            )
            if is_new:
                self._made_for, self._changes = made_for, 0
            if is_new or (self._module is not None and self._is_stale(values)):
                try:
                    self._make(values)
                except Exception as error:  # passes and models may raise anything
                    self._leave_off(_words(error))
            return self._module

    def _is_stale(self, values: tuple[Any, ...]) -> bool:
        if isinstance(self._lifted, str):
            return False
        weights = self._lifted.weights(values)
        if any(now is not before for now, before in zip(weights, self._weights, strict=True)):
            self._changes += 1
            return True
        if self._made is None or not self._made.makes_tensors:
            return False
        return _versions(weights) != self._versions or self._sampled.changed()

    def _make(self, values: tuple[Any, ...]) -> None:
        self._made = self._module = None
        passes = self._passes.now()
        if not passes:
            return
        if isinstance(self._lifted, str):
            self._leave_off(self._lifted)
            return
        if self._changes > MOST_CHANGES:
            self._leave_off(f"the weights were exchanged more than {MOST_CHANGES} times")
            return
        trains = torch.is_grad_enabled() and any(
            isinstance(value, torch.Tensor) and value.requires_grad for value in values
        )
        made = transformed(
            self._lifted.with_weights(values),
            passes,
            self._lifted.inputs(values),
            self._shared,
            trains=trains,
            check=self._check,
        )
        self._weights = self._lifted.weights(values)
        self._versions = _versions(self._weights)
        self._sampled = Sampled(self._weights if made.makes_tensors else ())
        self._made = made
        self._module = with_checkpoints(made.module) if made.passes and made.module else None
        for note in made.notes:
            self._say(f"a graph runs without a pass: {note}")

    def _leave_off(self, reason: str) -> None:
        self._made, self._module = TransformedGraph(None, (), "", (reason,), self._nodes, False), None
        self._say(f"a graph runs without passes: {reason}")


class Runner:
    """The function that Dynamo keeps for a graph: it does not hold the model, and runs without it."""

    def __init__(self, held: HeldGraph, ran: Callable[[HeldGraph], None]) -> None:
        self._captured, self._held, self._ran = held.captured, weakref.ref(held), weakref.WeakMethod(ran)

    def __call__(self, *values: Any) -> Any:
        """Run the graph."""
        held, ran = self._held(), self._ran()
        if held is None or ran is None:
            return self._captured.forward(*values)
        ran(held)
        return held.run(values)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


def _versions(weights: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    # Assigning tensor.data exchanges the memory, and counts no new version.
    return [(-1 if weight.is_inference() else weight._version, address(weight)) for weight in weights]


def _has_effects(module: GraphModule) -> bool:
    """Tell whether a graph that raises may have written or drawn something: no other can take over then."""
    return any(
        bool(written_arguments(node)) or draws_random_numbers(node) or operator_of(node) is None
        for node in module.graph.nodes
        if node.op in ("call_function", "call_method", "call_module")
    )
