"""How many floating-point operations nodes make."""

import math
from collections.abc import Mapping
from typing import Any

from fxlab.overlays.overlay import Source, Subject
from fxlab.validation.cost.traced_flops import TracedFlops


def _traced(subject: Subject) -> Mapping[Any, Any]:
    graph_module = subject.graph_module
    counted = TracedFlops(dict(graph_module.named_modules()))
    nodes = graph_module.graph.nodes
    return {node.name: math.nan if counted.is_unknown(node) else counted.of_node(node) for node in nodes}


FLOPS = Source("flops", "FLOPs", lambda subject: subject.profile["flops"].to_dict(), traced=_traced)
