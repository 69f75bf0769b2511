"""The overlays that screens offer. To add one, write an entry in :data:`SOURCES`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fxlab.node_info import modules_by_path, parameter_counts, shape_and_dtype
from fxlab.overlays.overlay import Source, Subject

if TYPE_CHECKING:
    from fxlab.validation import Statistics


def _traced_flops(subject: Subject) -> Mapping[Any, Any]:
    from fxlab.validation.cost.traced_flops import TracedFlops

    flops = TracedFlops(modules_by_path(subject.graph_module))
    nodes = subject.graph_module.graph.nodes
    return {node.name: math.nan if flops.is_unknown(node) else flops.of_node(node) for node in nodes}


def _parameters(subject: Subject) -> Mapping[Any, Any]:
    """Count parameters that several nodes use where they are used first."""
    return {node.name: count for node, count in parameter_counts(subject.graph_module).items()}


def _dtypes(subject: Subject) -> Mapping[Any, Any]:
    dtypes = {node.name: shape_and_dtype(node)[1] for node in subject.graph_module.graph.nodes}
    return {name: dtype for name, dtype in dtypes.items() if dtype is not None}


def _largest(of_tensor: Callable[[Statistics], float]) -> Callable[[Subject], Mapping[Any, Any]]:
    """Return what measures the largest number that the tensors of each node have; NaN counts for none."""

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
)


def source(name: str) -> Source:
    """Return an overlay's source by its name; raises ``ValueError`` if there is none."""
    for known in SOURCES:
        if known.name == name:
            return known
    names = ", ".join(known.name for known in SOURCES)
    raise ValueError(f"overlay: there is none of the name {name!r}. There are: {names}.")
