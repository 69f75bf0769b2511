"""The result of ``fxlab.compare``: where two models part, tables, and both on one screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from fxlab.base.exchanged import cached_property
from fxlab.base.first_use import pd
from fxlab.base.results import Judged, json_values
from fxlab.base.units import with_unit
from fxlab.base.words import listed
from fxlab.comparison.backward import GradientComparison
from fxlab.comparison.stages import Module, compared_modules, enclosing, session_of_two
from fxlab.comparison.weights import WRONG, Weight, in_words
from fxlab.comparison.weights_table import table_of
from fxlab.models.running.arguments import Inputs
from fxlab.operators import computes
from fxlab.operators.node_info import kind_text, line_of, module_path, modules_by_path, target_text, upstream
from fxlab.session import Session
from fxlab.validation.alignment.align import Alignment
from fxlab.validation.alignment.fingerprint import TOLERANCE
from fxlab.validation.alignment.side import Noted, Side
from fxlab.validation.tensor_values.visited_run import visit_values
from fxlab.validation.verdicts.judgement import WORSE, Status
from fxlab.validation.verdicts.result import Verdict


@dataclass(frozen=True)
class FirstDifference:
    """The first place where two models part; as text it begins with the path of the candidate's module."""

    candidate: str
    """The module of the candidate; the name of the node where there are no modules."""
    reference: str
    """The module of the reference; empty if it is not known."""
    nodes: tuple[str, ...]
    """The nodes of the candidate whose inputs agree and whose values the reference does not have."""
    reference_nodes: tuple[str, ...]
    """The nodes of the reference at the same place."""
    reads: tuple[str, ...]
    """The nodes of the candidate that agree and that these read."""
    weights: tuple[str, ...]
    """The weights that these read and that the other model does not have in any form."""
    error: float | None
    """The largest difference of the first of the nodes, relative to the largest element."""
    line: str
    """The line of the candidate's code, where it is known."""
    is_backward: bool = False
    """Whether it is the gradient of these nodes that differs, and their values agree."""
    errors: tuple[float, float] | None = None
    """Where only rounding is worse: the errors of the candidate's own value and of the reference's."""

    @property
    def node(self) -> str:
        """The first of its nodes; empty if a step is missing."""
        return next(iter(self.nodes), "")

    def __str__(self) -> str:
        if self.is_backward:
            words = f"{self.candidate}: the gradient of {listed(self.nodes)} differs, not its value"
        elif self.errors is not None:
            own, other = map(with_unit, self.errors)
            words = f"{self.candidate}: {listed(self.nodes)} computes the same and rounds worse, with an "
            words += f"error of {own} where the reference has {other} (relative)"
        else:
            here = listed(self.nodes) or "a step is missing"
            there = f"; the reference ({self.reference or 'at its place'}) has {listed(self.reference_nodes)}"
            words = f"{self.candidate}: {here}{there if self.reference_nodes else ''}"
            if self.error is not None and self.error < TOLERANCE:
                words += ", with the same elements in another order"
            elif self.error is not None:
                words += f", {with_unit(self.error)} apart (relative)"
            if self.weights:
                words += f"; it reads weights that the other does not have: {listed(self.weights)}"
        return words + (f" [{self.line}]" if self.line else "")


