"""Effects of a graph: once it has written in place or drawn a random number, nothing else can take over."""

from __future__ import annotations

import torch
from torch import nn
from torch.fx import GraphModule, Node

from fxlab.deployment.calls import Call
from fxlab.deployment.model_marks import ModelMarks, marks_of
from fxlab.models.modes import Requirement
from fxlab.models.running import cuda_devices_in_use
from fxlab.operators import draws_random_numbers, operator_of, written_arguments
from fxlab.tracing.recording.output_objects import ObjectOf
from fxlab.transformations.analysis.graph_analysis import GraphFacts
from fxlab.transformations.analysis.purity import why_impure

_KNOWN = ("active-dropout", "random", "writes-state")
"""Codes of the reasons for which a module is known to write or draw; others say what is not known of it."""


def why_not_repeatable(graph_module: GraphModule) -> str:
    """Tell why eager code cannot take over when a graph refuses, or return nothing if it can.

    A graph may refuse inputs as long as it has neither written nor drawn a random number. What parts of the
    model do that are one node is not known here; see :class:`EffectsWatch`.
    """
    facts = GraphFacts(graph_module)
    effect: Node | None = None
    for node in graph_module.graph.nodes:
        if _may_refuse(node, graph_module):
            if effect is not None:
                return f"the graph may refuse inputs at {node.name}, after {effect.name} has written or drawn"
        elif effect is None and _has_effect(node, facts, unknown=False):
            effect = node
    return ""


def has_effects(graph_module: GraphModule) -> bool:
    """Tell whether a graph may write in place, or draw random numbers."""
    facts = GraphFacts(graph_module)
    nodes = graph_module.graph.nodes
    return any(
        _has_effect(node, facts, unknown=True) for node in nodes if not _may_refuse(node, graph_module)
    )


class EffectsWatch:
    """Side effects of a call: the state it may change, noted before it runs.

    Parameters
    ----------
    module, call, marks
        The model, the arguments of the call, and the marks of the model.
    """

    def __init__(self, module: nn.Module, call: Call, marks: ModelMarks) -> None:
        self._module, self._call, self._marks = module, call, marks
        self._before = self._now()

    def require_none(self, refusal: AssertionError) -> None:
        """Raise ``RuntimeError`` if something was changed before a graph has refused.

        Raises
        ------
        RuntimeError
            If tensors were written or random numbers drawn, by a part of the model that is one node.
        """
        if self._now() != self._before or marks_of(self._module).versions != self._marks.versions:
            raise RuntimeError(
                f"{type(self._module).__name__}: a graph has refused a call ({refusal}) after a part of the "
                "model that is one node has written tensors or drawn random numbers, so no other code can "
                "take over. Call the model itself."
            ) from refusal

    def _now(self) -> tuple[object, ...]:
        states = [torch.default_generator.get_state()]
        states += [torch.cuda.default_generators[device].get_state() for device in cuda_devices_in_use()]
        return (*(state.numpy().tobytes() for state in states), *self._call.versions())


def _has_effect(node: Node, facts: GraphFacts, *, unknown: bool) -> bool:
    if node.op == "call_module":
        refusal = why_impure(node, facts)
        return refusal is not None and (unknown or refusal.code in _KNOWN)
    if node.op not in ("call_function", "call_method") or isinstance(node.target, ObjectOf):
        return False
    if operator_of(node) is None and not unknown:
        return False
    return bool(written_arguments(node)) or draws_random_numbers(node)


def _may_refuse(node: Node, graph_module: GraphModule) -> bool:
    if node.op == "call_module":
        return isinstance(graph_module.get_submodule(str(node.target)), Requirement)
    name = str(getattr(node.target, "__name__", ""))
    return node.op == "call_function" and (node.target is torch._assert or name.startswith("require_"))
