"""The overlays that pictures, screens and reports offer: those in :data:`SOURCES`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

import fxlab.validation as validation
from fxlab.base.exchanged import cached_property
from fxlab.base.first_use import pd
from fxlab.base.units import with_unit
from fxlab.graphs.unfolded import unfolded
from fxlab.models.parallel.collectives import collectives_of, exchanges_anything, is_wait
from fxlab.models.parallel.placements import known_placement
from fxlab.models.parallel.ranks import is_in_fake_group
from fxlab.models.running.arguments import Inputs
from fxlab.models.state.tensor_state import tensors_of
from fxlab.operators.node_info import modules_by_path, parameter_counts, shape_and_dtype
from fxlab.overlays.overlay import Combine, Overlay, cleaned
from fxlab.validation.cost.traced_flops import TracedFlops


@dataclass(frozen=True)
class Subject:
    """The graph, session and inputs that an overlay is measured on."""

    graph_module: fx.GraphModule
    original: fx.GraphModule | None = None
    inputs: Inputs | None = None

    @property
    def can_run(self) -> bool:
        """Whether there are inputs and weights, and no process group that exchanges nothing."""
        is_empty = any(t.is_meta for t in tensors_of(self.graph_module))
        return self.inputs is not None and not is_empty and not is_in_fake_group(self.graph_module)

    @cached_property
    def profile(self) -> pd.DataFrame:
        """The cost of each node; measured once for all overlays."""
        return validation.profile(self.graph_module, self.inputs, rounds=3)  # colours need no more

    @cached_property
    def statistics(self) -> dict[str, list[validation.Statistics]]:
        """Statistics of the tensors of each node, by its name; from one run for all overlays."""
        if self.inputs is None:
            raise ValueError("inputs: expected what the model is called with, got None.")
        from fxlab.validation.tensor_values.node_values import statistics_by_node

        return statistics_by_node(self.graph_module, self.inputs)

    @cached_property
    def errors(self) -> pd.DataFrame:
        """The distance of each node from the original's."""
        if self.original is None:
            raise ValueError(
                "An error is the distance from another graph, and there is none here. "
                "Compare them first: fxlab.compare_nodes(original, transformed, inputs)."
            )
        if self.graph_module is self.original:
            names = [name for name, tensors in self.statistics.items() if tensors]
            return pd.DataFrame(0.0, index=names, columns=["accumulated", "introduced"])
        return validation.compare_nodes(self.original, self.graph_module, self.inputs)


@dataclass(frozen=True)
class Source:
    """A kind of overlay: its name, and its measurement.

    ``measure`` returns a value for each node's name; ``runs`` tells whether it runs the model. ``traced``
    returns the values at the sizes that were traced, for models that are not run.
    """

    name: str
    title: str
    measure: Callable[[Subject], Mapping[Any, Any] | Overlay]
    combine: Combine = "sum"
    unit: str = ""
    runs: bool = True
    traced: Callable[[Subject], Mapping[Any, Any]] | None = None
    is_made_of: Callable[[fx.GraphModule], bool] = lambda graph_module: True
    """Tells whether a graph has such values."""

    def overlay(self, subject: Subject, *, run: bool = True) -> Overlay:
        """Measure a graph, or without ``run`` tell the facts that are known without running it.

        Where the values of some nodes are not known (NaN), sums are lower bounds, and the title says so.

        Raises
        ------
        ValueError
            If the model has to be run and cannot be, for example because it has no weights.
        """
        if not self.runs or (run and subject.can_run):
            measured = self.measure(subject)
            if isinstance(measured, Overlay):
                return replace(measured, name=self.name)
            values = cleaned(measured)
        else:
            measured = self.traced(subject) if self.traced else {}
            values = cleaned(measured)
            if not values:
                why = (
                    "there are no inputs to run it on"
                    if subject.inputs is None
                    else "its process group is fake"
                    if is_in_fake_group(subject.graph_module)
                    else "it has no weights"
                )
                raise ValueError(f"{self.title}: the model has to be run, and {why if run else 'is not'}.")
        is_lower_bound = self.combine == "sum" and any(value != value for value in measured.values())
        title = f"{self.title} (at least)" if is_lower_bound else self.title
        return Overlay(self.name, values, title=title, combine=self.combine, unit=self.unit)


def _traced_flops(subject: Subject) -> Mapping[Any, Any]:
    flops = TracedFlops(modules_by_path(subject.graph_module))
    nodes = subject.graph_module.graph.nodes
    return {node.name: math.nan if flops.is_unknown(node) else flops.of_node(node) for node in nodes}