@dataclass(frozen=True, repr=False)
class Comparison(Judged):
    """The result of :func:`fxlab.compare`. It is true if the outputs agree; ``str()`` is for people."""

    alignment: Alignment = field(repr=False)
    """The nodes of both models, paired by their values."""
    verdict: Verdict
    """The verdict on the outputs that were compared, named as in the reference."""
    weights: list[Weight]
    """Each weight of the candidate, and its counterpart in the reference."""
    inputs_left: tuple[str, ...]
    """Inputs of the reference that the candidate does not take."""
    inputs: Inputs | None = field(repr=False)
    """``None`` where runs were compared that were recorded."""
    candidate_inputs: Inputs | None = field(repr=False)
    backward: GradientComparison | None = field(default=None, repr=False)
    """The findings about gradients, if they were asked for."""
    notes: tuple[str, ...] = ()
    """The parts that could not be seen, and other differences, of runs that were recorded."""

    is_called: bool = False
    """Whether one of the two runs compiled code, in which no place is named."""

    @property
    def max_abs_diff(self) -> float:
        """The largest absolute difference of an element of the outputs: see :class:`fxlab.Verdict`."""
        return self.verdict.max_abs_diff

    @property
    def same_bits(self) -> bool:
        """Whether every bit that was compared is the same."""
        return self.verdict.same_bits

    @property
    def agrees(self) -> bool:
        """Whether all outputs and gradients that were compared are the same, up to rounding."""
        return self.verdict.agrees

    @property
    def odd_weights(self) -> list[Weight]:
        """The weights that are not the reference's in another form."""
        return [weight for weight in self.weights if weight.is_odd]

    @cached_property
    def first(self) -> FirstDifference | None:
        """The first place where the models part; ``None`` if the outputs agree."""
        found = self.alignment
        if self.agrees:
            return None
        if not (found.parted or found.parted_original):
            return self._first_backward() or self._first_rounded()
        candidate, reference = self._modules_that_part()
        others = [node for node in found.parted_original if _is_in(node, reference)] or found.parted_original
        nodes = [node for node in found.parted if _is_in(node, candidate)] or self._in_place_of(others)
        reads = (each.name for node in nodes for each in node.all_input_nodes if each in found.partners)
        known = self._known_weights()
        weights = dict.fromkeys(n for names in found.weights.values() for n in names if n not in known)
        first = next(iter(nodes), None)
        return FirstDifference(
            candidate=candidate or (first.name if first is not None else others[0].name),
            reference=reference,
            nodes=tuple(node.name for node in nodes),
            reference_nodes=tuple(node.name for node in others),
            reads=tuple(dict.fromkeys(reads)),
            weights=tuple(weights),
            error=self._differences.get(first) if first is not None else None,
            line="" if first is None else line_of(first)[0],
        )

    def _in_place_of(self, others: list[Node]) -> list[Node]:
        """Return the first nodes of the candidate that read what some of the reference read.

        A port may call a function where the reference has a submodule. What follows a step that is missing
        reads the same too; it is what the users of that step compute.
        """
        partners, sides = self.alignment.partners, (self.alignment.original, self.alignment.transformed)
        ours, theirs = (modules_by_path(side.module) for side in sides)
        places = {
            frozenset(other.all_input_nodes): {kind_text(user, ours) for user in other.users}
            for other in others
        }
        return [
            node
            for node in self.alignment.parted
            if (read := frozenset(partners[each] for each in node.all_input_nodes if each in partners))
            in places
            and kind_text(node, theirs) not in places[read]
        ]

    def _first_backward(self) -> FirstDifference | None:
        """Return the first place on the way back, if the outputs agree and gradients do not."""
        if self.backward is None or not self.backward.parted:
            return None
        return self._at(self.backward.parted, self.backward.parted[0].users, is_backward=True)

    def _first_rounded(self) -> FirstDifference | None:
        """Return the first place where only rounding is worse, if all values agree in float64."""
        if self.inputs is None or self.backward is not None or not self.alignment.agrees:
            return None
        judged = (j.errors for j in self.verdict.outputs.values() if j.status is Status.DIFFERENT)
        if not any(errors is not None and errors.same_function for errors in judged):
            return None
        found = rounds_worse(self.alignment)
        if not found:
            return None
        first = next(iter(found))
        return self._at([*found], first.all_input_nodes, errors=found[first])

    def _at(self, nodes: list[Node], reads: Iterable[Node], **more: Any) -> FirstDifference:
        """Return the first of some nodes of the candidate, and its partner, as a difference."""
        first, partner = nodes[0], self.alignment.partners.get(nodes[0])
        return FirstDifference(
            candidate=module_path(first) or first.name,
            reference="" if partner is None else module_path(partner),
            nodes=tuple(node.name for node in nodes),
            reference_nodes=() if partner is None else (partner.name,),
            reads=tuple(node.name for node in reads),
            weights=(),
            error=None,
            line=line_of(first)[0],
            **more,
        )

    def _known_weights(self) -> set[str]:
        """Return the nodes that are weights which the other model has in another form."""
        known = {weight.candidate for weight in self.weights if not weight.is_odd}
        sides = self.alignment.transformed, self.alignment.original
        return {node.name for side in sides for node in side.values if node.target in known}

    def _modules_that_part(self) -> tuple[str, str]:
        """Return the paths of the modules in which the models part first."""
        found = self.alignment
        candidate = module_path(found.parted[0]) if found.parted else ""
        reference = module_path(found.parted_original[0]) if found.parted_original else ""
        if not reference:
            known = {row.candidate: row.reference for row in self._modules}
            return candidate, next((known[path] for path in _outward(candidate) if known.get(path)), "")
        # A step that is missing shows where its result would have been read, perhaps in the next module.
        stands_for: dict[str, str] = {}
        for row in self._modules:
            stands_for[row.reference] = row.candidate
        there = next((stands_for[path] for path in _outward(reference) if path in stands_for), "")
        if there and found.parted and there not in enclosing(candidate):
            order = [row.candidate for row in self._modules]
            is_before = candidate not in order or order.index(there) < order.index(candidate)
            if is_before and not there.startswith(f"{candidate}."):
                return there, reference
        return candidate or there, reference

    @property
    def table(self) -> pd.DataFrame:
        """A row for each node that computes tensors, with its partner and the distance of the two.

        Indexed by the ``node`` of the candidate, in its order, and then by nodes that the reference alone has
        (with an empty ``node``). ``status`` is ``agrees``, ``parts here``, ``differs`` (its inputs differ
        already), or ``no partner``. ``accumulated`` and ``introduced`` are the largest difference of sorted
        elements relative to the largest element in float64: with all that came before, and by the node.
        """
        found = self.alignment
        rows = [self._row(node) for node in found.transformed.values]
        shown = {row["reference"] for row in rows}
        rows += [
            {
                "node": "",
                "reference": node.name,
                "reference_module": module_path(node),
                "status": "no partner",
            }
            for node in found.original.values
            if node.name not in shown and node not in found.back
        ]
        columns = ["reference", "module", "reference_module", "target", "status", "accumulated", "introduced"]
        return pd.DataFrame(rows, columns=["node", *columns]).set_index("node")

    def _row(self, node: Node) -> dict[str, Any]:
        partner = self._partner(node)
        status = self._status(node)
        apart = self._differences.get(node)
        return {
            "node": node.name,
            "reference": partner.name if partner is not None else "",
            "module": module_path(node),
            "reference_module": module_path(partner) if partner is not None else "",
            "target": target_text(node),
            "status": status,
            "accumulated": apart,
            "introduced": {"agrees": 0.0, "parts here": apart}.get(status),
        }

    def _partner(self, node: Node) -> Node | None:
        found = self.alignment
        if node in found.partners:
            return found.partners[node]
        if node in self._continued:
            return self._continued[node][0]
        # Other steps have no counterpart in the first of these, even with as many elements.
        alone = [node] == found.parted and len(found.parted_original) == 1
        other = found.parted_original[0] if alone else None
        names = {name for each in (node, other) if each is not None and (name := computes(each))}
        return other if len(names) < 2 else None

    def _status(self, node: Node) -> str:
        if node in self.alignment.partners:
            return "agrees"
        if node in self.alignment.parted and not self.agrees:
            return "parts here"
        return "differs" if self._partner(node) is not None else "no partner"

    @cached_property
    def _continued(self) -> dict[Node, tuple[Node, float]]:
        return {} if self.agrees else self.alignment.continued()

    @cached_property
    def _differences(self) -> dict[Node, float]:
        """The distance of values by node of the candidate, where there is something to compare with."""
        found = self.alignment
        known = dict.fromkeys(found.partners, 0.0) | {
            node: apart for node, (_, apart) in self._continued.items()
        }
        for node in found.parted:
            if node not in known and (other := self._partner(node)) is not None:
                known[node] = found.distance(node, other)
        return {node: apart for node, apart in known.items() if apart != float("inf")}

    @cached_property
    def _modules(self) -> list[Module]:
        return compared_modules(self.alignment, self._differences)

    @property
    def modules(self) -> pd.DataFrame:
        """A row for each module of the candidate that computes something.

        With its ``reference``, and ``status`` and ``difference`` of its results, as in :attr:`table`.
        """
        rows = [vars(row) for row in self._modules]
        columns = ["candidate", "reference", "status", "difference"]
        return pd.DataFrame(rows, columns=columns).set_index("candidate").rename_axis("module")

    @property
    def weights_table(self) -> pd.DataFrame:
        """A row for each weight of the candidate, and for those of the reference that it does not have."""
        return table_of(self.weights)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return "\n".join(list(self._lines())[:3])

    def _lines(self) -> Iterator[str]:
        has_nothing = self.verdict.status is Status.NOTHING_COMPARED
        words = "The outputs agree" if self.agrees else "No verdict" if has_nothing else "The models differ"
        yield f"{words}: {self.verdict}"
        # If the outputs agree, so do the rounded weights, and those that nothing depends on do not count.
        odd = [w for w in self.odd_weights if not self.agrees or w.status in WRONG]
        odd.sort(key=lambda weight: weight.status not in WRONG)
        if odd:
            yield f"Weights: {listed(in_words(odd))}"
        if self.first is not None:
            yield f"First: {self.first}"
        elif not (self.agrees or has_nothing or self.is_called):
            yield f"No node is named: {self.alignment}"
        aligned, total = len(self.alignment.partners), len(self.alignment.transformed.values)
        notes = [f"{aligned} of {total} values have a partner", *self.notes]
        sides = {"reference": self.alignment.original, "candidate": self.alignment.transformed}
        for name, side in sides.items():
            if alone := [path for path in self.alignment.only_in_one if path in side.outputs]:
                notes.append(f"only the {name} has the outputs {', '.join(alone)}, not compared")
        if self.inputs_left:
            notes.append(f"the candidate does not take {', '.join(self.inputs_left)}")
        yield "; ".join(notes) + "."

    def _shown(self) -> pd.DataFrame:
        modules = self.modules
        return modules[modules["status"] != "agrees"].head(0 if self.agrees else 10)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "agrees": self.agrees,
            "status": str(self.verdict.status),
            "reason": self.verdict.reason,
            "first": None if self.first is None else vars(self.first) | {"text": str(self.first)},
            "not_compared": [*self.alignment.only_in_one],
            "notes": [*self.notes],
            "weights": _records(self.weights_table),
            "modules": _records(self.modules),
            "nodes": _records(self.table),
        }

    @cached_property
    def session(self) -> Session:
        """A session of the reference, in which the candidate is a stage; nodes match as they are aligned."""
        parted = () if self.agrees else self.alignment.parted
        words = str(self.first or self).partition("\n")[0]
        is_alike = self.candidate_inputs is self.inputs
        return session_of_two(self.alignment, parted, words, self.inputs, is_alike=is_alike)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json_values(table.reset_index().to_dict("records"))
    return records


