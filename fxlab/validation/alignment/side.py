"""One of two graphs that are aligned: fingerprints of its values, and how far rounding may move them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxlab.models.running.arguments import Inputs, given_arguments, named_arguments
from fxlab.validation.alignment.fingerprint import Fingerprint
from fxlab.validation.verdicts.new_values import NewValues
from fxlab.validation.verdicts.runs import Runs
from fxlab.values.nested import Path, tensors_inside
from fxlab.values.tensors import to_float64

_TRIES = 2
"""How often weights that only one graph has are rounded again."""
_ROUNDINGS = 4
"""How many times as far as that does two values may be apart: merges round at each step."""
_LARGEST = 0.05
"""The largest relative difference that counts as rounding of weights."""


Values = dict[Node, dict[Path, Fingerprint]]


class Noted:
    """The fingerprints of the values of a run."""

    def __init__(self) -> None:
        self.values: Values = {}

    def __call__(self, node: Node, result: Any) -> None:
        """Note the result of a node."""
        if node.op != "output" and (tensors := list(tensors_inside(result))):
            self.values[node] = {path: Fingerprint.of(tensor) for path, tensor in tensors}


class Side:
    """A graph and the fingerprints of its values: of a run in float64, or of one that was recorded.

    ``values``: of each node that computes tensors, by the path in its result. ``outputs``: by the path in the
    graph's result. ``inputs``: the inputs of the run, where they are known. ``origins``: nodes that read no
    tensor, and whose values may be wrong nevertheless.
    """

    def __init__(
        self,
        module: GraphModule,
        values: Values,
        outputs: dict[str, Fingerprint],
        inputs: Inputs = (),
        origins: Collection[Node] = (),
    ) -> None:
        self.module, self.values, self.outputs, self.inputs = module, values, outputs, inputs
        self.tolerance: dict[Node, float] = {}
        """The relative difference up to which a value is the same, where it is more than that of float64."""
        self.tolerance_of_outputs: dict[str, float] = {}
        self.constant: set[Node] = set()
        """Nodes that no tensor of the inputs reaches: weights, values made of them, masks and positions."""
        for node in self.module.graph.nodes:
            read = (each for each in node.all_input_nodes if each in self.values)
            is_origin = node.op in ("placeholder", "output") or node in origins
            if not is_origin and self.constant.issuperset(read):
                self.constant.add(node)

    @classmethod
    def of_runs(cls, runs: Runs, other: GraphModule | None) -> Side:
        """Run a graph in float64.

        ``runs``: the runs of the graph. ``other``: the graph that it is aligned with. Weights that this one
        lacks are rounded weights: a merged or cast one differs from its sources by that much. ``None`` if
        there are no such weights.
        """
        if not isinstance(runs.visit, Noted):
            runs.visit = Noted()
        outputs = {path: Fingerprint.of(tensor) for path, tensor in runs.returned_in_float64.items()}
        side = cls(runs.graph_module, runs.visit.values, outputs, runs.inputs)
        if other is not None and (new := NewValues(other, side.module)):
            generator = torch.Generator().manual_seed(0)
            for _ in range(_TRIES):
                noted = Noted()
                returned = runs.visited(noted, lambda tensor: new.rounded_anew(tensor, generator))
                moved = {path: Fingerprint.of(tensor) for path, tensor in returned.items()}
                side._widen_tolerance(noted.values, moved)
        return side

    @classmethod
    def of_call(cls, runs: Runs, *, is_rounded: bool) -> Side:
        """Return a graph that runs compiled code: its inputs and results are known, and nothing in between.

        ``is_rounded``: whether its results are another model's up to rounding.
        """
        graph_module = runs.graph_module
        given = named_arguments(graph_module, *given_arguments(runs.inputs))
        values: Values = {}
        for node in graph_module.graph.find_nodes(op="placeholder"):
            if tensors := [*tensors_inside(given.get(str(node.target)))]:
                values[node] = {path: Fingerprint.of(to_float64(tensor)) for path, tensor in tensors}
        outputs = {path: Fingerprint.of(tensor) for path, tensor in runs.returned_in_float64.items()}
        call = next(node for node in reversed(graph_module.graph.nodes) if node.op.startswith("call"))
        alone = len(outputs) == 1
        values[call] = {() if alone else (path,): value for path, value in outputs.items()}
        side = cls(graph_module, values, outputs, runs.inputs)
        if is_rounded:
            side.tolerance[call] = _LARGEST
            side.tolerance_of_outputs = dict.fromkeys(outputs, _LARGEST)
        return side

    def _widen_tolerance(
        self, values: Mapping[Node, Mapping[Path, Fingerprint]], outputs: Mapping[str, Fingerprint]
    ) -> None:
        for node, moved in values.items():
            apart = max(_moved(self.values[node][path], value) for path, value in moved.items())
            self.tolerance[node] = max(self.tolerance.get(node, 0.0), apart)
        for path, value in outputs.items():
            apart = _moved(self.outputs[path], value)
            self.tolerance_of_outputs[path] = max(self.tolerance_of_outputs.get(path, 0.0), apart)

    def elements(self, node: Node) -> tuple[int, ...]:
        """Return the numbers of elements of the tensors that a node computes."""
        return tuple(value.elements for value in self.values[node].values())

    def node_of_output(self, path: str) -> Node | None:
        """Return the last node whose value is an output as it is; ``None`` if there is none."""
        wanted = self.outputs[path].bits()
        alone = ((node, values[()]) for node, values in reversed(self.values.items()) if [*values] == [()])
        return next((node for node, value in alone if value.bits() == wanted), None)


def _moved(before: Fingerprint, after: Fingerprint) -> float:
    return min(_ROUNDINGS * before.moved_by(after), _LARGEST)