def _parameters(subject: Subject) -> Mapping[Any, Any]:
    """Count parameters that several nodes use where they are used first."""
    return {node.name: count for node, count in parameter_counts(subject.graph_module).items()}


def _dtypes(subject: Subject) -> Mapping[Any, Any]:
    dtypes = {node.name: shape_and_dtype(node)[1] for node in subject.graph_module.graph.nodes}
    return {name: dtype for name, dtype in dtypes.items() if dtype is not None}


def _largest(of_tensor: Callable[[validation.Statistics], float]) -> Callable[[Subject], Mapping[Any, Any]]:
    """Return a function that finds the largest number in the tensors of each node; NaN counts for none."""

    def measure(subject: Subject) -> Mapping[Any, Any]:
        known = {name: map(of_tensor, tensors) for name, tensors in subject.statistics.items()}
        return {name: max((n for n in ns if n == n), default=math.nan) for name, ns in known.items()}

    return measure


def _non_finite(subject: Subject) -> Mapping[Any, Any]:
    """Tell the first nodes with NaN or infinite elements from those that read them."""
    found: dict[str, str] = {}
    for node in subject.graph_module.graph.nodes:
        tensors = subject.statistics.get(node.name)
        if not tensors:
            continue
        nan, infinite = (any(t.nan for t in tensors), any(t.inf or t.negative_inf for t in tensors))
        kind = "NaN" if nan else "infinity" if infinite else ""
        before = {found.get(read.name, "finite").removeprefix("first ") for read in node.all_input_nodes}
        found[node.name] = "finite" if not kind else kind if kind in before else f"first {kind}"
    return found


def _collectives(subject: Subject) -> Overlay:
    """Colour the nodes that start a collective or wait for it by the group of processes."""
    found = collectives_of(unfolded(subject.graph_module).graph)
    if not found:
        raise ValueError("Collectives: the graph exchanges nothing with other processes.")
    nodes = [(node, one) for one in found for node in (*filter(is_wait, one.waits), one.start)]
    values = {node.name: str(one.group) for node, one in nodes}
    labels = {one.start.name: f"{one.kind} {with_unit(one.bytes, 'B')}" for one in found}
    return Overlay("collectives", values, title="Collectives", kind="category", labels=labels)


def _placements(subject: Subject) -> Overlay:
    """Colour values by how they lie on ranks, as far as the graph knows."""
    nodes = unfolded(subject.graph_module).graph.nodes
    known = {node.name: known_placement(node).rpartition(" of ")[0] for node in nodes}
    values = {name: words for name, words in known.items() if words}
    if not values:
        raise ValueError("Placements: the graph does not know how any value lies on ranks.")
    return Overlay("placements", values, title="Placements", kind="category")


SOURCES: tuple[Source, ...] = (
    # The difference accumulated up to a node, relative to the norm of the original's value.
    Source("output-error", "Output error", lambda on: on.errors["accumulated"].to_dict(), "max"),
    # The difference where a node runs on the original's values, relative to the same norm.
    Source("introduced-error", "Error introduced", lambda on: on.errors["introduced"].to_dict(), "max"),
    Source("time", "Time", lambda on: on.profile["time"].to_dict(), unit="s"),
    Source("flops", "FLOPs", lambda on: on.profile["flops"].to_dict(), traced=_traced_flops),
    # The most bytes of new tensors that are alive at once.
    Source("memory", "Peak memory", lambda on: on.profile["peak_memory"].to_dict(), "max", "B"),
    Source("parameters", "Parameters", _parameters, runs=False),
    Source("dtype", "Dtype", _dtypes, runs=False),
    # Of the values on the inputs; groups show the largest of their nodes.
    Source("largest-value", "Largest absolute value", _largest(lambda value: value.largest), "max"),
    Source("zeros", "Share of zeros", _largest(lambda value: value.zeros), "max"),
    Source("non-finite", "NaN and infinity", _non_finite),
    Source("range-used", "Share of the dtype's range", _largest(lambda value: value.range_used), "max"),
    Source("collectives", "Collectives", _collectives, runs=False, is_made_of=exchanges_anything),
    Source(
        "placements",
        "Placements",
        _placements,
        runs=False,
        is_made_of=lambda gm: any(map(known_placement, gm.graph.nodes)),
    ),
)


def source(name: str) -> Source:
    """Return an overlay's source by its name; raises ``ValueError`` if there is none."""
    for known in SOURCES:
        if known.name == name:
            return known
    names = ", ".join(known.name for known in SOURCES)
    raise ValueError(f"overlay: there is none of the name {name!r}. There are: {names}.")
