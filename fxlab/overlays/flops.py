"""How many floating-point operations nodes make."""

from collections.abc import Mapping
from typing import Any

from fxlab.overlays.overlay import Source, Subject
from fxlab.validation.traced_flops import TracedFlops


def _traced(subject: Subject) -> Mapping[Any, Any]:
    graph_module = subject.graph_module
    counted = TracedFlops(dict(graph_module.named_modules()))
    return {node.name: counted.of_node(node) for node in graph_module.graph.nodes}


FLOPS = Source("flops", "FLOPs", lambda subject: subject.profile["flops"].to_dict(), traced=_traced)
