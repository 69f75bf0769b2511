"""The overlays that screens offer. To add one, write an entry in :data:`SOURCES`."""

import math
from collections.abc import Mapping
from typing import Any

from fxlab.node_info import modules_by_path, parameter_counts, shape_and_dtype
from fxlab.overlays.overlay import Source, Subject
from fxlab.validation.cost.traced_flops import TracedFlops


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
)


def source(name: str) -> Source:
    """Return an overlay's source by its name; raises ``ValueError`` if there is none."""
    for known in SOURCES:
        if known.name == name:
            return known
    names = ", ".join(known.name for known in SOURCES)
    raise ValueError(f"overlay: there is none of the name {name!r}. There are: {names}.")
