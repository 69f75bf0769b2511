"""One of two graphs that are aligned: fingerprints of its values, their partners, and where graphs part."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxlab.models.running.running import Inputs, given_arguments, named_arguments
from fxlab.operators.node_info import module_path
from fxlab.validation.alignment.fingerprint import TOLERANCE, Fingerprint, Found
from fxlab.validation.verdicts.new_values import NewValues
from fxlab.validation.verdicts.runs import Runs
from fxlab.values.nested import Path, tensors_inside
from fxlab.values.tensors import to_float64

_TRIES = 2
"""How often weights that only one graph has are rounded again."""
_ROUNDINGS = 4
"""How many times as far as that does two values may be apart: merges round at each step."""
_AROUND = 8
"""Of a value that occurs at very many places, how many before and behind the expected one are looked at."""
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

    def partners_in(self, other: Side) -> dict[Node, Node]:
        """Return, by node, a node of the other graph that has all its values.

        Of several, the one with the same order and shape; then the one that reads partners of the node's
        inputs, and that of the same name or place. Values in another order in the same shape are others.
        """
        found, nodes = Found(), [*other.values]
        for place, values in enumerate(other.values.values()):
            for value in values.values():
                found.add(value, place)
        places = {node: place for place, node in enumerate(nodes)}
        partners: dict[Node, Node] = {}
        latest = -1
        widest = max(other.tolerance.values(), default=0.0)
        for node, values in self.values.items():
            own = self.tolerance.get(node, 0.0)
            most = max(own, widest, TOLERANCE)
            read = {partners[each] for each in node.all_input_nodes if each in partners}
            reading = [places[user] for each in read for user in each.users if user in places]
            sets = [
                {place for group in found.like(value, most) for place in _near(group, latest + 1, reading)}
                for value in values.values()
            ]
            best: tuple[Any, Node] | None = None
            for place in set.intersection(*sets):
                candidate = nodes[place]
                tolerance = max(own, other.tolerance.get(candidate, 0.0), TOLERANCE)
                is_same, fits = _likeness(values, other.values[candidate], tolerance)
                fit = (*fits, *_fit_of(node, candidate, read), -abs(place - latest - 1))
                if is_same and (best is None or fit > best[0]):
                    best = fit, candidate
            if best is not None:
                partners[node] = best[1]
                latest = places[best[1]]
        return partners

    def parted(self, partners: Mapping[Node, Node], wrong_weights: Collection[str] = ()) -> list[Node]:
        """Return the first nodes without a partner on which the results depend.

        A node without a partner that other nodes have turned into values with one, such as a mask that is
        written in another way, is right as far as it shows; but not if it reads a weight that is wrong.
        """
        right = self.constant | (self._turned_right(partners) - self._reading(wrong_weights))
        return self._first(partners.keys(), right) or self._first(partners.keys(), self.constant)

    def _first(self, known: Collection[Node], right: set[Node]) -> list[Node]:
        lost: set[Node] = set()
        leading: set[Node] = set()  # to an output, past no value that has a partner
        for node in reversed(self.module.graph.nodes):
            if node.op == "output" or (node not in known and not leading.isdisjoint(node.users)):
                leading.add(node)
                if node in self.values:
                    lost.add(node)
        return [
            node
            for node in self.module.graph.nodes
            if node in lost
            and node not in right
            and all(each not in lost or each in right for each in node.all_input_nodes)
        ]

    def first_backward(self, known: Collection[Node], wrong: Collection[Node]) -> list[Node]:
        """Return the first nodes on the way back whose gradients are wrong and are not right again later."""
        right_again: set[Node] = set()
        for node in self.module.graph.nodes:
            inputs = node.all_input_nodes
            if node in wrong and any(each in known or each in right_again for each in inputs):
                right_again.add(node)
        computed = {node for node in wrong if node.op != "get_attr"}  # weights may be merged
        lost = computed - right_again or computed
        backward = reversed(self.module.graph.nodes)
        return [node for node in backward if node in lost and lost.isdisjoint(node.users)]

    def _reading(self, weights: Collection[str]) -> set[Node]:
        """Return the nodes that read one of these parameters, themselves or as a module that holds it."""
        held = {node for node in self.values if node.op == "get_attr" and node.target in weights}
        readers = {user for node in held for user in node.users}
        modules = {weight.rpartition(".")[0] for weight in weights}
        return readers | {node for node in self.values if node.op == "call_module" and node.target in modules}

    def _turned_right(self, partners: Mapping[Node, Node]) -> set[Node]:
        """Return nodes without a partner from whose values others with one are made.

        A comparison with infinity may have the same result in both graphs although its inputs differ.
        """
        found: set[Node] = set()
        for node in reversed(self.module.graph.nodes):
            if node not in partners and any(
                (user in partners and self._tells_of(user, node)) or user in found
                for user in node.users
                if user not in self.constant
            ):
                found.add(node)
        return found

    def _tells_of(self, user: Node, node: Node) -> bool:
        made, read = (self.values.get(each, {}).values() for each in (user, node))
        return not all(v.is_of_flags for v in made) or all(v.is_of_flags for v in read)

    def odd_weights(self, nodes: list[Node], partners: Mapping[Node, Node]) -> dict[str, tuple[str, ...]]:
        """Return, by node, the weights and constants without a partner that it reads."""
        odd = {
            node.name: tuple(
                each.name
                for each in node.all_input_nodes
                if each in self.values and each in self.constant and each not in partners
            )
            for node in nodes
        }
        return {name: weights for name, weights in odd.items() if weights}


def _moved(before: Fingerprint, after: Fingerprint) -> float:
    return min(_ROUNDINGS * before.moved_by(after), _LARGEST)


def _near(group: list[int], expected: int, reading: list[int]) -> list[int]:
    """Return the places of a group that may be meant: all of few, else those around one, and readers."""
    if len(group) <= 2 * _AROUND:
        return group
    at = bisect.bisect_left(group, expected)
    others = (bisect.bisect_left(group, place) for place in reading)
    known = [group[at] for at in others if at < len(group) and group[at] in reading]
    return [*group[max(0, at - _AROUND) : at + _AROUND], *known]


def _likeness(
    values: Mapping[Path, Fingerprint], others: Mapping[Path, Fingerprint], tolerance: float
) -> tuple[bool, tuple[bool, bool]]:
    """Tell whether values are the same, and whether they are so in order and shape."""
    in_order = in_shape = True
    for path, value in values.items():
        other = others.get(path) or next(
            (each for each in others.values() if value.is_like(each, tolerance)), None
        )
        if other is None or not value.is_like(other, tolerance):
            return False, (False, False)
        is_ordered, is_shaped = value.is_in_order_of(other, tolerance), value.shape == other.shape
        if is_shaped and not is_ordered:
            return False, (False, False)
        in_order, in_shape = in_order and is_ordered, in_shape and is_shaped
    return True, (in_order, in_shape)


def _fit_of(node: Node, candidate: Node, read: set[Node]) -> tuple[Any, ...]:
    """Return more for a candidate that fits a node better, whose inputs' partners are known."""
    return (
        (candidate.op == "placeholder") == (node.op == "placeholder"),
        len(read.intersection(candidate.all_input_nodes)),
        candidate.name == node.name,
        module_path(candidate) == module_path(node),
    )