def _is_in(node: Node, module: str) -> bool:
    return not module or module in enclosing(module_path(node))


def _outward(path: str) -> Iterator[str]:
    """Yield a path and those of the modules around it, innermost first."""
    yield from reversed([*enclosing(path)])


_LEAST = 2.0**-53
"""A rounding of float64, below which no error counts."""


def rounds_worse(alignment: Alignment) -> dict[Node, tuple[float, float]]:
    """Return the first nodes whose errors are far larger than those of their counterparts, with both.

    Errors are those of the values that a graph computes as it is, against its own float64 run. A node counts
    if from there to an output all values are worse, and none of its inputs is.
    """
    errors = _errors(alignment.original), _errors(alignment.transformed)
    compared = {
        node: (errors[1][node], errors[0][other])
        for node, other in alignment.partners.items()
        if node in errors[1] and other in errors[0] and node.op not in ("placeholder", "get_attr")
    }
    worse = {node for node, (error, own) in compared.items() if error > WORSE * max(own, _LEAST)}
    leading: set[Node] = set()
    for node in reversed(alignment.transformed.module.graph.nodes):
        is_open = node in worse or (node in alignment.transformed.values and node not in compared)
        if node.op == "output" or (is_open and not leading.isdisjoint(node.users)):
            leading.add(node)
    return {
        node: compared[node]
        for node in alignment.transformed.module.graph.nodes
        if node in worse & leading and not _reads_worse(node, worse, compared)
    }


def _reads_worse(node: Node, worse: set[Node], compared: dict[Node, Any]) -> bool:
    """Tell whether an input of a node is worse, also through values that the other model does not have."""
    passed = upstream(*node.all_input_nodes, within=lambda read: read not in compared)
    return any(read in worse for each in (node, *passed) for read in each.all_input_nodes)


def _errors(side: Side) -> dict[Node, float]:
    noted = Noted()
    visit_values(side.module, side.inputs, noted)
    return {
        node: max(values[path].moved_by(exact[path]) for path in both)
        for node, values in noted.values.items()
        if (both := values.keys() & (exact := side.values.get(node, {})))
    }
