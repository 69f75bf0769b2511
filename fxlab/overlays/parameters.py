"""How many parameters nodes use."""

from fxlab.overlays.overlay import Source, Subject
from fxlab.validation.node_columns import parameter_count


def _counts(subject: Subject) -> dict[str, int]:
    gm = subject.graph_module
    modules = dict(gm.named_modules())
    return {node.name: parameter_count(node, gm, modules) for node in gm.graph.nodes}


PARAMETERS = Source("parameters", "Parameters", _counts, runs=False)
